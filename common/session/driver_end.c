/* How a job ends.
 *
 * In order: Stop goes to all, the engine gets CMD_STOP, the followers close, ACTION_FINISHED.
 * By a failure: the code that notices a failure calls end_accuse.  A genuine cause ends the job at
 * once: the same text goes to all ranks in Abort, to the log and into events.jsonl.  For a
 * consequence (a collective that broke off because another rank left) the driver waits up to
 * GRACE_MS for the cause, and longer while a rank is silent that may turn out to be lost.
 *
 * A failure that costs a rank but not the job goes another way: driver_recover.c.
 *
 * The followers close first, so that an Abort is not lost in a connection that is reset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- ending ---- */

static void tell_all(struct driver *d, const Wire__Control *m, int64_t linger_ms)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(f);
    succession_release(d);
    for (int i = 0; i < d->n_conns; i++) {
        struct conn *c = d->conns[i];
        if (c->state != CONN_MEMBER && c->state != CONN_STANDBY)
            continue;
        queue_send(&d->out, c->id, frame_ref(f));
        driver_leave(d, c, linger_ms);
    }
    frame_unref(f);
}

/* Tell the members of the formation, which stay. */
static void tell_ranks(struct driver *d, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(f);
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].is_taken && d->seats[k].is_member)
            queue_send(&d->out, d->seats[k].conn->id, frame_ref(f));
    frame_unref(f);
}

static void stop_engine(struct driver *d, int saves)
{
    struct cmd *c = cmd_new(CMD_STOP, d->formation.generation);
    c->stop.saves = saves;
    queue_command(&d->out, c);
}

/* All followers have been told of the end.  Stop the engine, which first saves its state if asked
 * to, then wait for all. */
static void begin_ending(struct driver *d, int status, const char *text, int is_abort, int saves)
{
    int64_t wait_ms = is_abort ? ABORT_MS : STOP_MS;
    run_say_epoch(d);
    stranger_say_rest(d);
    inject_at_stop(d);
    inject_say_unspent(d);
    stage_enter(d, STAGE_ENDING);
    d->ending.status = status;
    d->ending.text = xstrdup(text);
    if (is_abort || d->is_engine_busy)
        queue_abort(&d->out);
    stop_engine(d, saves);
    d->ending.engine_until_ms = d->ending.conns_until_ms = d->now_ms + wait_ms;
    end_check_over(d);
}

/* 1: a follower was told to leave and has not closed yet.  The driver does not wait for connections
 * that never said Hello. */
static int is_awaited(const struct driver *d)
{
    for (int i = 0; i < d->n_conns; i++)
        if (d->conns[i]->state == CONN_LEAVING)
            return d->now_ms < d->ending.conns_until_ms;
    return 0;
}

/* 1: another rank has failed, and rank 0 still writes a checkpoint, which it may finish. */
static int is_still_saving(const struct driver *d)
{
    return d->now_ms < d->ending.saves_until_ms && d->seats[0].at.phase == PHASE_CHECKPOINT;
}

void end_check_over(struct driver *d)
{
    int is_late = d->now_ms >= d->ending.engine_until_ms && !is_still_saving(d);
    if (d->stage != STAGE_ENDING || (!d->ending.is_engine_stopped && !is_late) || is_awaited(d))
        return;
    while (d->n_conns > 0) {
        queue_close(&d->out, d->conns[0]->id, "the job is over");
        driver_drop_conn(d, d->conns[0]);
    }
    stage_enter(d, STAGE_OVER);
    incident_finish(d);
    queue_put(&d->out,
              &(struct action){.kind = ACTION_FINISHED,
                               .finished = {.status = d->ending.status,
                                            .is_engine_stuck = !d->ending.is_engine_stopped,
                                            .is_deposed = d->ending.is_deposed,
                                            .text = xstrdup(d->ending.text)}});
}

static void tell_stop(struct driver *d, Wire__Outcome outcome, const char *text)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Stop stop = WIRE__STOP__INIT;
    struct arena a;

    arena_init(&a);
    stop.outcome = outcome;
    stop.text = msg_text(&a, text, MSG_MAX_TEXT);
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_STOP;
    m.stop = &stop;
    tell_all(d, &m, STOP_MS);
    arena_fini(&a);
}

void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    if (status == STATUS_FAILED)
        queue_log(&d->out, LOG_ERROR, "%s", text);
    tell_stop(d, outcome, text);
    begin_ending(d, status, text, 0, 0);
    free(text);
}

/* The event `done` comes last.  So if the driver is killed before it has told all followers, there
 * is no `done`, and its successor tells them (driver_lead.c). */
void end_finished(struct driver *d, struct session_event *done, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    tell_stop(d, WIRE__OUTCOME__OUTCOME_FINISHED, text);
    driver_event(d, done);
    begin_ending(d, STATUS_OK, text, 0, 0);
    free(text);
}

static const char *host_of(const struct driver *d, const struct cause *c)
{
    return c->host ? c->host : c->rank >= 0 ? d->seats[c->rank].host : NULL;
}

void end_send_abort(struct driver *d, const char *text, struct conn *only, int recover)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Abort abort = WIRE__ABORT__INIT;
    struct arena a;

    arena_init(&a);
    abort.text = msg_text(&a, text, MSG_MAX_TEXT);
    abort.recover = recover != 0;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_ABORT;
    m.abort = &abort;
    if (only) {
        driver_send(d, only, &m);
        driver_leave(d, only, ABORT_MS);
    } else if (recover) {
        tell_ranks(d, &m);
    } else {
        tell_all(d, &m, ABORT_MS);
    }
    arena_fini(&a);
}

/* The exit status.  If rank 0 could not open job or data, that is STATUS_USAGE: the operator has to
 * correct them. */
static int status_of(const struct driver *d, const struct cause *c)
{
    int is_input = c->code == ERR_CONFIG || c->code == ERR_CORRUPT || c->code == ERR_IO ||
                   c->code == ERR_ARG || c->code == ERR_UNSUPPORTED;
    return d->stage == STAGE_GATHER && c->rank == 0 && is_input ? STATUS_USAGE : STATUS_FAILED;
}

/* 1: rank 0's state is worth saving.  If another rank is at fault, rank 0's last applied step is
 * good, and at most one step older than the newest.  After wrong numbers nothing is saved. */
static int is_state_good(const struct driver *d, const struct cause *c)
{
    return d->formation.has_formed && (c->rank > 0 || c->is_consequence) &&
           c->code != ERR_NUMERIC && c->code != ERR_PROTO && c->code != ERR_CORRUPT;
}

static void fail_for_good(struct driver *d, const struct cause *c)
{
    const char *host = host_of(d, c);
    queue_log(&d->out, LOG_ERROR, "%s", c->text);
    if (c->is_lost && !c->is_final) /* a final cause was told when the rank was lost */
        driver_event(d, &(struct session_event){.kind = EVENT_LOST,
                                                .rank = c->rank,
                                                .step = c->step,
                                                .phase = PHASE_COUNT,
                                                .text = xstrdup(c->text)});
    driver_event(d, &(struct session_event){.kind = EVENT_ERROR,
                                            .rank = c->rank,
                                            .host = host ? xstrdup(host) : NULL,
                                            .step = c->step,
                                            .phase = c->phase,
                                            .is_diverged = d->run.nonfinite != NULL,
                                            .text = xstrdup(c->text)});
    int status = status_of(d, c);
    if (c->rank != 0 || c->code != ERR_TIMEOUT)
        d->ending.saves_until_ms = d->now_ms + d->o.cluster.deadlines.checkpoint_ms;
    end_send_abort(d, c->text, NULL, 0);
    begin_ending(d, status, c->text, 1, is_state_good(d, c));
}

static void fail(struct driver *d, const struct cause *c)
{
    struct cause final = *c;
    char *why_not = NULL;
    if (recover_from(d, c, &why_not))
        return;
    final.text = why_not ? xasprintf("%s; %s", c->text, why_not) : xstrdup(c->text);
    fail_for_good(d, &final);
    free(final.text);
    free(why_not);
}

/* ---- causes ---- */

void end_forget_pending(struct driver *d)
{
    free(d->ending.pending.text);
    d->ending.pending = (struct cause){0};
}

void end_accuse(struct driver *d, struct cause c, int is_consequence, const char *fmt, ...)
{
    va_list ap;
    if (d->stage >= STAGE_ENDING)
        return;
    va_start(ap, fmt);
    if (vasprintf(&c.text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    if (!is_consequence) {
        fail(d, &c);
        free(c.text);
        end_forget_pending(d);
    } else if (!d->ending.pending.text) {
        queue_log(&d->out, LOG_WARN, "%s; looking for the cause", c.text);
        d->ending.pending = c;
        d->ending.pending.is_consequence = 1;
        d->ending.pending_ms = d->now_ms + GRACE_MS;
    } else {
        free(c.text);
    }
}

/* A rank whose heartbeat is overdue, or -1.  GRACE_MS is longer than an interval of heartbeats, so
 * a rank that fell silent when the collective broke off is noticed before GRACE_MS are over. */
static int silent_rank(const struct driver *d)
{
    for (int k = 1; k < d->n_ranks; k++)
        if (d->seats[k].is_taken && d->now_ms - d->seats[k].heard_ms > d->beat_ms + d->beat_ms / 4)
            return k;
    return -1;
}

void end_check_pending(struct driver *d)
{
    if (d->stage >= STAGE_ENDING || !d->ending.pending.text || d->now_ms < d->ending.pending_ms)
        return;
    if (silent_rank(d) >= 0) { /* within the heartbeat's timeout it is lost, or heard again */
        d->ending.pending_ms = d->now_ms + CHECK_MS;
        return;
    }
    struct cause c = d->ending.pending;
    d->ending.pending.text = NULL;
    fail(d, &c);
    free(c.text);
}

/* "in reduce of step 700", "during form": where a rank was when last heard. */
static char *where_of(const struct driver *d, int rank)
{
    const struct progress *p = &d->seats[rank].at;
    if (d->stage == STAGE_TRAIN && p->phase != PHASE_IDLE)
        return xasprintf("in %s%s %lld", phase_name(p->phase), phase_of(p->phase),
                         (long long)p->step);
    return xasprintf("during %s", stage_name(d->stage));
}

static struct cause cause_at(const struct driver *d, int rank, int code)
{
    const struct progress *p = &d->seats[rank].at;
    return (struct cause){.rank = rank,
                          .code = code,
                          .phase = p->phase,
                          .step = d->stage == STAGE_TRAIN ? p->step : d->run.step};
}

void end_lost(struct driver *d, int rank, const char *why)
{
    struct cause c = cause_at(d, rank, ERR_PEER);
    char *who = driver_label(d, rank), *where = where_of(d, rank);
    c.is_lost = 1;
    end_accuse(d, c, 0, "%s was lost, last seen %s: %s", who, where, why);
    free(where);
    free(who);
}

void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
{
    char *who = driver_label(d, rank), *text;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    if (rank > 0 && !d->seats[rank].is_member) {
        struct conn *c = d->seats[rank].conn;
        gather_leave(d, rank, text);
        queue_close(&d->out, c->id, text);
        driver_drop_conn(d, c);
    } else {
        end_accuse(d, cause_at(d, rank, ERR_PROTO), 0, "%s broke the protocol during %s: %s", who,
                   stage_name(d->stage), text);
    }
    free(text);
    free(who);
}

void end_at_once(struct driver *d)
{
    const char *how = d->o.how_to_resume;
    char *text =
        d->o.evaluate ? xasprintf("the evaluation was stopped by %s", d->ending.stop_why)
        : d->run.saved_path
            ? xasprintf("stopped at once by %s; the newest checkpoint is %s%s%s",
                        d->ending.stop_why, d->run.saved_path, how ? "; resume with: " : "",
                        how ? how : "")
            : xasprintf("stopped at once by %s; no checkpoint was written", d->ending.stop_why);
    end_send_abort(d, text, NULL, 0);
    begin_ending(d, STATUS_STOPPED, text, 1, 0);
    free(text);
}

/* End without a message to the followers.  An Abort would end them; a connection that just closes
 * makes them look for the driver that leads. */
static void end_silently(struct driver *d, char *text)
{
    queue_log(&d->out, LOG_ERROR, "%s", text);
    d->ending.is_silent = 1;
    for (int i = 0; i < d->n_conns; i++) {
        queue_close(&d->out, d->conns[i]->id, text);
        if (d->conns[i]->state == CONN_MEMBER)
            seat_clear(d, d->conns[i]->rank);
    }
    while (d->n_conns > 0)
        driver_drop_conn(d, d->conns[0]);
    begin_ending(d, STATUS_FAILED, text, 1, 0);
}

void end_deposed(struct driver *d, const char *by)
{
    if (d->stage >= STAGE_ENDING)
        return;
    char *text =
        xasprintf("another driver leads this run: %s; this one ends, and writes nothing more", by);
    d->ending.is_deposed = 1;
    end_silently(d, text);
    free(text);
}

void end_unelected(struct driver *d, const char *who, const char *remedy)
{
    if (d->stage >= STAGE_ENDING)
        return;
    char *text = xasprintf("%s may lead this run: neither it nor enough ranks were heard for %g s "
                           "(cluster.driver_timeout); this one ends, and writes nothing more%s",
                           who, 1e-3 * (double)d->o.cluster.driver_timeout_ms, remedy);
    end_silently(d, text);
    free(text);
}

void end_fini(struct driver *d)
{
    free(d->ending.stop_why);
    end_forget_pending(d);
    free(d->ending.text);
}

/* ---- deadlines ---- */

/* The time when a rank last moved on, as it must in training; INT64_MAX if it has finished. */
static int64_t moved_ms(const struct driver *d, int rank)
{
    return d->seats[rank].answer ? INT64_MAX : d->seats[rank].moved_ms;
}

/* A rank that has been silent since another rank progressed may have progressed, too: only ranks
 * heard since then count. */
static int64_t oldest_move(const struct driver *d)
{
    int64_t oldest = INT64_MAX, newest = INT64_MIN;
    for (int k = 0; k < d->n_ranks; k++)
        newest = max_i64(newest, d->seats[k].moved_ms);
    for (int k = 0; k < d->n_ranks; k++)
        if (k == 0 || d->seats[k].heard_ms >= newest)
            oldest = min_i64(oldest, moved_ms(d, k));
    return oldest;
}

static const struct {
    const char *name; /* the key of cluster.deadlines */
    size_t offset;    /* in struct cluster_deadlines */
} deadlines[STAGE_COUNT] = {
    [STAGE_GATHER] = {"gather", offsetof(struct cluster_deadlines, gather_ms)},
#define X(KIND, name, ANSWER, deadline) \
    [STAGE_##KIND] = {#deadline, offsetof(struct cluster_deadlines, deadline##_ms)},
    STAGE_LIST(X)
#undef X
};

static int is_readying(const struct driver *d)
{
    return d->stage == STAGE_GATHER && d->gather.full_ms >= 0;
}

int end_is_saving(const struct driver *d)
{
    return d->stage == STAGE_TRAIN && d->seats[0].at.phase == PHASE_CHECKPOINT;
}

static const char *deadline_name(const struct driver *d)
{
    if (end_is_saving(d))
        return deadlines[STAGE_CHECKPOINT].name;
    return is_readying(d) ? "ready" : deadlines[d->stage].name;
}

/* A follower sends its progress once in an interval of heartbeats, so a step's deadline is at least
 * this many intervals. */
enum { LEAST_BEATS = 3 };

int64_t end_deadline_ms(const struct driver *d)
{
    if (is_readying(d))
        return d->o.cluster.deadlines.ready_ms;
    if (end_is_saving(d))
        return d->o.cluster.deadlines.checkpoint_ms;
    if (d->stage == STAGE_TRAIN)
        return max_i64(d->o.cluster.deadlines.step_ms, LEAST_BEATS * d->beat_ms);
    return *(const int64_t *)((const char *)&d->o.cluster.deadlines + deadlines[d->stage].offset);
}

int64_t end_stage_deadline(const struct driver *d)
{
    if (d->stage == STAGE_WAIT)
        return recover_deadline(d);
    if (!deadlines[d->stage].name)
        return INT64_MAX;
    int64_t since = d->stage_ms;
    if (is_readying(d))
        since = d->gather.full_ms;
    else if (end_is_saving(d))
        since = d->seats[0].moved_ms;
    else if (d->stage == STAGE_TRAIN)
        since = oldest_move(d);
    return since == INT64_MAX ? INT64_MAX : since + end_deadline_ms(d);
}

/* The time for which an engine may still be in this phase after it was told to leave a formation.
 * It leaves a collective at once, but finishes other work first. */
static int64_t leave_ms(const struct driver *d, enum phase phase)
{
    if (phase == PHASE_FORM || phase_is_collective(phase))
        return max_i64(d->timeout_ms, LEAST_BEATS * d->beat_ms) + 2 * d->beat_ms;
    if (phase_is_step(phase))
        return max_i64(d->o.cluster.deadlines.step_ms, LEAST_BEATS * d->beat_ms);
    if (phase == PHASE_VALIDATE)
        return d->o.cluster.deadlines.validate_ms;
    return phase == PHASE_CHECKPOINT ? d->o.cluster.deadlines.checkpoint_ms : INT64_MAX;
}

/* Of the ranks whose engine has not left the last formation's command, the one that must do so
 * first, and the time.  Only in STAGE_PREPARE; -1: all have left. */
static int first_to_leave(const struct driver *d, int64_t *until_ms)
{
    int found = -1;
    *until_ms = INT64_MAX;
    for (int k = 0; k < d->n_ranks && d->stage == STAGE_PREPARE; k++) {
        const struct seat *s = &d->seats[k];
        int64_t ms = s->answer ? INT64_MAX : leave_ms(d, s->at.phase);
        if (ms >= *until_ms - d->stage_ms)
            continue;
        *until_ms = d->stage_ms + ms;
        found = k;
    }
    return found;
}

int64_t end_due(const struct driver *d)
{
    int64_t leave_until_ms;
    first_to_leave(d, &leave_until_ms);
    return min_i64(leave_until_ms, end_stage_deadline(d));
}

/* 1: gathering waits for this rank: for a follower, or once all seats are taken for its Ready. */
static int is_missing(const struct driver *d, int rank)
{
    const struct seat *s = &d->seats[rank];
    return is_readying(d) ? !s->opened : !s->is_taken;
}

static int first_missing(const struct driver *d)
{
    for (int k = 0; k < d->n_ranks; k++)
        if (is_missing(d, k))
            return k;
    return -1;
}

static void name_missing(const struct driver *d, struct buf *b)
{
    int n = 0;
    for (int k = 0; k < d->n_ranks; k++) {
        const struct seat *s = &d->seats[k];
        if (!is_missing(d, k) || ++n > 8)
            continue;
        buf_printf(b, n > 1 ? ", rank %d" : "rank %d", k);
        if (!s->is_taken)
            continue;
        buf_printf(b, " (%s: in %s", s->host, phase_name(s->at.phase));
        if (k > 0)
            buf_printf(b, ", heard %.1f s ago", 1e-3 * (double)(d->now_ms - s->heard_ms));
        buf_printf(b, ")");
    }
    if (n > 8)
        buf_printf(b, " and %d more", n - 8);
}

static void gather_too_long(struct driver *d)
{
    if (d->lead.release_ms) { /* the job is finished, so nobody is needed any more */
        d->lead.release_ms = d->now_ms;
        lead_releases(d);
        return;
    }
    int rank = first_missing(d);
    struct cause c = {.rank = rank, .code = ERR_TIMEOUT, .phase = PHASE_COUNT, .step = d->run.step};
    struct buf missing = {0};

    if (rank < 0) /* all are ready, and the votes are not enough: driver_succession.c has a limit */
        return;
    if (d->seats[rank].is_taken)
        c = cause_at(d, rank, ERR_TIMEOUT);
    name_missing(d, &missing);
    end_accuse(d, c, 0, "%s took longer than %g s (cluster.deadlines.%s); missing: %s",
               deadline_name(d), 1e-3 * (double)end_deadline_ms(d), deadline_name(d),
               buf_cstr(&missing));
    buf_fini(&missing);
}

/* 1: the rank is silent, and will soon be lost or heard again, so its deadline can wait until then.
 */
static int is_soon_lost(const struct driver *d, int rank)
{
    enum { SOON_MS = 3000 };
    return rank > 0 && watch_is_silent(d, rank) &&
           d->seats[rank].heard_ms + d->timeout_ms - d->now_ms <= SOON_MS;
}

/* While all ranks connect, one that hangs cannot be distinguished from the others.  It can be when
 * all are to form again, because its engine does not leave the formation.  1: such a rank was
 * accused. */
static int accuse_who_hangs(struct driver *d)
{
    int64_t until_ms;
    int rank = first_to_leave(d, &until_ms);
    if (rank < 0 || d->now_ms < until_ms || is_soon_lost(d, rank))
        return 0;
    const char *phase = phase_name(d->seats[rank].at.phase);
    char *who = driver_label(d, rank);
    end_accuse(d, cause_at(d, rank, ERR_TIMEOUT), 0,
               "%s hangs in %s: it was told to leave it %.1f s ago", who, phase,
               1e-3 * (double)(d->now_ms - d->stage_ms));
    free(who);
    return 1;
}

/* The cause of a deadline that has passed.  While ranks connect, or while all wait in the same
 * all-reduce, no rank can be named. */
static struct cause cause_of(const struct driver *d, const struct watch_view *v)
{
    struct cause c = cause_at(d, max_i64(v->first, 0), ERR_TIMEOUT);
    c.is_consequence = v->first < 0;
    if (v->first < 0)
        c.rank = -1;
    return c;
}

void end_deadline(struct driver *d)
{
    if (d->stage == STAGE_GATHER) {
        gather_too_long(d);
        return;
    }
    if (accuse_who_hangs(d))
        return;
    struct watch_view v = watch_look(d);
    struct buf line = {0};
    if (is_soon_lost(d, v.first))
        return;
    double seconds = 1e-3 * (double)end_deadline_ms(d);
    watch_put_line(d, &v, &line);
    incident_begin(d, buf_cstr(&line));
    if (d->stage == STAGE_TRAIN)
        end_accuse(d, cause_of(d, &v), 0, "no progress for %g s (cluster.deadlines.%s): %s",
                   seconds, deadline_name(d), buf_cstr(&line));
    else
        end_accuse(d, cause_of(d, &v), 0, "%s took longer than %g s (cluster.deadlines.%s): %s",
                   deadline_name(d), seconds, deadline_name(d), buf_cstr(&line));
    buf_fini(&line);
}
