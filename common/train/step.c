/* One global step.
 *
 * Happy path: for each micro-batch the host sends its scalars and its samples, then queues what is
 * the same in every step: the program's stages; with the last micro-batch each bucket's all-reduce
 * as soon as backward has filled it, the last bucket carrying the control vector; then the update,
 * and the copy of what all ranks agreed on to where the host reads it.
 *
 * On the CPU "queue" means do: buckets go to the comm thread, all else is done at once.  On a
 * device all of it is recorded (tape.h), all-reduces included, so a step is a launch and a poll: no
 * allocation, no waiting, and nothing read from host memory but what is sent.
 *
 * Failure modes: a collective fails (a rank left, abort): nothing has been applied, the state is
 * that of the step before; the caller forms again.  On a device it can also fail when the step was
 * already applied: settle() asks the device.  Something is not finite: the update does not apply
 * it, on any rank, because all read the same reduced bytes; this rank notes where it saw it first
 * (explain.c). */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "coll/device.h"
#include "train/flip.h"
#include "train/trainer_impl.h"

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
        .first_update = t->state->at.n_updates == 0,
        .stamp = step_stamp(b->step),
    };
}

static int send_scalars(struct trainer *t, const struct batch *b, struct err *err)
{
    struct step_scalars *s = &t->buffers->sent[t->n_sent++ % BUFFERS_SENT];

    step_scalars(t, b, s);
    return backend_put(t->backend, LANE_MAIN, t->buffers->scalars, s, sizeof *s, err);
}

/* ---- collectives ---- */

static int64_t hand_over(struct trainer *t, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    return ring_hand(t->ring, t->state->at.step, bucket, n_bytes, phase);
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
    const int64_t now_ns = clock_mono_ns();

    for (int i = 0; i < program_n_stages(p); i++) {
        const struct stage *s = program_stage(p, i);
        int64_t id = 0;

        if (s->kind == STAGE_SYNC)
            id = hand_sync(t, s);
        else if (s->kind == STAGE_BUCKET && last)
            id = hand_bucket(t, s->bucket);
        if (id) {
            ring_run(t->ring, id, now_ns);
            t->first_handed = t->first_handed ? t->first_handed : id;
            t->last_handed = id;
        }
    }
}

static void end_handed(struct trainer *t, int is_failed)
{
    const int64_t now_ns = clock_mono_ns();

    for (int64_t id = t->first_handed; id && id <= t->last_handed; id++)
        ring_end(t->ring, id, now_ns, is_failed);
    t->first_handed = 0;
}

static int reduce_bucket(struct trainer *t, int bucket, struct err *err)
{
    const struct bucket *b = &t->layout->bucket[bucket];
    int64_t tag;
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
    tag = backend_is_device(t->backend) ? COLL_TAG_NONE : hand_bucket(t, bucket);
    t->ticket[bucket] = coll_allreduce(t->coll, (char *)t->buffers->grad + b->at, b->length,
                                       b->dtype, COLL_SUM, tag, err);
    t->next_bucket = bucket + 1;
    return t->ticket[bucket] < 0 ? (int)t->ticket[bucket] : 0;
}

static int reduce_now(struct trainer *t, const struct stage *s, struct err *err)
{
    int64_t tag = backend_is_device(t->backend) ? COLL_TAG_NONE : hand_sync(t, s);
    int64_t ticket = coll_allreduce(t->coll, s->sync, s->n_sync, DTYPE_F64, COLL_SUM, tag, err);

    return ticket < 0 ? (int)ticket : coll_wait(t->coll, ticket, err);
}

static int wait_reductions(struct trainer *t, int64_t epoch, struct err *err)
{
    for (int b = 0; b < t->layout->n_buckets; b++) {
        at(t, PHASE_REDUCE, epoch, b);
        if (coll_wait(t->coll, t->ticket[b], err) < 0)
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
    int rc = backend_zero(t->backend, m->outcome->metrics, sizeof(double) * METRIC_COUNT, err);

    if (rc == 0 && m->accumulates && t->layout->n_state_total)
        rc = backend_copy(t->backend, m->work, t->state->stats,
                          sizeof(float) * (size_t)t->layout->n_state_total, err);
    return rc;
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

    faults_reach(t->o.faults, INJECTION_AT_REDUCE, t->state->at.step);
    rc = wait_reductions(t, epoch, err);
    if (rc == 0 && coll_is_device(t->coll))
        rc = coll_device_latch(t->coll, t->buffers->control + CONTROL_NONFINITE, err);
    if (rc < 0)
        return rc;
    at(t, PHASE_UPDATE, epoch, -1);
    faults_reach(t->o.faults, INJECTION_AT_UPDATE, t->state->at.step);
    rc = update_apply(t->update, err);
    return rc == 0 ? buffers_read_back(t->buffers, err) : rc;
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

static int run_micro(struct trainer *t, const struct batch *b, struct err *err)
{
    struct micro m = {.t = t,
                      .program = programs_find(t->programs, 1, b->n),
                      .batch = *b,
                      .first = b->micro == 0,
                      .last = b->micro == t->job->train.accumulate - 1};
    struct tape_key key = {m.program, m.first, m.last};
    int rc = send_scalars(t, b, err);

    if (rc == 0)
        rc = feed_put(t->train_feed, m.program, err);
    if (rc == 0 && backend_is_device(t->backend))
        hand_over_all(t, m.program, m.last);
    if (rc < 0)
        return rc;
    if (faults_n(t->o.faults)) /* which happen between kernels: nothing is recorded */
        return queue_micro(&m, err);
    return tapes_run(t->tapes, key, queue_micro, &m, err);
}

static int run_micros(struct trainer *t, int64_t *epoch, struct err *err)
{
    int rc = 0;

    for (int64_t m = 0; m < t->job->train.accumulate && rc == 0; m++) {
        struct batch b;

        at(t, PHASE_LOAD, *epoch, -1);
        rc = feed_next(t->train_feed, &b, err);
        ASSERT(rc <= 0); /* the loader was given exactly the steps that are asked for */
        if (rc < 0)
            return err_wrap(err, "training data");
        ASSERT(b.step == t->state->at.step && b.micro == m);
        *epoch = b.epoch;
        rc = run_micro(t, &b, err);
    }
    return rc;
}

enum { BUSY_POLLS = 4000, POLL_US = 20 }; /* as often without a rest: a step of a small model */

int step_wait(struct trainer *t, struct err *err)
{
    int rc;

    if (!backend_is_device(t->backend))
        return 0;
    for (int n = 0; (rc = backend_poll(t->backend, err)) == 1; n++) {
        if (t->coll && coll_poll(t->coll, err) < 0)
            return err->code;
        if (n >= BUSY_POLLS)
            usleep(POLL_US);
    }
    if (rc == 0 && t->coll)
        rc = coll_poll(t->coll, err);
    return rc;
}

/* The step broke off, as *err says.  Returns 0 if it was applied all the same: then all its
 * collectives were done, and whatever broke off is met again by the next step. */
static int settle(struct trainer *t, struct err *err)
{
    enum { UNDER_WAY_MS = 500 };
    const float stamp = step_stamp(t->state->at.step);
    struct err other;

    if (coll_is_device(t->coll))
        (void)coll_device_quiesce(t->coll, UNDER_WAY_MS, &other);
    if (backend_sync(t->backend, &other) < 0 || buffers_read_back(t->buffers, &other) < 0 ||
        backend_sync(t->backend, &other) < 0)
        return err->code;
    return t->buffers->seen->outcome.applied == stamp ? 0 : err->code;
}

static int read_result(struct trainer *t, struct step_result *out, struct err *err)
{
    const struct readback *seen = t->buffers->seen;

    control_read(seen->control, &out->control);
    out->applied = out->control.n_nonfinite == 0 && seen->outcome.check[1] == 0;
    t->loss_scale = t->state->scaler ? (double)seen->scaler[SCALER_SCALE] : 0;
    out->overflowed = t->state->scaler && !out->applied && out->control.n_nonfinite == 0 &&
                      seen->scaler[SCALER_STUCK] == 0.0f;
    if (out->overflowed)
        snprintf(t->note, sizeof t->note, "a gradient overflowed in float16; the loss scale is %g",
                 t->loss_scale);
    return out->applied || out->overflowed ? 0 : explain_nonfinite(t, &out->control, err);
}

static void count_time(struct trainer *t, int64_t start_ns, int64_t waited_ns)
{
    int64_t wall_ns = clock_mono_ns() - start_ns;
    struct coll_stats now;

    coll_stats(t->coll, &now);
    t->hooks.stepped(t->hooks.arg, wall_ns, max_i64(0, wall_ns - (now.wait_ns - waited_ns)));
}

/* Queue all of it, and on a device see it through. */
static int do_step(struct trainer *t, struct err *err)
{
    int64_t epoch = t->state->at.step / t->steps_per_epoch + 1;
    int rc;

    at(t, PHASE_LOAD, epoch, -1);
    faults_reach(t->o.faults, INJECTION_AT_STEP, t->state->at.step);
    rc = run_micros(t, &epoch, err);
    if (rc == 0 && backend_is_device(t->backend)) {
        feed_ahead(t->train_feed);
        at(t, PHASE_REDUCE, epoch, -1);
        rc = step_wait(t, err);
    }
    if (backend_is_device(t->backend))
        end_handed(t, rc < 0);
    return rc;
}

int step_run(struct trainer *t, struct step_result *out, struct err *err)
{
    int64_t start_ns = clock_mono_ns();
    struct coll_stats before;
    int rc = coll_poll(t->coll, err);

    if (rc < 0)
        return rc;
    coll_stats(t->coll, &before);
    t->note[0] = 0;
    t->next_bucket = 0;
    rc = do_step(t, err);
    if (rc < 0 && backend_is_device(t->backend))
        rc = settle(t, err);
    feed_done(t->train_feed);
    if (rc == 0)
        rc = read_result(t, out, err);
    if (rc == 0)
        count_time(t, start_ns, before.wait_ns);
    return rc;
}
