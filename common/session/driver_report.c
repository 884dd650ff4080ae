/* Reports: from rank 0's engine directly, from other ranks as messages.  An answer to the stage's
 * command is kept until all ranks have answered.  Then driver_run.c decides what comes next. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

static void note_step(struct driver *d, const struct report *r)
{
    driver_event(
        d, &(struct session_event){.kind = EVENT_PROGRESS,
                                   .rank = -1,
                                   .step = r->step.step,
                                   .phase = PHASE_COUNT,
                                   .progress = {.epoch = r->step.epoch,
                                                .n_epochs = d->o.n_epochs,
                                                .step = r->step.step,
                                                .steps_per_epoch = d->run.steps_per_epoch,
                                                .loss = r->step.loss,
                                                .samples_per_second = r->step.samples_per_second}});
    d->run.data_wait_share = r->step.data_wait_share;
    recover_done(d);
    if (r->step.first)
        run_stepped(d, 0, r->step.rss_mib);
}

static void say_first_step(struct driver *d)
{
    double *rss = xcalloc((size_t)d->n_ranks, sizeof(*rss));
    for (int k = 0; k < d->n_ranks; k++)
        rss[k] = d->seats[k].rss_mib;
    d->run.is_first_step_said = 1;
    driver_event(d, &(struct session_event){.kind = EVENT_FIRST_STEP,
                                            .rank = -1,
                                            .step = -1,
                                            .phase = PHASE_COUNT,
                                            .seconds = d->run.first_step_s,
                                            .n_ranks = d->n_ranks,
                                            .per_rank = rss});
}

void run_stepped(struct driver *d, int rank, double rss_mib)
{
    struct seat *s = &d->seats[rank];
    if (d->run.is_first_step_said)
        return;
    if (rank == 0 && !s->has_stepped)
        d->run.first_step_s = 1e-9 * (double)(d->now_ns - d->o.start_ns);
    if (!s->has_stepped)
        s->rss_mib = rss_mib;
    s->has_stepped = 1;
    if (seats_have_stepped(d))
        say_first_step(d);
}

void run_moved(struct driver *d, int rank, const struct progress *p)
{
    struct seat *s = &d->seats[rank];
    if (p->generation != d->formation.generation)
        return;
    if (rank == 0 && end_is_saving(d) && p->phase != PHASE_CHECKPOINT)
        for (int k = 0; k < d->n_ranks; k++) /* ranks that waited for the disk are not late */
            d->seats[k].moved_ms = d->now_ms;
    if (p->epoch != s->at.epoch || p->step != s->at.step || p->phase != s->at.phase ||
        p->bucket != s->at.bucket)
        s->moved_ms = s->since_ms = d->now_ms;
    if (rank == 0 && p->since_ns > 0)
        s->since_ms = d->now_ms - (d->now_ns - p->since_ns) / 1000000;
    pace_note(d, rank, p);
    s->at = *p;
    s->told_ms = d->now_ms;
    stranger_at_data_port(d, rank, p->n_strangers);
}

static void note_warning(struct driver *d, int rank, const struct report *r)
{
    const char *text = r->warning.text ? r->warning.text : "no text";
    queue_log(&d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = rank,
                                            .step = r->warning.step,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(text)});
}

/* A rank's engine cannot go on.  ERR_NUMERIC ends the run, because wrong numbers would be wrong
 * after a replacement, too, and would be saved. */
static void note_fault(struct driver *d, int rank, const struct report *r)
{
    const char *why = *r->fault.err.msg ? r->fault.err.msg : err_code_text(r->fault.err.code);
    if (rank > 0 && !d->seats[rank].is_member) { /* the follower leaves of its own accord */
        struct conn *c = d->seats[rank].conn;
        gather_leave(d, rank, why);
        driver_leave(d, c, REFUSED_MS);
        return;
    }
    struct cause c = {.rank = rank,
                      .code = r->fault.err.code,
                      .phase = r->fault.phase,
                      .step = r->fault.step,
                      .is_final = r->fault.err.code == ERR_NUMERIC};
    char *who = driver_label(d, rank);
    if (phase_is_step(r->fault.phase))
        end_accuse(d, c, r->fault.is_consequence, "%s failed in %s%s %lld: %s", who,
                   phase_name(r->fault.phase), phase_of(r->fault.phase), (long long)r->fault.step,
                   why);
    else
        end_accuse(d, c, r->fault.is_consequence, "%s failed in %s: %s", who,
                   phase_name(r->fault.phase), why);
    free(who);
}

/* 1: the answer is about the epoch or the step that the command named. */
static int is_of_this_command(const struct driver *d, const struct report *r)
{
    if (r->kind == REPORT_EPOCH)
        return r->epoch.epoch == d->run.epoch;
    if (r->kind == REPORT_CHECKPOINT)
        return r->checkpoint.step == d->run.step;
    return r->kind != REPORT_VALIDATED || r->validated.epoch == d->run.epoch;
}

/* Drop the rank's list of tensors if another rank's equal list is kept, because thousands of ranks'
 * lists would need much memory until the last one has answered. */
static void slim(struct driver *d, int rank, struct report *r)
{
    if (d->formation.n_answers == 0)
        d->formation.first_answer = rank;
    else if (r->kind == REPORT_EPOCH &&
             hash_equal(r->epoch.replica,
                        d->seats[d->formation.first_answer].answer->epoch.replica))
        report_drop_tensors(r);
}

/* Take a rank's answer to this stage's command; takes r. */
static void take_answer(struct driver *d, int rank, struct report *r)
{
    struct seat *s = &d->seats[rank];
    if (r->kind != stage_answer(d->stage) || s->answer || !is_of_this_command(d, r)) {
        end_misbehaved(d, rank, "unexpected report \"%s\"", report_name(r->kind));
        report_free(r);
        return;
    }
    slim(d, rank, r);
    s->answer = r;
    s->answered_ms = d->now_ms;
    s->at.phase = PHASE_IDLE;
    if (rank == 0)
        d->is_engine_busy = 0;
    if (++d->formation.n_answers == d->n_ranks)
        stage_done(d);
}

/* A report of a rank that is in no formation yet; takes r. */
static void digest_outside(struct driver *d, int rank, struct report *r)
{
    if (r->kind == REPORT_OPENED && !d->seats[rank].opened) {
        d->seats[rank].opened = r;
        if (rank == 0)
            d->is_engine_busy = 0;
        gather_opened(d, rank);
        return;
    }
    if (r->kind == REPORT_FAULT)
        note_fault(d, rank, r);
    else if (r->kind == REPORT_WARNING)
        note_warning(d, rank, r);
    else
        end_misbehaved(d, rank, "unexpected report \"%s\"", report_name(r->kind));
    report_free(r);
}

/* A report of a formation that is over.  It still counts if a checkpoint was written, or if the
 * rank itself failed.  Takes r. */
static void digest_past(struct driver *d, int rank, struct report *r)
{
    if (r->kind == REPORT_CHECKPOINT && rank == 0)
        run_note_checkpoint(d, r);
    else if (r->kind == REPORT_FAULT && !r->fault.is_consequence)
        note_fault(d, rank, r);
    report_free(r);
}

void run_digest(struct driver *d, int rank, struct report *r)
{
    int is_past = d->stage == STAGE_WAIT || r->generation < d->formation.generation;
    if (r->kind == REPORT_STOPPED && rank == 0)
        d->ending.is_engine_stopped = 1;
    if (r->kind == REPORT_INJECT) {
        inject_happens(d, rank, r);
        report_free(r);
    } else if (r->kind == REPORT_CHECKPOINT && r->checkpoint.is_unasked && rank == 0) {
        if (d->stage < STAGE_OVER)
            run_note_checkpoint(d, r); /* the saver's thread wrote it during other work */
        report_free(r);
    } else if (r->kind == REPORT_ROW && rank == 0) { /* these steps count, despite the loss */
        driver_event(d, &(struct session_event){.kind = EVENT_ROW,
                                                .rank = -1,
                                                .step = r->row.step,
                                                .phase = PHASE_COUNT,
                                                .row = r->row});
        report_free(r);
    } else if (r->kind == REPORT_REBALANCE && rank == 0) {
        driver_event(d, &(struct session_event){.kind = EVENT_REBALANCE,
                                                .rank = -1,
                                                .step = r->rebalance.step,
                                                .phase = PHASE_COUNT,
                                                .n_ranks = r->rebalance.n_ranks,
                                                .per_rank = r->rebalance.share});
        r->rebalance.share = NULL;
        report_free(r);
    } else if (r->kind == REPORT_BUCKETS && rank == 0) {
        driver_event(d, &(struct session_event){.kind = EVENT_BUCKETS,
                                                .rank = -1,
                                                .step = r->buckets.step,
                                                .phase = PHASE_COUNT,
                                                .bucket_bytes = r->buckets.bucket_bytes,
                                                .n_buckets = r->buckets.n_buckets});
        report_free(r);
    } else if (d->stage >= STAGE_ENDING) {
        report_free(r);
    } else if (d->stage == STAGE_GATHER || !d->seats[rank].is_member) {
        digest_outside(d, rank, r);
    } else if (is_past) {
        digest_past(d, rank, r);
    } else if (r->kind == REPORT_FAULT) {
        note_fault(d, rank, r);
        report_free(r);
    } else if (r->kind == REPORT_WARNING) {
        note_warning(d, rank, r);
        report_free(r);
    } else if (r->kind == REPORT_STEP && rank == 0) {
        note_step(d, r);
        report_free(r);
    } else {
        take_answer(d, rank, r);
    }
}
