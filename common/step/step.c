/* step - queues one global step.
 *
 * step_queue has the parts of a step in their order:
 *   1. For each micro-batch the host sends its scalars and its samples.
 *   2. Then the host queues the work that is the same in every step: the stages of the program,
 *      forward and backward.
 *   3. In the last micro-batch each bucket of gradients goes to the strategy as soon as backward
 *      has filled it.  The last bucket carries the control vector.
 *   4. When the strategy has combined all buckets, the update follows.  It writes the results, on
 *      which all ranks agree, to memory where the host reads them (flight.c).
 *
 * On a CPU, "queue" means "do": collectives go to the thread of coll/, and everything else is done
 * at once.  On a device part 2 to 4 are recorded (tape.h), collectives included.  A step is then a
 * launch and a poll, without allocation and without waiting, and it reads only what was sent. */

#include "base/clock.h"
#include "base/spans.h"
#include "base/util.h"
#include "state/shards.h"
#include "step/flip.h"
#include "step/step_impl.h"
#include "strategy/cut.h"

/* Show the phase.  The step shown is the one that would be lost together with this rank; on a
 * device the step that is being queued may already be the next one. */
static void step_at_stage(struct stepper *t, enum phase phase, int64_t bucket)
{
    t->hooks.at(t->hooks.arg, phase, t->queued->step / t->steps_per_epoch + 1, t->state->at.step,
                bucket);
}

void step_at(void *stepper, enum phase phase, int64_t bucket)
{
    step_at_stage(stepper, phase, bucket);
}

/* ---- numbers of a step ---- */

double step_rate(const struct stepper *t, int64_t step)
{
    const struct schedule_span span = {t->steps_per_epoch, t->total_steps, coll_size(t->coll),
                                       t->loop->v + LOOP_SCHEDULE};

    const double lr = optimizer_lr(&t->job->optimizer),
                 live = t->live_lr > 0 && step >= t->live_step ? t->live_lr : t->state->at.live_lr,
                 rate = schedule_rate(&t->job->schedule, &t->job->optimizer, &span, step);

    return live > 0 && lr > 0 ? rate * (live / lr) : rate;
}

int step_n_micros(const struct stepper *t, const struct sampler_step *at)
{
    return sampler_n_micros(at, coll_size(t->coll), coll_rank(t->coll),
                            (int)t->job->train.accumulate);
}

/* The part of the step's samples that the share under way has, from 0 to 1: this rank's, or in an
 * audited step another one's. */
static double part_of_share(const struct stepper *t, int64_t step)
{
    const struct sampler_step at = sampler_at(t->sampler, step);
    const int n_ranks = coll_size(t->coll), accumulate = (int)t->job->train.accumulate;
    const int rank = t->witness.is_looking ? t->witness.share : coll_rank(t->coll);
    int64_t n = 0;

    for (int m = 0; m < sampler_n_micros(&at, n_ranks, rank, accumulate); m++)
        n += sampler_micro(&at, n_ranks, rank, accumulate, m).n;
    return (double)n / (double)at.n;
}

/* All steps between the state's and this one are presumed to be applied: if one is not, this one
 * does not count, and is queued again. */
static int64_t updates_before(const struct stepper *t, int64_t step)
{
    return t->state->at.n_updates + (step - t->state->at.step);
}

void step_scalars(const struct stepper *t, const struct batch *b, struct step_scalars *out)
{
    const struct job_train *train = &t->job->train;
    const int64_t n_targets = b->n_global * sample_n_predictions(t->spec);
    const double factor = reducer_loss_factor(t->reducer, b->step, part_of_share(t, b->step));
    const int is_last = train->stop_after > 0 && b->step + 1 >= train->stop_after;

    *out = (struct step_scalars){
        .seed = (uint64_t)train->seed,
        .step = (uint64_t)b->step,
        .first_position = b->first,
        .n_updates = updates_before(t, b->step),
        .n_targets = n_targets,
        .loss_scale = (float)(factor / (double)n_targets),
        .rate = (float)step_rate(t, b->step),
        .clip_norm = (float)train->clip_norm,
        .requests = (float)(t->hooks.requests(t->hooks.arg) |
                            (reducer_is_ready(t->reducer) ? ENGINE_REQUEST_ROUND : 0u) |
                            (is_last ? ENGINE_REQUEST_STOP : 0u)),
        .stamp = step_stamp(b->step),
        .slot = flight_slot(b->step),
    };
}

/* With fixed shares the sums begin anew with each micro-batch: each share adds whole units to the
 * control vector, so the sums over shares do not depend on which rank computed a share.  The number
 * of losses that are not finite is not cleared, because the step's result contains it. */
static int clear_metrics(struct stepper *t, struct err *err)
{
    return backend_zero(t->backend, t->buffers->numbers->metrics, sizeof(double) * METRIC_NONFINITE,
                        err);
}

/* Send the micro-batch's scalars.  With the first micro-batch of a step also send the zeros in
 * front of them (struct step_numbers), so that the step's sums begin at zero. */
int step_send_scalars(struct stepper *t, const struct batch *b, struct err *err)
{
    struct step_numbers *from = &t->buffers->sent[t->n_sent++ % BUFFERS_SENT];
    struct step_numbers *to = t->buffers->numbers;

    step_scalars(t, b, &from->scalars);
    from->scalars.after = t->queued->after;
    if (b->micro > 0 && t->sampler->n_shares > 0 && clear_metrics(t, err) < 0)
        return err->code;
    if (b->micro == 0)
        return backend_put(t->backend, LANE_MAIN, to, from, STEP_NUMBERS_SENT, err);
    return backend_put(t->backend, LANE_MAIN, &to->scalars, &from->scalars, STEP_SCALARS_SENT, err);
}

/* ---- a micro-batch ---- */

/* The key of the micro-batch's recording.  A rank's share is as large as the first rank's or as the
 * last rank's; n_global determines which.  Shares by speed (train/balance.h) differ more, and
 * n_global and the number of the micro-batch determine them as long as recordings live.  So they do
 * with fixed shares; there a rank may have more micro-batches than another, but each rank's last
 * one, which alone has collectives, comes once in a step. */
static struct tape_key step_key_of(const struct stepper *t, const struct batch *b)
{
    const struct sampler_step at = sampler_at(t->sampler, b->step);
    const int n = (int)t->job->train.accumulate, n_ranks = coll_size(t->coll);
    struct tape_key key = {.training = 1,
                           .n_global = b->n_global,
                           .first = b->micro == 0,
                           .last = b->micro == step_n_micros(t, &at) - 1,
                           .is_watched = watch_holds_up(&t->watch),
                           .variant = reducer_variant(t->reducer)};

    key.micro = t->sampler->bound || t->sampler->n_shares > 0 ? (int)b->micro : 0;
    if (t->sampler->n_shares > 0)
        return key;
    key.most = sampler_micro(&at, n_ranks, 0, n, b->micro).n;
    key.least = sampler_micro(&at, n_ranks, n_ranks - 1, n, b->micro).n;
    return key;
}

int step_load(struct stepper *t, int64_t micro, struct micro *out, struct err *err)
{
    const int64_t traced_ns = spans_begin();
    int rc = 0;

    step_at_stage(t, PHASE_LOAD, -1);
    if (t->is_batch_held)
        feed_again(t->feed, &out->batch);
    else
        rc = feed_next(t->feed, &out->batch, err);
    t->is_batch_held = 0;
    spans_end(traced_ns, "wait for data", "wait");
    ASSERT(rc <= 0); /* > 0 is the end, but the loader was given exactly the steps asked for */
    if (rc < 0)
        return err_wrap(err, "training data");
    ASSERT(out->batch.step == t->queued->step && out->batch.micro == micro);
    out->program = programs_find(t->programs, 1, out->batch.n);
    out->key = step_key_of(t, &out->batch);
    return 0;
}

/* With several micro-batches, gradients are added to sums that begin at zero, and running
 * statistics are updated in a copy of the state's. */
int step_begin_sums(struct stepper *t, const struct micro *m, struct err *err)
{
    struct buffers *b = t->buffers;
    int rc = 0;

    if (m->key.first && b->sum)
        rc = backend_zero(t->backend, b->sum, sizeof(float) * (size_t)t->layout->n_trained, err);
    if (rc < 0 || !m->key.first || !b->accumulates || !t->layout->n_state_total)
        return rc;
    return backend_copy(t->backend, b->work, state_data(t->state, &slot_statistics),
                        sizeof(float) * (size_t)t->layout->n_state_total, err);
}

/* If gradients are divided, a device moves out the sums of all buckets before the micro-batch ends,
 * because a recording cannot wait for collectives that another recording started. */
static int release_buckets(struct stepper *t, struct err *err)
{
    const int releases =
        backend_queues(t->backend) && reducer_promises(t->reducer)->gradients_are_divided;
    int rc = 0;

    for (int b = 0; releases && b < t->layout->n_buckets && rc == 0; b++)
        rc = reducer_release(t->reducer, b, err);
    return rc;
}

/* Between micro-batches: carry the running statistics over to the next micro-batch.  With fixed
 * shares the strategy has taken them. */
int step_carry(struct stepper *t, struct err *err)
{
    struct buffers *b = t->buffers;

    if (release_buckets(t, err) < 0)
        return err->code;
    if (!b->accumulates || !t->layout->n_state_total)
        return 0;
    return backend_copy(t->backend, b->work, b->shadow,
                        sizeof(float) * (size_t)t->layout->n_state_total, err);
}

/* The gradients in this bucket are complete, and in the last one the control vector, too: those of
 * the step, or with fixed shares those of a micro-batch.  Hand the bucket to the strategy. */
static int complete_bucket(struct stepper *t, int bucket, struct err *err)
{
    int rc = 0;

    if (t->buffers->sum)
        rc = update_round(t->update, bucket, err);
    if (rc == 0 && bucket == t->layout->n_buckets - 1)
        rc = update_pack(t->update, err);
    t->next_bucket = bucket + 1;
    if (rc < 0 || watch_filled(&t->watch, bucket, err) < 0 ||
        reducer_bucket(t->reducer, bucket, err) < 0)
        return err->code;
    return watch_handed(&t->watch, bucket, reducer_exchange(t->reducer), err);
}

static int complete_traced(struct stepper *t, int bucket, struct err *err)
{
    const int64_t traced_ns = spans_begin();
    const int rc = complete_bucket(t, bucket, err);

    spans_end_at(traced_ns, "hand over a bucket", "bucket", bucket);
    return rc;
}

/* Before a stage writes gradients of further buckets, have the strategy move out the sums of those
 * buckets that used the same memory. */
int step_open_buckets(struct stepper *t, const struct stage *s, struct err *err)
{
    int rc = 0;

    for (; t->n_opened <= s->last_bucket && rc == 0; t->n_opened++)
        for (int b = 0; b < t->layout->n_buckets && rc == 0; b++)
            if (buffers_overlap(t->buffers, t->layout, b, t->n_opened))
                rc = reducer_release(t->reducer, b, err);
    return rc;
}

static int run_stage(struct stepper *t, const struct micro *m, int i, struct err *err)
{
    const struct stage *s = program_stage(m->program, i);
    const int is_divided = reducer_promises(t->reducer)->gradients_are_divided;

    step_at_stage(t, s->backward ? PHASE_BACKWARD : PHASE_FORWARD,
                  s->backward && m->key.last ? t->next_bucket : -1);
    if (s->backward && m->key.last)
        faults_reach(t->faults, INJECTION_AT_BACKWARD, t->queued->step);
    if (is_divided && step_open_buckets(t, s, err) < 0)
        return err->code;
    if (s->backward && m->key.last && watch_backward(&t->watch, err) < 0)
        return err->code;
    return sights_is_due(t, t->queued->step) ? sights_run_stage(t, m->program, i, err)
                                             : program_run_stage(m->program, i, err);
}

/* The BUCKET stage of a micro-batch: its gradients in this bucket are complete. */
static int end_bucket(struct stepper *t, const struct micro *m, int bucket, struct err *err)
{
    const int is_divided = reducer_promises(t->reducer)->gradients_are_divided;

    step_at_stage(t, PHASE_BACKWARD, m->key.last ? bucket : -1);
    if (is_divided && buffers_clear_padding(t->buffers, t->layout, bucket, err) < 0)
        return err->code;
    if (m->key.last || t->sampler->n_shares > 0)
        return complete_traced(t, bucket, err);
    return is_divided ? reducer_hand_over(t->reducer, bucket, err) : 0;
}

int step_gather(struct stepper *t, const struct program *p, int set, struct err *err)
{
    int n, n_next = 0, rc = 0;
    const int *bucket = program_set(p, set, &n), *next = NULL;

    for (int i = 0; i < n && set == 0 && rc == 0; i++)
        rc = reducer_gather(t->reducer, bucket[i], err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = reducer_gathered(t->reducer, bucket[i], err);
    if (set + 1 < program_n_sets(p))
        next = program_set(p, set + 1, &n_next);
    for (int i = 0; i < n_next && rc == 0; i++) {
        int is_here = 0;

        for (int k = 0; k < n; k++)
            is_here |= bucket[k] == next[i];
        if (!is_here)
            rc = reducer_gather(t->reducer, next[i], err);
    }
    return rc;
}

static int queue_stage(struct stepper *t, const struct micro *m, int i, struct err *err)
{
    const struct stage *s = program_stage(m->program, i);

    switch (s->kind) {
    case STAGE_RUN:
        return run_stage(t, m, i, err);
    case STAGE_SYNC:
        return reducer_sum(t->reducer, s, err);
    case STAGE_BUCKET:
        return end_bucket(t, m, s->bucket, err);
    case STAGE_GATHER:
        return step_gather(t, m->program, s->set, err);
    }
    return 0;
}

static int queue_stages(struct stepper *t, const struct micro *m, struct err *err)
{
    int rc = 0;

    t->n_opened = 0;
    for (int i = 0; i < program_n_stages(m->program) && rc == 0; i++)
        rc = queue_stage(t, m, i, err);
    return rc;
}

/* ---- a step ---- */

static int step_begin_first(struct stepper *t, struct flight *f, struct err *err)
{
    int rc;

    t->queued = f;
    t->watch.began_ns = 0;
    if (t->state->shards)
        t->state->shards->prepared_step = -1;
    step_at_stage(t, PHASE_LOAD, -1); /* a rank that a fault holds up is seen in this step */
    faults_reach(t->faults, INJECTION_AT_STEP, f->step);
    sights_open(t);
    flip_warn_missing(t);
    rc = reducer_begin(t->reducer, f->step, updates_before(t, f->step), err);
    return rc > 0 ? update_refresh(t->update, err) : rc;
}

/* This rank has all sums of gradients of the step: the step is prepared (state/shards.h).  That is
 * noted in the backend's memory, where flight.c reads it if the step breaks off. */
static int step_note_prepared(struct stepper *t, struct err *err)
{
    struct step_numbers *n = t->buffers->numbers;
    int rc = backend_copy(t->backend, &n->summed.is_void, &t->buffers->control[CONTROL_VOID],
                          sizeof n->summed.is_void, err);
    return rc == 0 ? backend_copy(t->backend, &n->summed.stamp, &n->scalars.stamp,
                                  sizeof n->summed.stamp, err)
                   : rc;
}

/* Check the gradients of this rank's own shard, and sum the checks over all ranks.  The sum also
 * proves to a rank that all other ranks have their sums of gradients.  So the step is noted as
 * prepared before this wait. */
static int sum_checks(struct stepper *t, struct err *err)
{
    int rc = update_check(t->update, err);

    if (rc == 0)
        rc = step_note_prepared(t, err);
    return rc == 0 ? reducer_sum_check(t->reducer, t->buffers->numbers->check, err) : rc;
}

/* The sums of all ranks are there: leave the update out if the loss is above the limit.  The host
 * cannot do that on a device, which goes on to the update by itself. */
static void step_mark_spike(struct stepper *t)
{
    float *control = t->buffers->control;
    const double limit = backend_queues(t->backend) ? HUGE_VAL : t->hooks.loss_limit(t->hooks.arg);
    struct control c;

    if (limit == HUGE_VAL)
        return;
    control_read(control, &c);
    control[CONTROL_SPIKE] =
        control_mean_loss(c.loss, control_weight_kept(c.weight)) > limit ? 1.0f : 0.0f;
}

static int wait_for_strategy(struct stepper *t, struct err *err)
{
    int64_t traced_ns;
    int rc;

    faults_reach(t->faults, INJECTION_AT_REDUCE, t->queued->step);
    traced_ns = spans_begin();
    rc = reducer_finish(t->reducer, err);
    spans_end(traced_ns, "wait for all-reduces", "wait");
    if (rc == 0)
        step_mark_spike(t);
    return rc == 0 && t->state->shards ? sum_checks(t, err) : rc;
}

int step_update(struct stepper *t, struct err *err)
{
    const int rc = update_apply(t->update, err);

    return rc == 0 && t->average ? average_update(t->average, err) : rc;
}

/* Queue the update.  Its last kernel writes the step's result for flight.c.  The average follows at
 * once: the step counts from here on, even if an exchange of parameters fails. */
static int step_queue_update(struct stepper *t, struct err *err)
{
    int64_t traced_ns;
    int rc;

    step_at_stage(t, PHASE_UPDATE, -1);
    faults_reach(t->faults, INJECTION_AT_UPDATE, t->queued->step);
    t->hooks.updates(t->hooks.arg);
    traced_ns = spans_begin();
    rc = step_update(t, err);
    spans_end(traced_ns, "update", "update");
    return rc;
}

/* After the update.  With shards the other ranks' parameters have come, so all working copies are
 * made anew, unless the parameters are still on their way: then the strategy makes the copies.
 * They are made anew, too, if the strategy changed the new weights. */
static int step_updated(struct stepper *t, struct err *err)
{
    int rc = reducer_updated(t->reducer, err);

    if (rc > 0 || (rc == 0 && t->state->shards && !t->layout->awaits_params))
        rc = update_refresh(t->update, err);
    return rc;
}

/* All buckets of the step have been handed to the strategy. */
int step_conclude(struct stepper *t, struct err *err)
{
    int rc = wait_for_strategy(t, err);

    if (rc == 0) {
        step_hash_sums(t);
        rc = step_queue_update(t, err);
    }
    if (rc == 0)
        rc = step_updated(t, err);
    return rc == 0 ? flip_state(t, err) : rc;
}

static int repeat_traced(struct stepper *t, struct err *err)
{
    const int64_t traced_ns = spans_begin();
    const int rc = tapes_repeat(t->tapes, err);

    spans_end(traced_ns, "recorded step", "launch");
    return rc;
}

/* A step whose tensors are listed is neither recorded nor repeated. */
static int begin_tape(struct stepper *t, struct tape_key key, struct err *err)
{
    return sights_is_due(t, t->queued->step) ? TAPE_QUEUE : tapes_begin(t->tapes, key, err);
}

static int end_tape(struct stepper *t, int rc, struct err *err)
{
    return sights_is_due(t, t->queued->step) ? rc : tapes_end(t->tapes, rc, err);
}

/* The parts of a step, in order.  The work between tapes_begin and tapes_end is the same in every
 * step, and is recorded where that is possible. */
static int queue_parts(struct stepper *t, const struct flight *f, struct err *err)
{
    const struct sampler_step step = sampler_at(t->sampler, f->step);
    struct micro m;
    int rc = 0;

    for (int i = 0, n = step_n_micros(t, &step); i < n && rc == 0; i++) {
        t->next_bucket = 0;
        if (step_load(t, i, &m, err) < 0 ||            /* the samples, from the loader's threads */
            step_send_scalars(t, &m.batch, err) < 0 || /* seed, rate, requests ... of this step */
            feed_put(t->feed, m.program, err) < 0 ||
            (i == 0 && flip_batch(t, m.program, err) < 0) || (rc = begin_tape(t, m.key, err)) < 0) {
            rc = err->code;
            break;
        }
        if (rc == TAPE_RECORDED) {
            rc = repeat_traced(t, err);
            continue;
        }
        sights_begin(t, &m.batch);
        rc = step_begin_sums(t, &m, err);
        if (rc == 0)
            rc = reducer_micro_begin(t->reducer, m.key.first, m.key.last, err);
        if (rc == 0)
            rc = feed_gather(t->feed, m.program, err);
        if (rc == 0)
            rc = queue_stages(t, &m, err); /* forward, backward; full buckets to the strategy */
        if (rc == 0 && !m.key.last)
            rc = step_carry(t, err); /* to the next micro-batch */
        else if (rc == 0)
            rc = step_conclude(t, err);
        rc = end_tape(t, rc, err);
    }
    return rc;
}

int step_queue(struct stepper *t, struct flight *f, struct err *err)
{
    const int rc = step_begin_first(t, f, err);

    if (rc < 0)
        return rc;
    return witness_is_due(t, f->step) ? witness_step(t, err) : queue_parts(t, f, err);
}

/* ---- beside the steps ---- */

int step_allgather(struct stepper *t, enum phase phase, const void *mine, size_t n_bytes, void *all,
                   struct err *err)
{
    const int64_t id = ring_hand(t->ring, t->state->at.step, RING_STATE, (int64_t)n_bytes, phase,
                                 RING_OF_ALLGATHER);
    int rc;

    ring_run(t->ring, id, clock_mono_ns());
    rc = coll_allgather(t->coll, mine, n_bytes, all, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    return rc;
}
