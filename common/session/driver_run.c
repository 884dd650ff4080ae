/* Training: from the first step to the last checkpoint.
 *
 * driver_form.c leads to the first step.  From there on this file decides what comes next, whenever
 * the last rank has answered a stage's command (done_form, done_train ...):
 *
 *   form -> train -> [validate] -> [checkpoint] -> train ... -> Stop
 *
 * An evaluation (driver_options.evaluate) trains nothing: form -> validate -> Stop. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- train ---- */

int run_nothing_to_do(const struct driver *d, int64_t step)
{
    return d->run.stops_early || step / d->run.steps_per_epoch >= d->o.n_epochs ||
           (d->o.max_steps > 0 && step >= d->o.max_steps);
}

/* 1: the job has trained all that it asks for. */
static int is_complete(const struct driver *d)
{
    return d->run.last.end == EPOCH_MAX_STEPS || run_nothing_to_do(d, d->run.step);
}

static void begin_epoch(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_TRAIN, d->formation.generation);
    /* The epoch was broken off after its last step, but not every rank knew that: it is to be
     * ended again. */
    int is_at_end = d->run.is_epoch_open && d->run.step == d->run.epoch * d->run.steps_per_epoch;
    if (!is_at_end)
        d->run.epoch = d->run.step / d->run.steps_per_epoch + 1;
    d->run.is_epoch_open = 1;
    c->train.epoch = d->run.epoch;
    stage_begin(d, STAGE_TRAIN, PHASE_LOAD);
    for (int k = 0; k < d->n_ranks; k++)
        d->seats[k].at.step = d->run.step;
    stage_tell_all(d, c);
}

static void stop_politely(struct driver *d)
{
    const char *how = d->o.how_to_resume;
    if (d->run.save_error)
        end_stop(d, WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
                 "stopped by %s after step %lld, and the checkpoint could not be written: %s",
                 d->ending.stop_why, (long long)d->run.step, d->run.save_error);
    else
        end_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED,
                 "stopped by %s after step %lld (epoch %lld)%s%s", d->ending.stop_why,
                 (long long)d->run.step, (long long)d->run.last.epoch, how ? "; resume with: " : "",
                 how ? how : "");
}

static void begin_validation(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_VALIDATE, d->formation.generation);
    if (d->o.evaluate) /* the epoch of the weights, computed from the steps of this job */
        d->run.epoch = max_i64(1, ceil_div_i64(d->run.step, d->run.steps_per_epoch));
    c->validate.epoch = d->run.epoch;
    c->validate.predicts = d->o.predict != NULL;
    c->validate.judges = d->o.evaluate != NULL;
    stage_begin(d, STAGE_VALIDATE, PHASE_VALIDATE);
    stage_tell_all(d, c);
}

/* Begin a checkpoint.  The engine answers the last one only when it is on disk. */
static void begin_checkpoint(struct driver *d)
{
    struct cmd *c = cmd_new(CMD_CHECKPOINT, d->formation.generation);
    c->checkpoint.step = d->run.step;
    c->checkpoint.is_last = d->run.is_saving_last = d->run.is_final || d->ending.n_stops > 0;
    stage_begin(d, STAGE_CHECKPOINT, PHASE_CHECKPOINT);
    stage_tell_all(d, c);
}

static struct session_process *list_processes(const struct driver *d)
{
    struct session_process *p = xcalloc((size_t)d->n_ranks, sizeof(*p));
    for (int k = 0; k < d->n_ranks; k++)
        p[k] = (struct session_process){d->seats[k].pid, xstrdup(d->seats[k].host)};
    return p;
}

/* The ranks that are left hold an older step than the one at which the epoch ended: with
 * strategy.zero the newest state may be lost together with some ranks.  So the epoch is trained
 * again, and decisions made at its end are void. */
static void go_back(struct driver *d)
{
    d->recovery.resume = STAGE_TRAIN;
    d->run.stops_early = d->run.is_final = 0;
    free(d->run.nonfinite);
    d->run.nonfinite = NULL;
}

void done_form(struct driver *d)
{
    int64_t step = d->seats[0].answer->formed.step;
    for (int k = 1; k < d->n_ranks; k++) {
        int64_t other = d->seats[k].answer->formed.step;
        if (other != step) {
            end_misbehaved(d, k, "it holds step %lld after forming, rank 0 step %lld",
                           (long long)other, (long long)step);
            return;
        }
    }
    if (step < d->run.step)
        go_back(d);
    d->run.step = step;
    driver_event(
        d, &(struct session_event){.kind = EVENT_FORM,
                                   .rank = -1,
                                   .step = step,
                                   .phase = PHASE_COUNT,
                                   .generation = d->formation.generation,
                                   .voters = d->succession.next,
                                   .n_ranks = d->n_ranks,
                                   .process = list_processes(d),
                                   .seconds = 1e-9 * (double)(d->now_ns - d->formation.since_ns)});
    succession_formed(d);
    lead_formed(d);
    recover_formed(d);
    if (d->o.evaluate || d->recovery.resume == STAGE_VALIDATE)
        begin_validation(d);
    else if (d->recovery.resume == STAGE_CHECKPOINT)
        begin_checkpoint(d);
    else
        begin_epoch(d);
}

/* ---- the end of an epoch ---- */

/* The rank that waited longest for its data, or the first of several such ranks. */
static int find_data_waiter(const struct driver *d)
{
    int longest = 0;
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].answer->epoch.data_wait_share >
            d->seats[longest].answer->epoch.data_wait_share)
            longest = k;
    return longest;
}

static void note_epoch(struct driver *d)
{
    const struct report *r = d->seats[0].answer;
    const int waiter = find_data_waiter(d);
    const struct report *waited = d->seats[waiter].answer;
    d->run.step = r->epoch.step;
    d->run.last = (struct session_epoch){
        .epoch = r->epoch.epoch,
        .step = r->epoch.step,
        .end = r->epoch.end,
        .train_loss = r->epoch.train_loss,
        .train_accuracy = r->epoch.train_accuracy,
        .train_seconds = r->epoch.train_seconds,
        .samples_per_second = r->epoch.samples_per_second,
        .tokens_per_second = r->epoch.tokens_per_second,
        .step_ms_median = r->epoch.step_ms_median,
        .comm_exposed_ms_median = r->epoch.comm_exposed_ms_median,
        .data_wait_rank = waiter,
        .data_wait_ms_median = waited->epoch.data_wait_ms_median,
        .data_wait_share = fmin(waited->epoch.data_wait_share, 1),
        .data_wait_cause = waited->epoch.data_wait_cause,
        .validation_loss = NOT_MEASURED,
        .validation_accuracy = NOT_MEASURED,
        .n_samples = r->epoch.n_samples,
        .n_skipped = r->epoch.n_skipped,
        .n_left_out = r->epoch.n_left_out,
        .loss_scale = r->epoch.loss_scale,
        .is_mean = r->epoch.is_mean,
    };
    d->run.is_last_said = r->epoch.step == d->lead.told_step;
    d->run.is_kept = 0;
    d->run.is_epoch_open = 0;
    for (int k = 0; k < d->n_ranks; k++) {
        const struct report *e = d->seats[k].answer;
        run_stepped(d, k, e->epoch.rss_mib);
        d->seats[k].peak_rss_mib = e->epoch.peak_rss_mib;
    }
}

/* Note which rank saw a value that is not finite, and what it saw, in the step after the last
 * applied one. */
static void note_nonfinite(struct driver *d)
{
    int k = 0;
    while (k < d->n_ranks - 1 && !d->seats[k].answer->epoch.note)
        k++;
    const char *note = d->seats[k].answer->epoch.note;
    char *who = driver_label(d, k);
    d->run.nonfinite_rank = note ? k : -1;
    d->run.nonfinite_is_of_input = note && d->seats[k].answer->epoch.is_of_input;
    d->run.nonfinite =
        note ? xasprintf("step %lld was not applied: %s: %s", (long long)d->run.step, who, note)
             : xasprintf("step %lld was not applied: the loss or a gradient is not finite",
                         (long long)d->run.step);
    free(who);
}

static int is_epoch_due(int64_t epoch, int64_t every) { return every > 0 && epoch % every == 0; }

const char *run_reason(const struct driver *d)
{
    return d->run.stops_early                                    ? "early_stop"
           : d->o.max_steps > 0 && d->run.step >= d->o.max_steps ? "max_steps"
                                                                 : "epochs";
}

static void finish_evaluation(struct driver *d)
{
    d->run.is_last_said = 1; /* it is no epoch of a run */
    end_finished(d,
                 &(struct session_event){.kind = EVENT_DONE,
                                         .rank = -1,
                                         .step = d->run.step,
                                         .phase = PHASE_COUNT,
                                         .n_ranks = d->n_ranks,
                                         .epoch = d->run.last,
                                         .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)},
                 "evaluated step %lld", (long long)d->run.step);
}

static void finish(struct driver *d)
{
    double *peak = xcalloc((size_t)d->n_ranks, sizeof(*peak));
    for (int k = 0; k < d->n_ranks; k++)
        peak[k] = d->seats[k].peak_rss_mib;
    if (d->run.save_error) {
        free(peak);
        end_stop(d, WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
                 "trained to step %lld, but the final checkpoint could not be written: %s",
                 (long long)d->run.step, d->run.save_error);
        return;
    }
    end_finished(d,
                 &(struct session_event){.kind = EVENT_DONE,
                                         .rank = -1,
                                         .step = d->run.step,
                                         .phase = PHASE_COUNT,
                                         .n_ranks = d->n_ranks,
                                         .per_rank = peak,
                                         .reason = run_reason(d),
                                         .epoch = d->run.last,
                                         .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)},
                 "finished: epoch %lld, step %lld%s", (long long)d->run.last.epoch,
                 (long long)d->run.step,
                 d->run.stops_early ? ": validation gets no better (train.early_stop)" : "");
}

/* End the job because a value is not finite.  The state before that step has been written. */
static void fail_nonfinite(struct driver *d)
{
    struct cause c = {.rank = d->run.nonfinite_rank,
                      .code = ERR_NUMERIC,
                      .phase = PHASE_UPDATE, /* the phase that refused the step */
                      .step = d->run.step,
                      .is_final = 1}; /* the same step would fail on a replacement */
    if (d->run.saved_step == d->run.step && d->run.saved_path)
        end_accuse(d, c, 0, "%s; the state before it is in %s", d->run.nonfinite,
                   d->run.saved_path);
    else
        end_accuse(d, c, 0, "%s; its state before could not be written: %s", d->run.nonfinite,
                   d->run.save_error ? d->run.save_error : "no checkpoint was reported");
}

/* An epoch is done, with its validation and its checkpoint. */
static void next_epoch(struct driver *d)
{
    if (d->run.nonfinite)
        fail_nonfinite(d);
    else if (is_complete(d))
        finish(d);
    else if (d->run.is_final || d->ending.n_stops > 0)
        stop_politely(d);
    else if (recover_wants_regroup(d))
        recover_regroup(d);
    else
        begin_epoch(d);
}

static void after_validation(struct driver *d)
{
    int is_last = d->run.is_final || d->ending.n_stops > 0;
    run_say_epoch(d);
    d->run.is_final = is_last;
    if (d->run.saved_step == d->run.step ||
        (!is_last && !d->run.is_kept &&
         !is_epoch_due(d->run.epoch, d->o.checkpoint_every_epochs))) {
        next_epoch(d);
        return;
    }
    begin_checkpoint(d);
}

void done_train(struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    int k = replicas_differing_end(d);
    if (own->epoch.end == EPOCH_WHOLE && own->epoch.step != d->run.epoch * d->run.steps_per_epoch) {
        end_misbehaved(d, 0, "a whole epoch %lld ended at step %lld, want %lld",
                       (long long)d->run.epoch, (long long)own->epoch.step,
                       (long long)(d->run.epoch * d->run.steps_per_epoch));
        return;
    }
    if (k > 0) {
        const struct report *r = d->seats[k].answer;
        end_misbehaved(d, k, "it ended epoch %lld at step %lld (%s), rank 0 at step %lld (%s)",
                       (long long)d->run.epoch, (long long)r->epoch.step,
                       epoch_end_name(r->epoch.end), (long long)own->epoch.step,
                       epoch_end_name(own->epoch.end));
        return;
    }
    recover_done(d);
    if (own->epoch.end != EPOCH_REGROUP)
        note_epoch(d);
    if (!replicas_are_equal(d))
        return;
    if (own->epoch.end == EPOCH_REGROUP) {
        d->run.step = own->epoch.step;
        recover_regroup(d); /* even if no rank wants it any more: only Prepare ends the request */
        return;
    }
    if (d->run.last.end == EPOCH_NONFINITE)
        note_nonfinite(d);
    int is_cut = d->run.nonfinite ||
                 (!is_complete(d) && (d->ending.n_stops > 0 || d->run.last.end == EPOCH_STOPPED));
    d->run.is_final = is_cut || is_complete(d);
    if (!is_cut && d->seats[0].opened->opened.n_validation > 0 &&
        (is_epoch_due(d->run.epoch, d->o.validate_every) ||
         (d->run.is_final && d->o.validate_every > 0))) {
        begin_validation(d);
        return;
    }
    after_validation(d);
}

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
    for (int k = 0; k < d->n_ranks; k++) {
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
static double loss_of(double sum, int64_t n_nonfinite, double weight)
{
    return n_nonfinite > 0 ? (double)NAN : mean_of(sum, weight);
}

/* Without a target that counts, loss and accuracy are undefined. */
static void warn_no_targets(struct driver *d, const struct seen *s)
{
    if (s->n_targets == 0 && !d->seats[0].answer->validated.is_unlabelled)
        queue_log(&d->out, LOG_WARN,
                  "validation: all labels are ignored, so loss and accuracy are undefined; want "
                  "labels other than train.ignore_index");
}

/* Validation gave losses that are not finite, with the trained weights if `which` is "".  The first
 * rank that found one of its samples to blame says which. */
static void warn_nonfinite(struct driver *d, const char *which, int64_t n, int64_t n_targets)
{
    int k = 0;
    if (n == 0)
        return;
    while (k < d->n_ranks - 1 && !d->seats[k].answer->validated.note)
        k++;
    const char *note = *which ? NULL : d->seats[k].answer->validated.note;
    char *who = driver_label(d, k),
         *text = xasprintf("validation: the loss of %lld of %lld targets is not finite%s%s%s%s%s",
                           (long long)n, (long long)n_targets, which, note ? ": " : "",
                           note ? who : "", note ? ": " : "", note ? note : "");
    queue_log(&d->out, LOG_WARN, "%s", text);
    driver_warned(d, text);
    free(text);
    free(who);
}

/* Note the validation's results in run.last, for an epoch or for an evaluation. */
static void note_validation(struct driver *d, const struct seen *s)
{
    struct session_epoch *e = &d->run.last;
    const int is_regression = d->seats[0].opened->opened.is_regression;
    const double n = (double)s->n_targets;
    if (d->o.evaluate)
        *e = (struct session_epoch){.epoch = d->run.epoch,
                                    .step = d->run.step,
                                    .n_samples = s->n_samples,
                                    .n_targets = s->n_targets};
    e->is_validated = 1;
    e->validation_loss = loss_of(s->loss_sum, s->n_nonfinite, s->weight);
    e->validation_accuracy = is_regression ? NOT_MEASURED : mean_of((double)s->n_correct, n);
    e->has_top5 = d->seats[0].answer->validated.has_top5;
    e->validation_top5 = mean_of((double)s->n_top5, n);
    e->is_unlabelled = d->seats[0].answer->validated.is_unlabelled;
    if (d->seats[0].answer->validated.figures) {
        free(d->run.figures);
        d->run.figures = xstrdup(d->seats[0].answer->validated.figures);
    }
    e->figures = d->run.figures;
    warn_no_targets(d, s);
    warn_nonfinite(d, "", s->n_nonfinite, s->n_targets);
    e->has_average = d->seats[0].answer->validated.has_average;
    if (!e->has_average)
        return;
    e->average_validation_loss = loss_of(s->average_loss_sum, s->average_n_nonfinite, s->weight);
    e->average_validation_top5 = mean_of((double)s->average_n_top5, n);
    e->average_validation_accuracy =
        is_regression ? NOT_MEASURED : mean_of((double)s->average_n_correct, n);
    warn_nonfinite(d, ", with averaged weights", s->average_n_nonfinite, s->n_targets);
}

void done_validate(struct driver *d)
{
    recover_done(d);
    const struct seen s = sum_validated(d);
    int64_t want = d->seats[0].opened->opened.n_validation;
    if (s.n_samples != want) {
        end_accuse(
            d,
            (struct cause){
                .rank = 0, .code = ERR_NUMERIC, .phase = PHASE_VALIDATE, .step = d->run.step},
            0, "validation saw %lld samples, the set has %lld", (long long)s.n_samples,
            (long long)want);
        return;
    }
    note_validation(d, &s);
    if (d->o.evaluate) {
        finish_evaluation(d);
        return;
    }
    d->run.last.is_best = d->seats[0].answer->validated.is_best;
    d->run.is_kept = d->seats[0].answer->validated.is_kept;
    d->run.stops_early = d->seats[0].answer->validated.stops_early;
    if (d->run.stops_early)
        queue_log(&d->out, LOG_INFO,
                  "validation has got no better for a while: this ends the job (train.early_stop)");
    d->run.is_final |= d->run.stops_early;
    after_validation(d);
}

void run_say_epoch(struct driver *d)
{
    if (d->run.last.epoch == 0 || d->run.is_last_said)
        return;
    d->run.is_last_said = 1;
    driver_event(d, &(struct session_event){.kind = EVENT_EPOCH,
                                            .rank = -1,
                                            .step = d->run.last.step,
                                            .phase = PHASE_COUNT,
                                            .epoch = d->run.last});
}

int run_is_saving(const struct driver *d)
{
    return d->stage == STAGE_TRAIN && d->seats[0].at.phase == PHASE_CHECKPOINT;
}

void run_fini(struct driver *d)
{
    free(d->run.saved_path);
    free(d->run.save_error);
    free(d->run.nonfinite);
    free(d->run.figures);
}

/* ---- checkpoints ---- */

static void checkpoint_failed(struct driver *d, const struct report *r)
{
    char *text = xasprintf("the checkpoint of step %lld could not be written: %s",
                           (long long)r->checkpoint.step, r->checkpoint.error);
    queue_log(&d->out, LOG_ERROR, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_ERROR,
                                            .step = r->checkpoint.step,
                                            .phase = PHASE_CHECKPOINT,
                                            .text = text});
}

void run_note_checkpoint(struct driver *d, const struct report *r)
{
    if (r->checkpoint.error || r->checkpoint.path) /* else it was written before */
        d->run.is_dir_gone = r->checkpoint.error && r->checkpoint.is_gone;
    if (r->checkpoint.error) {
        checkpoint_failed(d, r);
    } else if (r->checkpoint.path) {
        d->run.saved_step = r->checkpoint.step;
        free(d->run.saved_path);
        d->run.saved_path = xstrdup(r->checkpoint.path);
        driver_event(d, &(struct session_event){.kind = EVENT_CHECKPOINT,
                                                .step = r->checkpoint.step,
                                                .phase = PHASE_COUNT,
                                                .text = xstrdup(r->checkpoint.path),
                                                .seconds = r->checkpoint.seconds,
                                                .exposed_seconds = r->checkpoint.exposed_seconds});
    }
}

void done_checkpoint(struct driver *d)
{
    recover_done(d);
    const struct report *own = d->seats[0].answer;
    run_note_checkpoint(d, own);
    if (own->checkpoint.error && !d->run.save_error &&
        (d->run.is_final || d->ending.n_stops > 0)) /* after any other one the job goes on */
        d->run.save_error = xstrdup(own->checkpoint.error);
    if (!d->run.is_saving_last && d->ending.n_stops > 0 && d->run.saved_step != d->run.step)
        begin_checkpoint(d); /* a stop made it the last checkpoint while the state was copied */
    else
        next_epoch(d);
}
