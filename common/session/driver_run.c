/* Training: from the first step to the last checkpoint.
 *
 * driver_form.c leads to the first step.  From there on this file decides what comes next, whenever
 * the last rank has answered a stage's command (run_choose, run_trained ...):
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
    ASSERT(d->run.steps_per_epoch > 0);
    return d->run.stops_early || step / d->run.steps_per_epoch >= d->o.n_epochs ||
           (d->o.max_steps > 0 && step >= d->o.max_steps);
}

/* 1: the job has trained all that it asks for. */
static int run_is_complete(const struct driver *d)
{
    return d->run.last.end == EPOCH_MAX_STEPS ||
           (d->o.is_test && d->run.last.end == EPOCH_NONFINITE) ||
           run_nothing_to_do(d, d->run.step);
}

struct cmd *run_train(struct run *r)
{
    const struct driver *d = r->d;
    struct cmd *c = cmd_new(CMD_TRAIN, d->formation.generation);
    ASSERT(r->steps_per_epoch > 0 && r->step >= 0);
    /* The epoch was broken off after its last step, but not every rank knew that: it is to be
     * ended again. */
    int is_at_end = r->is_epoch_open && r->step == r->epoch * r->steps_per_epoch;
    if (!is_at_end)
        r->epoch = r->step / r->steps_per_epoch + 1;
    r->is_epoch_open = 1;
    ASSERT(r->epoch >= 1 && r->step <= r->epoch * r->steps_per_epoch);
    ASSERT(r->step >= (r->epoch - 1) * r->steps_per_epoch);
    c->train.epoch = r->epoch;
    c->train.live_lr = r->live_lr;
    c->train.live_step = r->live_step;
    return c;
}

int run_is_past_stop(const struct driver *d)
{
    return d->o.stop_after > 0 && d->run.step >= d->o.stop_after;
}

static struct decision stop_politely(const struct driver *d)
{
    const char *how = run_is_past_stop(d) ? d->o.how_past_stop : d->o.how_to_resume;
    const char *why = d->ending.n_stops > 0 ? d->ending.stop_why : "train.stop_after";
    ASSERT(d->ending.n_stops > 0 || d->run.is_final);
    if (d->run.save_error)
        return decide_stop(
            WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
            "stopped by %s after step %lld, and the checkpoint could not be written: %s", why,
            (long long)d->run.step, d->run.save_error);
    return decide_stop(WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED,
                       "stopped by %s after step %lld (epoch %lld)%s%s", why,
                       (long long)d->run.step, (long long)d->run.last.epoch,
                       how ? "; resume with: " : "", how ? how : "");
}

struct decision run_stop_again(const struct driver *d)
{
    const char *how = d->o.how_past_stop;
    ASSERT(run_is_past_stop(d));
    return decide_stop(WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED,
                       "nothing to do: %lld steps are done, and train.stop_after is %lld%s%s",
                       (long long)d->run.step, (long long)d->o.stop_after,
                       how ? "; resume with: " : "", how ? how : "");
}

struct cmd *run_validate(struct run *r)
{
    const struct driver *d = r->d;
    struct cmd *c = cmd_new(CMD_VALIDATE, d->formation.generation);
    ASSERT(r->steps_per_epoch > 0);
    if (d->o.evaluate) /* the epoch of the weights, computed from the steps of this job */
        r->epoch = max_i64(1, ceil_div_i64(r->step, r->steps_per_epoch));
    c->validate.epoch = r->epoch;
    c->validate.predicts = d->o.predict != NULL;
    c->validate.judges = d->o.evaluate != NULL;
    return c;
}

/* The engine answers the last checkpoint only when it is on disk. */
struct cmd *run_checkpoint(struct run *r)
{
    struct cmd *c = cmd_new(CMD_CHECKPOINT, r->d->formation.generation);
    ASSERT(!r->d->o.evaluate && r->d->formation.has_formed);
    c->checkpoint.step = r->step;
    c->checkpoint.is_last = r->is_saving_last = r->is_final || r->d->ending.n_stops > 0;
    return c;
}

/* ---- opened, formed ---- */

void run_opened(struct run *r)
{
    const struct driver *d = r->d;
    const struct report *own = d->seats[0].opened;
    struct session_event e = {.kind = EVENT_START,
                              .rank = -1,
                              .step = own->opened.step,
                              .start = {.n_ranks = d->o.n_ranks,
                                        .n_parameters = own->opened.n_parameters,
                                        .steps_per_epoch = own->opened.steps_per_epoch,
                                        .data = own->opened.data},
                              .text = xstrdup(d->o.device)};
    ASSERT(own && d->stage == STAGE_GATHER && r->steps_per_epoch == 0);
    r->steps_per_epoch = own->opened.steps_per_epoch;
    r->step = own->opened.step;
    r->stops_early = own->opened.stops_early;
    driver_event(d, &e);
}

/* The ranks that are left may hold an older step than the one at which the epoch ended: with
 * strategy.zero the newest state may be lost together with some ranks.  Then the epoch is trained
 * again, and decisions made at its end are void. */
int run_formed(struct run *r)
{
    int64_t step = r->seats[0].answer->formed.step;
    int is_back = step < r->step;
    ASSERT(r->d->stage == STAGE_FORM);
    if (is_back) {
        r->stops_early = r->is_final = 0;
        free(r->nonfinite);
        r->nonfinite = NULL;
    }
    r->step = step;
    return is_back;
}

void run_end_again(struct run *r)
{
    ASSERT(r->steps_per_epoch > 0 && r->step % r->steps_per_epoch == 0);
    r->epoch = r->step / r->steps_per_epoch;
    r->is_epoch_open = 1;
}

struct decision run_choose(const struct driver *d)
{
    enum stage resume = d->formation.recovery.resume;
    ASSERT(d->stage == STAGE_FORM && d->formation.has_formed);
    if (d->o.evaluate || resume == STAGE_VALIDATE)
        return decide(DECIDE_VALIDATE);
    return decide(resume == STAGE_CHECKPOINT ? DECIDE_CHECKPOINT : DECIDE_TRAIN);
}

/* ---- the end of an epoch ---- */

/* The rank that waited longest for its data, or the first of several such ranks. */
static int find_data_waiter(const struct driver *d)
{
    int longest = 0;
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].answer->epoch.data_wait_share >
            d->seats[longest].answer->epoch.data_wait_share)
            longest = k;
    return longest;
}

#define COPY_FIGURE(member, type, of, key, when, text) r->last.member = from[of]->epoch.member;

static void run_note_epoch(struct run *r)
{
    const struct driver *d = r->d;
    const struct report *own = d->seats[0].answer;
    const int waiter = find_data_waiter(d);
    const struct report *const from[] = {[OF_RANK_0] = own, [OF_WAITER] = d->seats[waiter].answer};
    r->step = own->epoch.step;
    r->last = (struct session_epoch){
        .epoch = own->epoch.epoch,
        .step = own->epoch.step,
        .end = own->epoch.end,
        .data_wait_rank = waiter,
        .data_wait_cause = from[OF_WAITER]->epoch.data_wait_cause,
        .validation_loss = NOT_MEASURED,
        .validation_accuracy = NOT_MEASURED,
        .is_mean = own->epoch.is_mean,
    };
    EPOCH_FIGURES(COPY_FIGURE)
    r->last.data_wait_share = fmin(r->last.data_wait_share, 1);
    r->is_last_said = own->epoch.step == d->membership.lead.told_step;
    r->is_kept = 0;
    r->is_epoch_open = 0;
    for (int k = 0; k < d->membership.n_ranks; k++) {
        const struct report *e = d->seats[k].answer;
        run_stepped(r, k, e->epoch.rss_mib);
        r->seats[k].peak_rss_mib = e->epoch.peak_rss_mib;
    }
    ASSERT(!r->is_epoch_open && r->last.epoch == r->epoch);
}

/* Note which rank saw a value that is not finite, and what it saw, in the step after the last
 * applied one. */
static void note_nonfinite(struct run *r)
{
    const struct driver *d = r->d;
    int k = 0;
    ASSERT(r->last.end == EPOCH_NONFINITE);
    while (k < d->membership.n_ranks - 1 && !d->seats[k].answer->epoch.note)
        k++;
    const char *note = d->seats[k].answer->epoch.note;
    char *who = driver_label(d, k);
    r->nonfinite_rank = note ? k : -1;
    r->nonfinite_is_of_input = note && d->seats[k].answer->epoch.is_of_input;
    r->nonfinite =
        note ? xasprintf("step %lld was not applied: %s: %s", (long long)r->step, who, note)
             : xasprintf("step %lld was not applied: the loss or a gradient is not finite",
                         (long long)r->step);
    free(who);
}

static int is_epoch_due(int64_t epoch, int64_t every) { return every > 0 && epoch % every == 0; }

const char *run_reason(const struct driver *d)
{
    return d->run.stops_early                                    ? "early_stop"
           : d->run.last.end == EPOCH_NONFINITE                  ? "nonfinite"
           : d->o.max_steps > 0 && d->run.step >= d->o.max_steps ? "max_steps"
                                                                 : "epochs";
}

static struct decision finish_evaluation(struct run *r)
{
    const struct driver *d = r->d;
    ASSERT(d->o.evaluate);
    r->is_last_said = 1; /* it is no epoch of a run */
    return decide_finished(
        &(struct session_event){.kind = EVENT_DONE,
                                .rank = -1,
                                .step = r->step,
                                .phase = PHASE_COUNT,
                                .done = {.n_ranks = d->membership.n_ranks,
                                         .no_energy = ledger_no_energy(d),
                                         .epoch = r->last,
                                         .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)}},
        "evaluated step %lld", (long long)r->step);
}

static struct decision run_finish(const struct driver *d)
{
    double *peak = xcalloc((size_t)d->membership.n_ranks, sizeof *peak);
    for (int k = 0; k < d->membership.n_ranks; k++)
        peak[k] = d->seats[k].peak_rss_mib;
    if (d->run.save_error) {
        free(peak);
        return decide_stop(
            WIRE__OUTCOME__OUTCOME_FAILED, STATUS_FAILED,
            "trained to step %lld, but the final checkpoint could not be written: %s",
            (long long)d->run.step, d->run.save_error);
    }
    return decide_finished(
        &(struct session_event){.kind = EVENT_DONE,
                                .rank = -1,
                                .step = d->run.step,
                                .phase = PHASE_COUNT,
                                .done = {.n_ranks = d->membership.n_ranks,
                                         .peak_rss_mib = peak,
                                         .reason = run_reason(d),
                                         .no_energy = ledger_no_energy(d),
                                         .epoch = d->run.last,
                                         .seconds = 1e-9 * (double)(d->now_ns - d->o.start_ns)}},
        "finished: epoch %lld, step %lld%s", (long long)d->run.last.epoch, (long long)d->run.step,
        d->run.stops_early ? ": validation gets no better (train.early_stop)" : "");
}

/* End the job because a value is not finite.  The state before that step has been written. */
static struct decision fail_nonfinite(const struct driver *d)
{
    struct cause c = {.rank = d->run.nonfinite_rank,
                      .code = ERR_NUMERIC,
                      .phase = PHASE_UPDATE, /* the phase that refused the step */
                      .step = d->run.step,
                      .is_final = 1}; /* the same step would fail on a replacement */
    if (d->run.saved_step == d->run.step && d->run.saved_path)
        return decide_accuse(c, "%s; the state before it is in %s", d->run.nonfinite,
                             d->run.saved_path);
    ASSERT(d->run.nonfinite);
    return decide_accuse(c, "%s; its state before could not be written: %s", d->run.nonfinite,
                         d->run.save_error ? d->run.save_error : "no checkpoint was reported");
}

/* An epoch is done, with its validation and its checkpoint. */
static struct decision next_epoch(const struct driver *d)
{
    ASSERT(!d->o.evaluate);
    if (d->run.nonfinite)
        return fail_nonfinite(d);
    if (run_is_complete(d))
        return run_finish(d);
    if (d->run.is_final || d->ending.n_stops > 0)
        return stop_politely(d);
    return decide(recover_wants_regroup(d) ? DECIDE_REGROUP : DECIDE_TRAIN);
}

static struct decision after_validation(struct run *r)
{
    const struct driver *d = r->d;
    int is_last = r->is_final || d->ending.n_stops > 0;
    run_say_epoch(r);
    r->is_final = is_last;
    if (d->o.is_test || r->saved_step == r->step ||
        (!is_last && !r->is_kept && !is_epoch_due(r->epoch, d->o.checkpoint_every_epochs)))
        return next_epoch(d);
    return decide(DECIDE_CHECKPOINT);
}

struct decision run_check_epoch(const struct driver *d)
{
    const struct report *own = d->seats[0].answer;
    int k = replicas_differing_end(d);
    ASSERT(d->stage == STAGE_TRAIN && d->formation.n_answers == d->membership.n_ranks);
    if (own->epoch.end == EPOCH_WHOLE && own->epoch.step != d->run.epoch * d->run.steps_per_epoch)
        return decide_misbehaved(0, "a whole epoch %lld ended at step %lld, want %lld",
                                 (long long)d->run.epoch, (long long)own->epoch.step,
                                 (long long)(d->run.epoch * d->run.steps_per_epoch));
    if (k <= 0)
        return decide(DECIDE_NOTHING);
    const struct report *r = d->seats[k].answer;
    return decide_misbehaved(k, "it ended epoch %lld at step %lld (%s), rank 0 at step %lld (%s)",
                             (long long)d->run.epoch, (long long)r->epoch.step,
                             epoch_end_name(r->epoch.end), (long long)own->epoch.step,
                             epoch_end_name(own->epoch.end));
}

struct decision run_trained(struct run *r)
{
    const struct driver *d = r->d;
    const struct report *own = d->seats[0].answer;
    ASSERT(d->stage == STAGE_TRAIN && r->is_epoch_open);
    if (own->epoch.end != EPOCH_REGROUP)
        run_note_epoch(r);
    struct decision x = replicas_compare(d);
    if (x.kind != DECIDE_NOTHING)
        return x;
    if (own->epoch.end == EPOCH_REGROUP) {
        r->step = own->epoch.step;
        return decide(DECIDE_REGROUP); /* even if no rank wants it: only Prepare ends the request */
    }
    if (r->last.end == EPOCH_NONFINITE && !d->o.is_test)
        note_nonfinite(r);
    int is_cut = r->nonfinite ||
                 (!run_is_complete(d) &&
                  (d->ending.n_stops > 0 || run_is_past_stop(d) || r->last.end == EPOCH_STOPPED));
    r->is_final = is_cut || run_is_complete(d);
    if (!is_cut && d->seats[0].opened->opened.n_validation > 0 &&
        (is_epoch_due(r->epoch, d->o.validate_every) || (r->is_final && d->o.validate_every > 0)))
        return decide(DECIDE_VALIDATE);
    return after_validation(r);
}

struct decision run_validated(struct run *r)
{
    const struct driver *d = r->d;
    const struct report *own = d->seats[0].answer;
    struct decision x = run_note_validation(r);
    ASSERT(d->stage == STAGE_VALIDATE && d->formation.n_answers == d->membership.n_ranks);
    if (x.kind != DECIDE_NOTHING)
        return x;
    if (d->o.evaluate)
        return finish_evaluation(r);
    r->last.is_best = own->validated.is_best;
    r->is_kept = own->validated.is_kept;
    r->stops_early = own->validated.stops_early;
    if (r->stops_early)
        queue_log(d->out, LOG_INFO,
                  "validation has got no better for a while: this ends the job (train.early_stop)");
    r->is_final |= r->stops_early;
    return after_validation(r);
}

struct decision run_checkpointed(struct run *r)
{
    const struct driver *d = r->d;
    const struct report *own = d->seats[0].answer;
    ASSERT(d->stage == STAGE_CHECKPOINT && own->kind == REPORT_CHECKPOINT);
    run_note_checkpoint(r, own);
    if (own->checkpoint.error && !r->save_error &&
        (r->is_final || d->ending.n_stops > 0)) /* after any other one the job goes on */
        r->save_error = xstrdup(own->checkpoint.error);
    if (!r->is_saving_last && d->ending.n_stops > 0 && r->saved_step != r->step)
        return decide(DECIDE_CHECKPOINT); /* a stop made it the last while the state was copied */
    return next_epoch(d);
}

/* ---- in the middle of an epoch ---- */

int run_is_saving(const struct driver *d)
{
    return d->stage == STAGE_TRAIN && d->seats[0].at.phase == PHASE_CHECKPOINT;
}

void run_fini(struct run *r)
{
    free(r->saved_path);
    free(r->save_error);
    free(r->nonfinite);
    free(r->figures);
}

static int is_unstepped(const struct seat *s) { return !s->has_stepped; }

static void say_first_step(struct run *r)
{
    const struct driver *d = r->d;
    struct session_event e = {
        .kind = EVENT_FIRST_STEP, .rank = -1, .step = -1, .phase = PHASE_COUNT};
    e.first_step.seconds = r->first_step_s;
    e.first_step.n_ranks = d->membership.n_ranks;
    e.first_step.rss_mib = xcalloc((size_t)d->membership.n_ranks, sizeof(double));
    for (int k = 0; k < d->membership.n_ranks; k++)
        e.first_step.rss_mib[k] = d->seats[k].rss_mib;
    r->is_first_step_said = 1;
    driver_event(d, &e);
}

void run_stepped(struct run *r, int rank, double rss_mib)
{
    const struct driver *d = r->d;
    struct seat *s = &r->seats[rank];
    ASSERT(rank >= 0 && rank < d->n_seats && s->is_taken);
    if (r->is_first_step_said)
        return;
    if (rank == 0 && !s->has_stepped)
        r->first_step_s = 1e-9 * (double)(d->now_ns - d->o.start_ns);
    if (!s->has_stepped)
        s->rss_mib = rss_mib;
    s->has_stepped = 1;
    if (seats_search(d, &r->unstepped, is_unstepped) < 0)
        say_first_step(r);
}

void run_note_step(struct run *r, const struct report *step)
{
    const struct driver *d = r->d;
    struct session_event e = {
        .kind = EVENT_PROGRESS, .rank = -1, .step = step->step.step, .phase = PHASE_COUNT};
    e.progress.epoch = step->step.epoch;
    e.progress.n_epochs = d->o.n_epochs;
    e.progress.step = step->step.step;
    e.progress.steps_per_epoch = r->steps_per_epoch;
    e.progress.loss = step->step.loss;
    e.progress.samples_per_second = step->step.samples_per_second;
    driver_event(d, &e);
    r->data_wait_share = step->step.data_wait_share;
    r->data_wait_cause = step->step.data_wait_cause;
}
