/* validate - trainer_validate and trainer_predict: a pass of the validation set, with the trained
 * weights and then with the averaged ones, and what state/loop.c decides by its metrics. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "judge/confusion.h"
#include "judge/predict.h"
#include "train/trainer_impl.h"

static int queue_pass(struct trainer *t, struct program *p, struct err *err)
{
    int rc = feed_gather(t->valid_feed, p, err);

    for (int i = 0; i < program_n_stages(p) && rc == 0; i++)
        rc = program_stage(p, i)->kind == STAGE_GATHER
                 ? step_gather(&t->step, p, program_stage(p, i)->set, err)
                 : program_run_stage(p, i, err);
    return rc;
}

/* Queue a pass that gathers parameters, and wait for it, so that the record of collectives never
 * has more than those of one pass that have not ended.  p: the pass' program.  has_batch 0: this
 * rank has no batch, and only gathers.
 *
 * Such a pass is not recorded: the ranks' batches differ, but all ranks must do a collective in the
 * same way (coll/device.h). */
static int run_gathering(struct trainer *t, struct program *p, int has_batch, struct err *err)
{
    struct exchange *x = reducer_exchange(t->step.reducer);
    struct handed handed;
    int rc = 0;

    reducer_validate(t->step.reducer);
    if (has_batch)
        rc = queue_pass(t, p, err);
    for (int i = 0; !has_batch && i < program_n_sets(p) && rc == 0; i++)
        rc = step_gather(&t->step, p, i, err);
    handed = reducer_end(t->step.reducer);
    exchange_ran(x, handed);
    if (rc == 0)
        rc = step_wait(&t->step, err);
    exchange_ended(x, handed, rc < 0);
    return rc;
}

/* If parameters are divided, all ranks must gather them equally often.  Rank 0 has the most
 * batches, so another rank takes part in the rest without a batch.  n_passes: this rank's batches.
 */
static int pass_idly(struct trainer *t, struct predict *p, int64_t n_passes, struct err *err)
{
    const struct span all = {0, t->valid_set->n_samples};
    const int64_t unit = programs_validation_unit(t->step.programs);
    const int64_t most = span_part_of_pieces(all, unit, t->n_ranks, 0).n;
    int64_t n = ceil_div_i64(most, programs_validation_batch(t->step.programs)) - n_passes;
    int rc = 0;

    for (; t->layout->gathers && n > 0 && rc == 0; n--) {
        rc = run_gathering(t, programs_find(t->step.programs, 0, 0), 0, err);
        if (rc == 0 && p)
            rc = predict_idle(p, err);
    }
    return rc;
}

static int validate_run_pass(struct trainer *t, struct program *p, int64_t n, struct err *err)
{
    const struct tape_key key = {.most = n, .least = n};
    int rc;

    if (t->layout->gathers)
        return run_gathering(t, p, 1, err);
    rc = tapes_begin(t->step.tapes, key, err);
    if (rc == TAPE_QUEUE)
        return tapes_end(t->step.tapes, queue_pass(t, p, err), err);
    return rc == TAPE_RECORDED ? tapes_repeat(t->step.tapes, err) : rc;
}

/* counts: of the confusions; NULL: they are not counted. */
static int validate_batch(struct trainer *t, const struct batch *b, struct confusion *counts,
                          struct err *err)
{
    struct program *p = programs_find(t->step.programs, 0, b->n);
    int rc = feed_put(t->valid_feed, p, err);

    if (rc == 0)
        rc = validate_run_pass(t, p, b->n, err);
    if (rc == 0 && counts)
        rc = confusion_batch(counts, p, err);
    if (rc == 0)
        feed_ahead(t->valid_feed);
    return rc;
}

/* The sum of losses, in the backend's memory. */
static double *loss_sum(struct trainer *t)
{
    return &t->step.buffers->numbers->metrics[METRIC_LOSS_SUM];
}

/* With fixed shares each batch adds a whole number of units of 2^-24 to the sum of losses, so that
 * the sum does not depend on which rank validates which batches.  Waits for a device. */
static int take_loss(struct trainer *t, double *to, struct err *err)
{
    double sum = 0;

    if (step_wait(&t->step, err) < 0 ||
        backend_copy_out(t->backend, &sum, loss_sum(t), sizeof sum, err) < 0)
        return err->code;
    *to += rint(sum * 0x1p24) * 0x1p-24;
    return backend_zero(t->backend, loss_sum(t), sizeof sum, err);
}

/* The uses of the logits; NULL: there is no such use. */
struct uses {
    struct predict *predict;  /* gathers each batch's */
    struct confusion *counts; /* counts each batch's predictions */
};

/* Validate this rank's part of the set. */
static int validate_all(struct trainer *t, const struct uses *uses, int64_t *n_samples,
                        struct err *err)
{
    struct predict *p = uses->predict;
    struct batch b;
    double loss = 0;
    int64_t n_passes = 0;
    int rc = feed_start_pass(t->valid_feed, programs_validation_batch(t->step.programs),
                             programs_validation_unit(t->step.programs), t->n_ranks, t->rank, err);

    while (rc == 0) {
        if (t->hooks.canceled(t->hooks.arg))
            return err_set(err, ERR_CANCELED, "validation was canceled");
        rc = feed_next(t->valid_feed, &b, err);
        if (rc == 0)
            rc = validate_batch(t, &b, uses->counts, err);
        if (rc == 0 && t->shares.n > 0)
            rc = take_loss(t, &loss, err);
        if (rc == 0)
            *n_samples += b.n;
        n_passes += rc == 0;
        if (rc == 0 && p)
            rc = predict_batch(p, programs_find(t->step.programs, 0, b.n), err);
    }
    if (rc > 0 && t->shares.n > 0 &&
        backend_copy_in(t->backend, loss_sum(t), &loss, sizeof loss, err) < 0)
        rc = err->code;
    if (rc > 0 && pass_idly(t, p, n_passes, err) < 0)
        rc = err->code;
    if (rc > 0 && p)
        rc = predict_end(p, err);
    return rc < 0 ? err_wrap(err, "validation") : step_wait(&t->step, err);
}

/* Sums over a part of the validation set, with the trained weights and with the averaged ones. */
struct seen {
    double trained[METRIC_COUNT], average[METRIC_COUNT];
};

enum { N_SEEN = sizeof(struct seen) / sizeof(double) };

/* Add up all ranks' metrics, in rank order as the driver does, so every rank gets the same sum. */
static int sum_metrics(struct trainer *t, const struct seen *mine, struct seen *sum,
                       struct err *err)
{
    double *all = xcalloc((size_t)t->n_ranks, sizeof *mine), *to = sum->trained;
    const int rc = step_allgather(&t->step, PHASE_VALIDATE, mine, sizeof *mine, all, err);

    for (int k = 0; k < t->n_ranks; k++)
        for (int i = 0; i < N_SEEN; i++)
            to[i] += all[k * N_SEEN + i];
    free(all);
    return rc < 0 ? err_wrap(err, "adding up the validation") : 0;
}

static double validate_loss_of(const double sum[METRIC_COUNT])
{
    return sum[METRIC_NONFINITE] > 0 ? NAN : sum[METRIC_LOSS_SUM] / sum[METRIC_WEIGHT];
}

static int validate_decide(struct trainer *t, const struct seen *mine, struct report *done,
                           struct err *err)
{
    struct seen sum = {{0}};
    struct validated v;
    int rc;

    if (!loop_is_wanted(t->job))
        return 0;
    rc = sum_metrics(t, mine, &sum, err);
    v.loss = validate_loss_of(sum.trained);
    v.accuracy = sum.trained[METRIC_CORRECT] / sum.trained[METRIC_TARGETS];
    v.top5 = sum.trained[METRIC_TOP5] / sum.trained[METRIC_TARGETS];
    v.average_loss = validate_loss_of(sum.average);
    v.average_accuracy = sum.average[METRIC_CORRECT] / sum.average[METRIC_TARGETS];
    v.average_top5 = sum.average[METRIC_TOP5] / sum.average[METRIC_TARGETS];
    if (rc == 0)
        rc = loop_decide(&t->loop, t->job, t->state, &v, err);
    done->validated.is_best = loop_is_best(&t->loop, t->state->at.step);
    done->validated.is_kept = loop_keeps(&t->loop, t->state->at.step);
    done->validated.stops_early = loop_stops(&t->loop, t->job);
    return rc;
}

/* Validate the weights that are now in the memory of the parameters: trained or averaged ones. */
static int validate_weights(struct trainer *t, const struct uses *uses, int64_t *n_samples,
                            double metrics[METRIC_COUNT], struct err *err)
{
    const size_t n_bytes = METRIC_COUNT * sizeof *metrics;
    int rc = backend_zero(t->backend, t->step.buffers->numbers->metrics, n_bytes, err);

    if (rc == 0)
        rc = validate_all(t, uses, n_samples, err);
    return rc == 0 ? backend_copy_out(t->backend, metrics, t->step.buffers->numbers->metrics,
                                      n_bytes, err)
                   : rc;
}

static int validate_entered(struct trainer *t, void *metrics, struct err *err)
{
    int64_t n_samples = 0;

    return validate_weights(t, &(struct uses){NULL, NULL}, &n_samples, metrics, err);
}

/* Validate the averaged weights. */
static int validate_average(struct trainer *t, double metrics[METRIC_COUNT], struct err *err)
{
    const int rc = trainer_with_average(t, 1, validate_entered, metrics, err);

    return rc < 0 ? err_wrap(err, "averaged weights") : rc;
}

static void fill_validated(const struct trainer *t, const struct seen *seen, struct report *done)
{
    done->validated.loss_sum = seen->trained[METRIC_LOSS_SUM];
    done->validated.n_correct = llrint(seen->trained[METRIC_CORRECT]);
    done->validated.n_targets = llrint(seen->trained[METRIC_TARGETS]);
    done->validated.n_nonfinite = llrint(seen->trained[METRIC_NONFINITE]);
    done->validated.weight = seen->trained[METRIC_WEIGHT];
    done->validated.has_top5 = t->counts_top5;
    done->validated.n_top5 = llrint(seen->trained[METRIC_TOP5]);
    done->validated.has_average = t->step.average != NULL;
    done->validated.average_loss_sum = seen->average[METRIC_LOSS_SUM];
    done->validated.average_n_correct = llrint(seen->average[METRIC_CORRECT]);
    done->validated.average_n_nonfinite = llrint(seen->average[METRIC_NONFINITE]);
    done->validated.average_n_top5 = llrint(seen->average[METRIC_TOP5]);
}

/* The use of the logits: none; rank 0 judges them if it can; it also writes them. */
enum use { USE_NONE, USE_JUDGE, USE_WRITE };

static int train_validate(struct trainer *t, int64_t epoch, enum use use, struct report *done,
                          struct err *err)
{
    struct uses uses = {NULL, NULL};
    struct seen seen = {{0}};
    int rc = 0;

    t->hooks.at(t->hooks.arg, PHASE_VALIDATE, epoch, t->state->at.step, -1);
    faults_reach(t->o.faults, INJECTION_AT_VALIDATE, epoch);
    done->validated.epoch = epoch;
    if (!t->valid_set)
        return 0;
    reducer_validate(t->step.reducer);
    if (use != USE_NONE)
        rc = predict_begin(&t->outputs, use == USE_WRITE, t->predictions, &uses.predict, err);
    else
        rc = confusion_begin(&t->outputs, &uses.counts, err);
    if (rc == 0)
        rc = validate_weights(t, &uses, &done->validated.n_samples, seen.trained, err);
    if (rc == 0 && uses.predict)
        done->validated.figures = predict_figures(uses.predict);
    if (rc == 0 && uses.counts)
        rc = confusion_end(uses.counts, &done->validated.figures, err);
    done->validated.is_unlabelled = t->valid_set->has_no_labels;
    predict_free(uses.predict);
    confusion_free(uses.counts);
    if (rc == 0 && seen.trained[METRIC_NONFINITE] > 0 && use != USE_WRITE)
        rc = explain_validation(t, &done->validated.note, err);
    if (rc == 0 && t->step.average)
        rc = validate_average(t, seen.average, err);
    if (rc < 0)
        return rc;
    fill_validated(t, &seen, done);
    return validate_decide(t, &seen, done, err);
}

int trainer_validate(struct trainer *t, int64_t epoch, struct report *done, struct err *err)
{
    return train_validate(t, epoch, USE_NONE, done, err);
}

int trainer_predict(struct trainer *t, int64_t epoch, struct report *done, struct err *err)
{
    return train_validate(t, epoch, USE_WRITE, done, err);
}

int trainer_judge(struct trainer *t, int64_t epoch, struct report *done, struct err *err)
{
    return train_validate(t, epoch, USE_JUDGE, done, err);
}
