/* One global step.
 *
 * Happy path: for each micro-batch, take it from the loader, copy it in, run the program's stages;
 * with the last micro-batch each bucket's all-reduce is handed to the comm thread as soon as
 * backward has filled it, and the last bucket carries the control vector.  Then wait for all, run
 * the update, and read what all ranks agreed on.
 *
 * Failure modes: a collective fails (a rank left, abort): nothing has been applied, the state is
 * that of the step before; the caller forms again.  Something is not finite: the update does not
 * apply it, on any rank, because all read the same reduced bytes; this rank notes where it saw it
 * first. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "train/flip.h"
#include "train/trainer_impl.h"

static void at(struct trainer *t, enum phase phase, int64_t epoch, int64_t bucket)
{
    t->hooks.at(t->hooks.arg, phase, epoch, t->state->at.step, bucket);
}

static int clear_metrics(struct trainer *t, struct err *err)
{
    static const double zero[METRIC_COUNT];

    return backend_copy_in(t->backend, t->buffers->metrics, zero, sizeof zero, err);
}

static int put_scalars(struct trainer *t, const struct batch *b, struct err *err)
{
    const struct job_train *train = &t->job->train;
    struct schedule_span span = {t->steps_per_epoch, t->total_steps, t->n_ranks};
    struct step_scalars s = {
        .seed = (uint64_t)train->seed,
        .step = (uint64_t)b->step,
        .first_position = b->first,
        .loss_scale = (float)(1.0 / (double)b->n_global),
        .rate = (float)schedule_rate(t->job, &span, b->step),
        .clip_norm = (float)train->clip_norm,
        .requests = (float)t->hooks.requests(t->hooks.arg),
        .skip_nonfinite = train->on_nonfinite == NONFINITE_SKIP,
        .first_update = t->state->at.n_updates == 0,
    };

    return backend_copy_in(t->backend, t->buffers->scalars, &s, sizeof s, err);
}

static int put_batch(struct trainer *t, struct program *p, const struct batch *b, struct err *err)
{
    int64_t sample = t->input.image[0] * t->input.image[1] * t->input.image[2];
    int rc;

    if (b->n == 0)
        return 0;
    rc = backend_copy_in(t->backend, program_x(p), b->x, sizeof(float) * (size_t)(b->n * sample),
                         err);
    if (rc == 0)
        rc = backend_copy_in(t->backend, program_labels(p), b->y, sizeof *b->y * (size_t)b->n, err);
    return rc;
}

static int64_t hand_over(struct trainer *t, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    return ring_hand(t->ring, t->state->at.step, bucket, n_bytes, phase);
}

static int reduce_bucket(struct trainer *t, int bucket, struct err *err)
{
    const struct bucket *b = &t->layout->bucket[bucket];
    int rc = 0;

    if (t->buffers->accumulates)
        rc = update_accumulate(t->update, bucket, err);
    if (rc == 0 && bucket == t->layout->n_buckets - 1)
        rc = update_pack(t->update, err);
    if (rc == 0)
        rc = flip_if_due(t, INJECTION_BUCKET, bucket, err);
    if (rc < 0)
        return rc;
    t->ticket[bucket] = coll_allreduce(
        t->coll, t->buffers->grad + b->offset, b->length, DTYPE_F32, COLL_SUM,
        hand_over(t, bucket, b->length * (int64_t)sizeof(float), PHASE_BACKWARD), err);
    t->next_bucket = bucket + 1;
    return t->ticket[bucket] < 0 ? (int)t->ticket[bucket] : 0;
}

static int reduce_now(struct trainer *t, const struct stage *s, struct err *err)
{
    int64_t id = hand_over(t, RING_SYNC, s->n_sync * (int64_t)sizeof(double),
                           s->backward ? PHASE_BACKWARD : PHASE_FORWARD);
    int64_t ticket = coll_allreduce(t->coll, s->sync, s->n_sync, DTYPE_F64, COLL_SUM, id, err);

    return ticket < 0 ? (int)ticket : coll_wait(t->coll, ticket, err);
}

static int run_stage(struct trainer *t, struct program *p, int i, const struct batch *b, int last,
                     struct err *err)
{
    const struct stage *s = program_stage(p, i);

    switch (s->kind) {
    case STAGE_RUN:
        at(t, s->backward ? PHASE_BACKWARD : PHASE_FORWARD, b->epoch,
           s->backward && last ? t->next_bucket : -1);
        return program_run_stage(p, i, err);
    case STAGE_SYNC:
        at(t, PHASE_REDUCE, b->epoch, -1);
        return reduce_now(t, s, err);
    case STAGE_BUCKET:
        at(t, PHASE_BACKWARD, b->epoch, last ? s->bucket : -1);
        return last ? reduce_bucket(t, s->bucket, err) : 0;
    }
    return 0;
}

/* Between micro-batches: the sum of gradients, and the running statistics so far. */
static int carry_micro(struct trainer *t, int micro, struct err *err)
{
    const struct layout *l = t->layout;
    struct buffers *m = t->buffers;
    int rc = 0;

    if (micro == 0)
        rc = backend_copy_in(t->backend, m->grad, m->micro, sizeof(float) * (size_t)l->n_trained,
                             err);
    for (int b = 0; b < l->n_buckets && micro > 0 && rc == 0; b++)
        rc = update_accumulate(t->update, b, err);
    if (rc == 0 && l->n_state_total)
        rc = backend_copy_in(t->backend, m->work, m->shadow,
                             sizeof(float) * (size_t)l->n_state_total, err);
    return rc;
}

static int saw_nonfinite(struct trainer *t, struct err *err)
{
    double metrics[METRIC_COUNT];

    if (backend_copy_out(t->backend, metrics, t->buffers->metrics, sizeof metrics, err) < 0)
        return err->code;
    return metrics[METRIC_NONFINITE] > 0;
}

/* While the micro-batch's inputs are still in place, name the first operator that went wrong. */
static int note_nonfinite(struct trainer *t, struct program *p, struct err *err)
{
    int rc = t->note[0] ? 0 : saw_nonfinite(t, err);

    if (rc <= 0)
        return rc;
    rc = program_find_nonfinite(p, t->note, sizeof t->note, err);
    if (rc == 0)
        snprintf(t->note, sizeof t->note, "the loss is not finite");
    return rc < 0 ? rc : 0;
}

static int run_micro(struct trainer *t, const struct batch *b, struct err *err)
{
    struct program *p = programs_find(t->programs, 1, b->n);
    int last = b->micro == t->job->train.accumulate - 1;
    int rc = put_scalars(t, b, err);

    if (rc == 0)
        rc = put_batch(t, p, b, err);
    for (int i = 0; i < program_n_stages(p) && rc == 0; i++)
        rc = run_stage(t, p, i, b, last, err);
    if (rc == 0 && !last)
        rc = carry_micro(t, b->micro, err);
    if (rc == 0)
        rc = note_nonfinite(t, p, err);
    return rc;
}

static int run_micros(struct trainer *t, int64_t *epoch, struct err *err)
{
    int rc = clear_metrics(t, err);

    if (rc == 0 && t->buffers->accumulates && t->layout->n_state_total)
        rc = backend_copy_in(t->backend, t->buffers->work, t->state->stats,
                             sizeof(float) * (size_t)t->layout->n_state_total, err);
    for (int64_t m = 0; m < t->job->train.accumulate && rc == 0; m++) {
        const struct batch *b;

        at(t, PHASE_LOAD, *epoch, -1);
        rc = loader_next(t->train_loader, &b, err);
        ASSERT(rc <= 0); /* the loader was given exactly the steps that are asked for */
        if (rc < 0)
            return err_wrap(err, "training data");
        ASSERT(b->step == t->state->at.step && b->micro == m);
        *epoch = b->epoch;
        rc = run_micro(t, b, err);
        loader_release(t->train_loader);
    }
    return rc;
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

static int read_result(struct trainer *t, struct step_result *out, struct err *err)
{
    float control[CONTROL_LEN];
    double check[2];

    if (backend_copy_out(t->backend, control, t->buffers->grad + t->layout->n_trained,
                         sizeof control, err) < 0 ||
        backend_copy_out(t->backend, check, t->buffers->check, sizeof check, err) < 0)
        return err->code;
    control_read(control, &out->control);
    out->applied = out->control.n_nonfinite == 0 && check[1] == 0;
    if (!out->applied && !t->note[0] && out->control.n_nonfinite == 0)
        snprintf(t->note, sizeof t->note,
                 "a gradient is not finite after the all-reduce, though the losses are");
    return 0;
}

static void count_time(struct trainer *t, int64_t start_ns, int64_t waited_ns)
{
    int64_t wall_ns = clock_mono_ns() - start_ns;
    struct coll_stats now;

    coll_stats(t->coll, &now);
    t->hooks.stepped(t->hooks.arg, wall_ns, max_i64(0, wall_ns - (now.wait_ns - waited_ns)));
}

int step_run(struct trainer *t, struct step_result *out, struct err *err)
{
    int64_t epoch = t->state->at.step / t->steps_per_epoch + 1, start_ns = clock_mono_ns();
    struct coll_stats before;
    int rc;

    coll_stats(t->coll, &before);
    t->note[0] = 0;
    t->next_bucket = 0;
    at(t, PHASE_LOAD, epoch, -1);
    faults_reach(t->o.faults, INJECTION_AT_STEP, t->state->at.step);
    rc = run_micros(t, &epoch, err);
    if (rc < 0)
        return rc;
    faults_reach(t->o.faults, INJECTION_AT_REDUCE, t->state->at.step);
    rc = wait_reductions(t, epoch, err);
    if (rc < 0)
        return rc;
    at(t, PHASE_UPDATE, epoch, -1);
    faults_reach(t->o.faults, INJECTION_AT_UPDATE, t->state->at.step);
    rc = update_apply(t->update, err);
    if (rc == 0)
        rc = read_result(t, out, err);
    if (rc == 0)
        count_time(t, start_ns, before.wait_ns);
    return rc;
}
