/* Reports: from rank 0's engine directly, from other ranks as messages.  An answer to the stage's
 * command is kept until all ranks have answered.  Then driver_run.c decides what comes next. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* An event of all ranks: the job has made `step`; -1: no step in particular. */
static struct session_event event_of_job(enum event_kind kind, int64_t step)
{
    return (struct session_event){.kind = kind, .rank = -1, .step = step, .phase = PHASE_COUNT};
}

static void note_step(struct driver *d, int rank, struct report *r)
{
    (void)rank;
    run_note_step(&d->run, r);
    recover_done(&d->formation);
    if (r->step.first)
        run_stepped(&d->run, 0, r->step.rss_mib);
    ledger_stepped(d, r);
}

static void note_warning(struct driver *d, int rank, struct report *r)
{
    const char *text = r->warning.text ? r->warning.text : "no text";
    queue_log(d->out, LOG_WARN, "%s", text);
    driver_event(d, &(struct session_event){.kind = EVENT_WARNING,
                                            .rank = rank,
                                            .step = r->warning.step,
                                            .phase = PHASE_COUNT,
                                            .text = xstrdup(text)});
}

void driver_warned(struct driver *d, const char *text)
{
    driver_event(
        d, &(struct session_event){
               .kind = EVENT_WARNING, .rank = -1, .phase = PHASE_COUNT, .text = xstrdup(text)});
}

/* A rank's engine cannot go on.  Damaged samples end the run, because a replacement would read the
 * same ones.  ERR_NUMERIC ends it, because wrong numbers would be wrong after a replacement, too,
 * and would be saved. */
static void note_fault(struct driver *d, int rank, struct report *r)
{
    const char *why = *r->fault.err.msg ? r->fault.err.msg : err_code_text(r->fault.err.code);
    if (rank > 0 && !d->seats[rank].is_member) { /* the follower leaves of its own accord */
        struct conn *c = d->seats[rank].conn;
        gather_leave(&d->membership, rank, why);
        conn_leave(&d->membership, c, REFUSED_MS);
        return;
    }
    struct cause c = {
        .rank = rank, .code = r->fault.err.code, .phase = r->fault.phase, .step = r->fault.step};
    c.is_final = c.code == ERR_NUMERIC || cause_is_of_data(&c);
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

/* These steps count, despite a loss after them. */
static void note_row(struct driver *d, int rank, struct report *r)
{
    struct session_event e = event_of_job(EVENT_ROW, r->row.step);
    (void)rank;
    e.row = r->row;
    driver_event(d, &e);
}

static void note_hashes(struct driver *d, int rank, struct report *r)
{
    struct session_event e = event_of_job(EVENT_HASHES, r->hashes.step);
    (void)rank;
    e.hashes = r->hashes;
    driver_event(d, &e);
}

static void note_rebalance(struct driver *d, int rank, struct report *r)
{
    struct session_event e = event_of_job(EVENT_REBALANCE, r->rebalance.step);
    (void)rank;
    e.rebalance.n_ranks = r->rebalance.n_ranks;
    e.rebalance.share = r->rebalance.share;
    r->rebalance.share = NULL;
    driver_event(d, &e);
}

static void note_buckets(struct driver *d, int rank, struct report *r)
{
    struct session_event e = event_of_job(EVENT_BUCKETS, r->buckets.step);
    (void)rank;
    e.buckets.bucket_bytes = r->buckets.bucket_bytes;
    e.buckets.n_buckets = r->buckets.n_buckets;
    driver_event(d, &e);
}

static void note_spike(struct driver *d, int rank, struct report *r)
{
    const struct spike_told *s = &r->spike;
    struct session_event e = event_of_job(EVENT_SPIKE, s->step);
    (void)rank;
    e.spike = *s;
    e.text = xstrdup(s->action);
    driver_event(d, &e);
    if (s->back_to >= 0)
        queue_log(d->out, LOG_WARN,
                  "step %lld: its loss is %.6g, the mean before it %.6g: all ranks go back to the "
                  "weights of step %lld, and the samples since then are left out (train.on_spike)",
                  (long long)s->step, s->loss, s->mean, (long long)s->back_to);
    else
        queue_log(d->out, LOG_WARN, "step %lld: its loss is %.6g, the mean before it %.6g%s",
                  (long long)s->step, s->loss, s->mean,
                  strcmp(s->action, "skip") != 0 ? "" : ": it is left out (train.on_spike)");
}

/* A piece of a rank's timeline.  Spares record nothing that counts.  A rank sends to this driver,
 * too, what the driver before it had asked for. */
static void note_spans(struct driver *d, int rank, struct report *r)
{
    const struct seat *s = &d->seats[rank];
    struct session_event e = event_of_job(EVENT_SPANS, -1);
    if (rank >= d->membership.n_ranks || !s->is_member)
        return;
    if (!trace_take(&d->watch, rank, &r->spans)) {
        char *who = driver_label(d, rank);
        if (r->spans.is_last)
            queue_log(d->out, LOG_WARN,
                      "%s sent its part of timeline %lld, for which this driver "
                      "did not ask it; the part is left out",
                      who, (long long)r->spans.number);
        free(who);
        return;
    }
    e.rank = rank;
    e.spans.n_ranks = d->membership.n_ranks;
    if (r->spans.number)
        e.spans.asked_ns = d->watch.trace.until_ns - d->watch.trace.duration_ns;
    e.spans.is_clock_ours = rank == 0 || (s->host_id && !strcmp(s->host_id, d->o.host_id));
    e.spans.clock = s->clock;
    e.spans.piece = r->spans;
    r->spans = (struct spans_piece){0};
    driver_event(d, &e);
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

/* Take a rank's answer to this stage's command.  Returns r if it is not kept, else NULL. */
static struct report *report_take_answer(struct driver *d, int rank, struct report *r)
{
    ASSERT(rank < d->membership.n_ranks && d->seats[rank].is_member);
    if (r->kind != stage_answer(d->stage) || d->seats[rank].answer || !is_of_this_command(d, r)) {
        end_misbehaved(d, rank, "unexpected report \"%s\"", report_name(r->kind));
        return r;
    }
    form_answer(&d->formation, rank, r);
    watch_in_phase(&d->watch, rank, PHASE_IDLE);
    if (rank == 0)
        d->is_engine_busy = 0;
    if (d->formation.n_answers == d->membership.n_ranks)
        stage_done(d);
    return NULL;
}

/* A report of a rank that is in no formation yet.  Returns r if it is not kept, else NULL. */
static struct report *digest_outside(struct driver *d, int rank, struct report *r)
{
    if (r->kind == REPORT_OPENED && !d->seats[rank].opened) {
        driver_opened(d, rank, r);
        return NULL;
    }
    if (r->kind == REPORT_FAULT)
        note_fault(d, rank, r);
    else
        end_misbehaved(d, rank, "unexpected report \"%s\"", report_name(r->kind));
    return r;
}

/* A report of a formation that is over.  It still counts if a checkpoint was written, or if the
 * rank itself failed. */
static void digest_past(struct driver *d, int rank, struct report *r)
{
    ASSERT(r->generation <= d->formation.generation);
    if (r->kind == REPORT_CHECKPOINT && rank == 0)
        run_note_checkpoint(&d->run, r);
    else if (r->kind == REPORT_FAULT && !r->fault.is_consequence)
        note_fault(d, rank, r);
}

/* Reports that answer no command.  A report without a row here is an answer to the stage's command,
 * or it breaks the protocol. */
typedef void take_fn(struct driver *d, int rank, struct report *r);

static const struct news {
    take_fn *take;
    int is_of_rank_0; /* 1: only rank 0 sends it */
    int is_lasting;   /* 1: it counts in any stage, and when its formation is over, too */
} news[] = {
    [REPORT_INJECT] = {inject_happens, 0, 1}, [REPORT_ROW] = {note_row, 1, 1},
    [REPORT_HASHES] = {note_hashes, 1, 1},    [REPORT_REBALANCE] = {note_rebalance, 1, 1},
    [REPORT_BUCKETS] = {note_buckets, 1, 1},  [REPORT_CORRUPTION] = {corruption_note, 1, 1},
    [REPORT_STEP] = {note_step, 1, 0},        [REPORT_FAULT] = {note_fault, 0, 0},
    [REPORT_WARNING] = {note_warning, 0, 1},  [REPORT_SPANS] = {note_spans, 0, 1},
    [REPORT_SPIKE] = {note_spike, 1, 1},
};

/* The row of the report, or NULL. */
static const struct news *news_of(int rank, const struct report *r)
{
    const struct news *n = (size_t)r->kind < ARRAY_LEN(news) ? &news[r->kind] : NULL;
    return n && n->take && (rank == 0 || !n->is_of_rank_0) ? n : NULL;
}

static int report_is_past(const struct driver *d, const struct report *r)
{
    return d->stage == STAGE_WAIT || r->generation < d->formation.generation;
}

/* 1: the saver's thread wrote a checkpoint during other work. */
static int is_unasked(int rank, const struct report *r)
{
    return rank == 0 && r->kind == REPORT_CHECKPOINT && r->checkpoint.is_unasked;
}

static void note_unasked(struct driver *d, const struct report *r)
{
    ledger_saved(d, r);
    run_note_checkpoint(&d->run, r);
}

void report_digest(struct driver *d, int rank, struct report *r)
{
    const struct news *n = news_of(rank, r);
    ASSERT(rank >= 0 && d->seats[rank].is_taken);
    if (r->kind == REPORT_STOPPED && rank == 0)
        d->ending.is_engine_stopped = 1;
    if (n && n->is_lasting)
        n->take(d, rank, r);
    else if (is_unasked(rank, r) && d->stage < STAGE_OVER)
        note_unasked(d, r);
    else if (d->stage >= STAGE_ENDING || is_unasked(rank, r))
        ;
    else if (d->stage == STAGE_GATHER || !d->seats[rank].is_member)
        r = digest_outside(d, rank, r);
    else if (report_is_past(d, r))
        digest_past(d, rank, r);
    else if (n)
        n->take(d, rank, r);
    else
        r = report_take_answer(d, rank, r);
    report_free(r);
}
