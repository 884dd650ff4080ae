/* Results: what the ranks' answers to validation add up to, and the events that tell of epochs and
 * checkpoints. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- validation ---- */

/* Sums over the whole validation set, of all ranks. */
struct seen {
    double loss_sum, average_loss_sum, weight;
    int64_t n_correct, n_samples, n_targets, n_nonfinite, n_top5;
    int64_t average_n_correct, average_n_nonfinite, average_n_top5;
};

/* Add up the ranks' sums, in rank order, so that the rounding is always the same. */
static struct seen sum_validated(const struct driver *d)
{
    struct seen s = {.loss_sum = 0};
    ASSERT(d->formation.n_answers == d->membership.n_ranks);
    for (int k = 0; k < d->membership.n_ranks; k++) {
        const struct report *r = d->seats[k].answer;
        s.loss_sum += r->validated.loss_sum;
        s.n_correct += r->validated.n_correct;
        s.n_samples += r->validated.n_samples;
        s.n_targets += r->validated.n_targets;
        s.n_nonfinite += r->validated.n_nonfinite;
        s.average_loss_sum += r->validated.average_loss_sum;
        s.average_n_correct += r->validated.average_n_correct;
        s.average_n_nonfinite += r->validated.average_n_nonfinite;
        s.weight += r->validated.weight;
        s.n_top5 += r->validated.n_top5;
        s.average_n_top5 += r->validated.average_n_top5;
    }
    return s;
}

/* The mean is undefined where nothing counted.  0 / 0 would print as -nan. */
static double mean_of(double sum, double weight) { return weight > 0 ? sum / weight : (double)NAN; }

/* The loss is a number only if that of every target is. */
static double results_loss_of(double sum, int64_t n_nonfinite, double weight)
{
    return n_nonfinite > 0 ? (double)NAN : mean_of(sum, weight);
}

/* Without a target that counts, loss and accuracy are undefined. */
static void warn_no_targets(const struct driver *d, const struct seen *s)
{
    if (s->n_targets == 0 && !d->seats[0].answer->validated.is_unlabelled)
        queue_log(d->out, LOG_WARN,
                  "validation: all labels are ignored, so loss and accuracy are undefined; want "
                  "labels other than train.ignore_index");
}

/* Validation gave losses that are not finite, with the trained weights if `which` is "".  The first
 * rank that found one of its samples to blame says which. */
static void warn_nonfinite(const struct driver *d, const char *which, int64_t n, int64_t n_targets)
{
    int k = 0;
    if (n == 0)
        return;
    while (k < d->membership.n_ranks - 1 && !d->seats[k].answer->validated.note)
        k++;
    const char *note = *which ? NULL : d->seats[k].answer->validated.note;
    char *who = driver_label(d, k),
         *text = xasprintf("validation: the loss of %lld of %lld targets is not finite%s%s%s%s%s",
                           (long long)n, (long long)n_targets, which, note ? ": " : "",
                           note ? who : "", note ? ": " : "", note ? note : "");
    queue_log(d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){
                        .kind = EVENT_WARNING, .rank = -1, .phase = PHASE_COUNT, .text = text});
    free(who);
}

/* Note the validation's results in run.last, for an epoch or for an evaluation. */
static void note_validation(struct run *r, const struct seen *s)
{
    const struct driver *d = r->d;
    struct session_epoch *e = &r->last;
    const int is_regression = d->seats[0].opened->opened.is_regression;
    const double n = (double)s->n_targets;
    if (d->o.evaluate)
        *e = (struct session_epoch){.epoch = r->epoch,
                                    .step = r->step,
                                    .n_samples = s->n_samples,
                                    .n_targets = s->n_targets};
    e->is_validated = 1;
    e->validation_loss = results_loss_of(s->loss_sum, s->n_nonfinite, s->weight);
    e->validation_accuracy = is_regression ? NOT_MEASURED : mean_of((double)s->n_correct, n);
    e->has_top5 = d->seats[0].answer->validated.has_top5;
    e->validation_top5 = mean_of((double)s->n_top5, n);
    e->is_unlabelled = d->seats[0].answer->validated.is_unlabelled;
    if (d->seats[0].answer->validated.figures) {
        free(r->figures);
        r->figures = xstrdup(d->seats[0].answer->validated.figures);
    }
    e->figures = r->figures;
    warn_no_targets(d, s);
    warn_nonfinite(d, "", s->n_nonfinite, s->n_targets);
    e->has_average = d->seats[0].answer->validated.has_average;
    if (!e->has_average)
        return;
    e->average_validation_loss =
        results_loss_of(s->average_loss_sum, s->average_n_nonfinite, s->weight);
    e->average_validation_top5 = mean_of((double)s->average_n_top5, n);
    e->average_validation_accuracy =
        is_regression ? NOT_MEASURED : mean_of((double)s->average_n_correct, n);
    warn_nonfinite(d, ", with averaged weights", s->average_n_nonfinite, s->n_targets);
}

struct decision run_note_validation(struct run *r)
{
    const struct driver *d = r->d;
    const struct seen s = sum_validated(d);
    int64_t want = d->seats[0].opened->opened.n_validation;
    if (s.n_samples != want)
        return decide_accuse(
            (struct cause){
                .rank = 0, .code = ERR_NUMERIC, .phase = PHASE_VALIDATE, .step = r->step},
            "validation saw %lld samples, the set has %lld", (long long)s.n_samples,
            (long long)want);
    note_validation(r, &s);
    return decide(DECIDE_NOTHING);
}

/* ---- epochs ---- */

void run_say_epoch(struct run *r)
{
    if (r->last.epoch == 0 || r->is_last_said)
        return;
    r->is_last_said = 1;
    driver_event(r->d, &(struct session_event){.kind = EVENT_EPOCH,
                                               .rank = -1,
                                               .step = r->last.step,
                                               .phase = PHASE_COUNT,
                                               .epoch = r->last});
}

/* ---- checkpoints ---- */

static void checkpoint_failed(const struct driver *d, const struct report *r)
{
    char *text = xasprintf("the checkpoint of step %lld could not be written: %s",
                           (long long)r->checkpoint.step, r->checkpoint.error);
    ASSERT(r->checkpoint.error);
    queue_log(d->out, LOG_ERROR, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_ERROR,
                                            .step = r->checkpoint.step,
                                            .phase = PHASE_CHECKPOINT,
                                            .text = text});
}

void run_note_checkpoint(struct run *r, const struct report *c)
{
    ASSERT(c->kind == REPORT_CHECKPOINT);
    if (c->checkpoint.error || c->checkpoint.path) /* else it was written before */
        r->is_dir_gone = c->checkpoint.error && c->checkpoint.is_gone;
    if (c->checkpoint.error) {
        checkpoint_failed(r->d, c);
    } else if (c->checkpoint.path) {
        r->saved_step = c->checkpoint.step;
        free(r->saved_path);
        r->saved_path = xstrdup(c->checkpoint.path);
        driver_event(r->d, &(struct session_event){.kind = EVENT_CHECKPOINT,
                                                   .step = c->checkpoint.step,
                                                   .phase = PHASE_COUNT,
                                                   .text = xstrdup(c->checkpoint.path),
                                                   .checkpoint = {c->checkpoint.seconds,
                                                                  c->checkpoint.exposed_seconds}});
    }
}
