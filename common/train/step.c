/* Queueing one global step; what is under way is flight.c's.
 *
 * For each micro-batch the host sends its scalars and its samples, then queues what is the same in
 * every step: the program's stages; with the last micro-batch each bucket's all-reduce as soon as
 * backward has filled it, the last bucket carrying the control vector; then the update, which
 * leaves what all ranks agreed on where the host reads it.
 *
 * On the CPU "queue" means do: buckets go to the comm thread, all else is done at once.  On a
 * device all of it is recorded (tape.h), all-reduces included, so a step is a launch and a poll: no
 * allocation, no waiting, and nothing read from host memory but what is sent. */
#include "base/util.h"
#include "coll/device.h"
#include "train/flip.h"
#include "train/trainer_impl.h"

/* The step that is shown is the one that the rank will be without, should it be lost: on a device
 * the one queued may be the next one already. */
static void at(struct trainer *t, enum phase phase, int64_t epoch, int64_t bucket)
{
    t->hooks.at(t->hooks.arg, phase, epoch, t->state->at.step, bucket);
}

void step_scalars(const struct trainer *t, const struct batch *b, struct step_scalars *out)
{
    const struct job_train *train = &t->job->train;
    struct schedule_span span = {t->steps_per_epoch, t->total_steps, t->n_ranks};

    *out = (struct step_scalars){
        .seed = (uint64_t)train->seed,
        .step = (uint64_t)b->step,
        .first_position = b->first,
        .loss_scale = (float)(1.0 / (double)b->n_global),
        .rate = (float)schedule_rate(t->job, &span, b->step),
        .clip_norm = (float)train->clip_norm,
        .requests = (float)t->hooks.requests(t->hooks.arg),
        .skip_nonfinite = train->on_nonfinite == NONFINITE_SKIP,
        /* that all in between were applied is presumed, or this one does not count */
        .first_update = t->state->at.n_updates == 0 && b->step == t->state->at.step,
        .stamp = step_stamp(b->step),
        .slot = flight_slot(b->step),
    };
}

/* With the first micro-batch of a step the zeros before them, too. */
static int send_scalars(struct trainer *t, const struct batch *b, struct err *err)
{
    struct step_numbers *from = &t->buffers->sent[t->n_sent++ % BUFFERS_SENT];
    struct step_numbers *to = t->buffers->numbers;

    step_scalars(t, b, &from->scalars);
    from->scalars.after = t->queued->after;
    if (b->micro == 0)
        return backend_put(t->backend, LANE_MAIN, to, from, STEP_NUMBERS_SENT, err);
    return backend_put(t->backend, LANE_MAIN, &to->scalars, &from->scalars, STEP_SCALARS_SENT, err);
}

/* ---- collectives ---- */

static int64_t hand_over(struct trainer *t, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    return ring_hand(t->ring, t->queued->step, bucket, n_bytes, phase);
}

static int64_t hand_sync(struct trainer *t, const struct stage *s)
{
    return hand_over(t, RING_SYNC, s->n_sync * (int64_t)sizeof(double),
                     s->backward ? PHASE_BACKWARD : PHASE_FORWARD);
}

static int64_t hand_bucket(struct trainer *t, int bucket)
{
    const struct bucket *b = &t->layout->bucket[bucket];

    return hand_over(t, bucket, b->length * (int64_t)dtype_size(b->dtype), PHASE_BACKWARD);
}

/* A recording's collectives are nobody's calls: the ring is told here, of all of them at once. */
static void hand_over_all(struct trainer *t, const struct program *p, int last)
{
    struct flight *f = t->queued;

    for (int i = 0; i < program_n_stages(p); i++) {
        const struct stage *s = program_stage(p, i);
        int64_t id = 0;

        if (s->kind == STAGE_SYNC)
            id = hand_sync(t, s);
        else if (s->kind == STAGE_BUCKET && last && !skip_is_due(t, s->bucket))
            id = hand_bucket(t, s->bucket);
        if (id) {
            f->first_handed = f->first_handed ? f->first_handed : id;
            f->last_handed = id;
        }
    }
}

/* A device's own clock says for how long it has nothing to do but wait for others. */
static int watch_waiting(struct trainer *t, int stops, struct err *err)
{
    if (!coll_is_device(t->coll))
        return 0;
    return backend_stopwatch(t->backend, t->buffers->numbers->waits, stops, err);
}

static int64_t start_reduction(struct trainer *t, int bucket, struct err *err)
{
    const struct bucket *b = &t->layout->bucket[bucket];
    int64_t tag = backend_is_device(t->backend) ? COLL_TAG_NONE : hand_bucket(t, bucket);

    return coll_allreduce(t->coll, (char *)t->buffers->grad + b->at, b->length, b->dtype, COLL_SUM,
                          tag, err);
}

static int reduce_bucket(struct trainer *t, int bucket, struct err *err)
{
    int rc = 0;

    if (t->buffers->accumulates)
        rc = update_accumulate(t->update, bucket, err);
    if (rc == 0 && t->buffers->accumulates)
        rc = update_round(t->update, bucket, err);
    if (rc == 0 && bucket == t->layout->n_buckets - 1)
        rc = update_pack(t->update, err);
    if (rc == 0)
        rc = flip_if_due(t, INJECTION_BUCKET, bucket, err);
    if (rc < 0)
        return rc;
    t->ticket[bucket] = skip_if_due(t, bucket) ? 0 : start_reduction(t, bucket, err);
    t->next_bucket = bucket + 1;
    return t->ticket[bucket] < 0 ? (int)t->ticket[bucket] : 0;
}

static int reduce_now(struct trainer *t, const struct stage *s, struct err *err)
{
    int64_t tag = backend_is_device(t->backend) ? COLL_TAG_NONE : hand_sync(t, s);
    int rc = watch_waiting(t, 0, err);
    int64_t ticket =
        rc < 0 ? rc : coll_allreduce(t->coll, s->sync, s->n_sync, DTYPE_F64, COLL_SUM, tag, err);

    rc = ticket < 0 ? (int)ticket : coll_wait(t->coll, ticket, err);
    return rc < 0 ? rc : watch_waiting(t, 1, err);
}

static int wait_reductions(struct trainer *t, int64_t epoch, struct err *err)
{
    for (int b = 0; b < t->layout->n_buckets; b++) {
        at(t, PHASE_REDUCE, epoch, b);
        if (t->ticket[b] && coll_wait(t->coll, t->ticket[b], err) < 0)
            return err_wrap(err, "all-reduce of bucket %d", b);
        if (flip_if_due(t, INJECTION_REDUCED, b, err) < 0)
            return err->code;
    }
    return 0;
}

/* ---- what is the same in every step, and recorded where that is possible ---- */

struct micro {
    struct trainer *t;
    struct program *program;
    struct batch batch;
    int first, last; /* of its step */
};

static int begin_step(struct trainer *t, struct err *err)
{
    struct buffers *m = t->buffers;

    if (!m->accumulates || !t->layout->n_state_total)
        return 0;
    return backend_copy(t->backend, m->work, state_data(t->state, &slot_statistics),
                        sizeof(float) * (size_t)t->layout->n_state_total, err);
}

static int queue_stage(struct micro *m, int i, struct err *err)
{
    struct trainer *t = m->t;
    const struct stage *s = program_stage(m->program, i);
    const int64_t epoch = m->batch.epoch;

    switch (s->kind) {
    case STAGE_RUN:
        at(t, s->backward ? PHASE_BACKWARD : PHASE_FORWARD, epoch,
           s->backward && m->last ? t->next_bucket : -1);
        return program_run_stage(m->program, i, err);
    case STAGE_SYNC:
        at(t, PHASE_REDUCE, epoch, -1);
        return reduce_now(t, s, err);
    case STAGE_BUCKET:
        at(t, PHASE_BACKWARD, epoch, m->last ? s->bucket : -1);
        return m->last ? reduce_bucket(t, s->bucket, err) : 0;
    }
    return 0;
}

/* Between micro-batches: the sum of gradients, and the running statistics so far. */
static int carry_micro(struct trainer *t, int first, struct err *err)
{
    const struct layout *l = t->layout;
    struct buffers *m = t->buffers;
    int rc = 0;

    if (first)
        rc = backend_copy(t->backend, m->sum, m->micro, sizeof(float) * (size_t)l->n_trained, err);
    for (int b = 0; b < l->n_buckets && !first && rc == 0; b++)
        rc = update_accumulate(t->update, b, err);
    if (rc == 0 && l->n_state_total)
        rc = backend_copy(t->backend, m->work, m->shadow, sizeof(float) * (size_t)l->n_state_total,
                          err);
    return rc;
}

/* Half-reduced gradients are never applied: on the CPU the wait fails, on a device a poisoned coll
 * leaves its mark in the control vector that the update reads. */
static int end_step(struct trainer *t, int64_t epoch, struct err *err)
{
    int rc;

    faults_reach(t->o.faults, INJECTION_AT_REDUCE, t->queued->step);
    rc = watch_waiting(t, 0, err);
    if (rc == 0)
        rc = wait_reductions(t, epoch, err);
    if (rc == 0)
        rc = watch_waiting(t, 1, err);
    if (rc == 0 && coll_is_device(t->coll))
        rc = coll_device_latch(t->coll, t->buffers->control + CONTROL_VOID, err);
    if (rc < 0)
        return rc;
    at(t, PHASE_UPDATE, epoch, -1);
    faults_reach(t->o.faults, INJECTION_AT_UPDATE, t->queued->step);
    return update_apply(t->update, err);
}

static int queue_micro(void *arg, struct err *err)
{
    struct micro *m = arg;
    struct trainer *t = m->t;
    int rc = m->first ? begin_step(t, err) : 0;

    if (rc == 0)
        rc = feed_gather(t->train_feed, m->program, err);
    for (int i = 0; i < program_n_stages(m->program) && rc == 0; i++)
        rc = queue_stage(m, i, err);
    if (rc < 0)
        return rc;
    return m->last ? end_step(t, m->batch.epoch, err) : carry_micro(t, m->first, err);
}

/* ---- a step ---- */

/* Each rank's share is as large as the first's or as the last's, and n_global says which. */
static struct tape_key key_of(const struct trainer *t, const struct batch *b)
{
    const struct sampler_step at = sampler_at(&t->sampler, b->step);
    const int n = (int)t->job->train.accumulate;

    return (struct tape_key){.training = 1,
                             .n_global = b->n_global,
                             .most = sampler_micro(&at, t->n_ranks, 0, n, b->micro).n,
                             .least = sampler_micro(&at, t->n_ranks, t->n_ranks - 1, n, b->micro).n,
                             .first = b->micro == 0,
                             .last = b->micro == n - 1};
}

static int run_micro(struct trainer *t, const struct batch *b, struct err *err)
{
    const struct tape_key key = key_of(t, b);
    struct micro m = {.t = t,
                      .program = programs_find(t->programs, 1, b->n),
                      .batch = *b,
                      .first = key.first,
                      .last = key.last};
    int rc = send_scalars(t, b, err);

    if (rc == 0)
        rc = feed_put(t->train_feed, m.program, err);
    if (rc == 0 && backend_is_device(t->backend))
        hand_over_all(t, m.program, m.last);
    return rc < 0 ? rc : tapes_run(t->tapes, key, queue_micro, &m, err);
}

static void at_load(struct trainer *t)
{
    at(t, PHASE_LOAD, t->queued->step / t->steps_per_epoch + 1, -1);
}

static int load(struct trainer *t, struct batch *b, struct err *err)
{
    int rc = 0;

    at_load(t);
    if (t->is_batch_held)
        feed_again(t->train_feed, b);
    else
        rc = feed_next(t->train_feed, b, err);
    t->is_batch_held = 0;
    ASSERT(rc <= 0); /* the loader was given exactly the steps that are asked for */
    return rc < 0 ? err_wrap(err, "training data") : 0;
}

int step_queue(struct trainer *t, struct flight *f, struct err *err)
{
    int rc = 0;

    t->queued = f;
    t->next_bucket = 0;
    at_load(t); /* who is held up by a fault is seen in this step */
    faults_reach(t->o.faults, INJECTION_AT_STEP, f->step);
    for (int64_t m = 0; m < t->job->train.accumulate && rc == 0; m++) {
        struct batch b;

        rc = load(t, &b, err);
        ASSERT(rc < 0 || (b.step == f->step && b.micro == m));
        if (rc == 0)
            rc = run_micro(t, &b, err);
    }
    return rc;
}
