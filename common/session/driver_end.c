/* The end of a job.
 *
 * In order: Stop goes to all, the engine gets CMD_STOP, the followers close, ACTION_FINISHED.
 *
 * By a failure: the code that notices a failure calls end_accuse.  A genuine cause ends the job at
 * once: the same text goes to all ranks in Abort, to the log and into events.jsonl.  A consequence
 * is a collective that broke off because another rank left.  After a consequence the driver waits
 * up to GRACE_MS for the cause, and longer while a rank is silent that may turn out to be lost.
 *
 * A failure that costs a rank but not the job goes another way: driver_apply.c and
 * driver_recover.c.
 *
 * The followers close first, so that an Abort is not lost in a connection that is reset. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- ending ---- */

static void tell_all(struct driver *d, const Wire__Control *m, int64_t linger_ms)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(f);
    size_t at = 0;
    succession_release(d);
    for (struct conn *c; (c = conn_up(d, &at));) {
        if (c->state != CONN_MEMBER && c->state != CONN_STANDBY)
            continue;
        queue_send(d->out, c->id, frame_ref(f));
        conn_leave(&d->membership, c, linger_ms);
    }
    frame_unref(f);
}

/* Tell the members of the formation, which stay. */
static void tell_ranks(struct driver *d, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    ASSERT(d->stage > STAGE_WAIT && d->stage < STAGE_ENDING);
    ASSERT(f);
    for (int k = 1; k < d->membership.n_ranks; k++)
        if (d->seats[k].is_taken && d->seats[k].is_member)
            queue_send(d->out, d->seats[k].conn->id, frame_ref(f));
    frame_unref(f);
}

static void stop_engine(struct driver *d, int saves)
{
    struct cmd *c = cmd_new(CMD_STOP, d->formation.generation);
    ASSERT(d->stage == STAGE_ENDING);
    c->stop.saves = saves;
    queue_command(d->out, c);
}

/* All followers have been told of the end.  Stop the engine, which first saves its state if asked
 * to, then wait for all. */
static void begin_ending(struct driver *d, int status, const char *text, int is_abort, int saves)
{
    int64_t wait_ms = is_abort ? ABORT_MS : STOP_MS;
    ASSERT(d->stage < STAGE_ENDING && !d->ending.text && text);
    ASSERT(status >= STATUS_OK && status <= STATUS_STOPPED);
    run_say_epoch(&d->run);
    stranger_say_rest(&d->membership);
    inject_at_stop(d);
    inject_say_unspent(d);
    stage_enter(d, STAGE_ENDING);
    d->ending.status = status;
    d->ending.text = xstrdup(text);
    if (is_abort || d->is_engine_busy)
        queue_abort(d->out);
    stop_engine(d, saves);
    d->ending.engine_until_ms = d->ending.conns_until_ms = d->now_ms + wait_ms;
    end_check_over(d);
}

/* 1: a follower was told to leave and has not closed yet.  The driver does not wait for connections
 * that never said Hello. */
static int end_is_awaited(const struct driver *d)
{
    size_t at = 0;
    for (const struct conn *c; (c = conn_up(d, &at));)
        if (c->state == CONN_LEAVING)
            return d->now_ms < d->ending.conns_until_ms;
    return 0;
}

/* 1: the engine may be at this for long before it obeys.  A device's recorded step is not: it
 * breaks off with its collectives. */
static int is_work(enum phase phase)
{
    return phase == PHASE_VALIDATE || (phase_is_step(phase) && !phase_is_collective(phase));
}

/* 1: another rank has failed, and rank 0 still writes a checkpoint, which it may finish. */
static int is_still_saving(const struct driver *d)
{
    return d->now_ms < d->ending.saves_until_ms && d->seats[0].at.phase == PHASE_CHECKPOINT;
}

/* Another rank has failed, and rank 0 is to save its state, but does its part of a step.  It has
 * the time for that, and then for obeying CMD_STOP.  Nothing else says why the job does not end. */
static int end_waits_for_step(struct driver *d)
{
    const struct progress *p = &d->seats[0].at;
    if (d->now_ms < d->ending.works_until_ms && is_work(p->phase)) {
        d->ending.obeys_until_ms = d->now_ms + ABORT_MS;
        if (d->now_ms >= d->ending.engine_until_ms && !d->ending.is_work_told) {
            queue_log(d->out, LOG_INFO, "rank 0 saves its state when it has done %s%s %lld",
                      phase_name(p->phase), phase_of(p->phase), (long long)p->step);
            d->ending.is_work_told = 1;
        }
    }
    return d->now_ms < d->ending.obeys_until_ms;
}

void end_check_over(struct driver *d)
{
    int waits, is_late;
    if (d->stage != STAGE_ENDING)
        return;
    waits = !d->ending.is_engine_stopped && end_waits_for_step(d);
    is_late = d->now_ms >= d->ending.engine_until_ms && !waits && !is_still_saving(d);
    if ((!d->ending.is_engine_stopped && !is_late) || end_is_awaited(d))
        return;
    for (struct conn *c; (c = conn_first(d));) {
        queue_close(d->out, c->id, "the job is over");
        conn_drop(&d->membership, c);
    }
    stage_enter(d, STAGE_OVER);
    incident_finish(&d->watch);
    queue_put(d->out, &(struct action){.kind = ACTION_FINISHED,
                                       .finished = {.status = d->ending.status,
                                                    .is_engine_stuck = !d->ending.is_engine_stopped,
                                                    .is_deposed = d->ending.is_deposed,
                                                    .text = xstrdup(d->ending.text)}});
}

void end_send_stop(struct driver *d, Wire__Outcome outcome, const char *text, struct conn *only)
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
    if (only)
        driver_send(d, only, &m);
    else
        tell_all(d, &m, STOP_MS);
    arena_fini(&a);
}

void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
{
    va_list ap;
    char *text;
    ASSERT(d->stage < STAGE_ENDING);

    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    if (status == STATUS_FAILED)
        queue_log(d->out, LOG_ERROR, "%s", text);
    end_send_stop(d, outcome, text, NULL);
    begin_ending(d, status, text, 0, 0);
    free(text);
}

/* The event `done` comes last.  So if the driver is killed before it has told all followers, there
 * is no `done`, and its successor tells them (driver_lead.c). */
void end_finished(struct driver *d, struct session_event *done, const char *fmt, ...)
{
    va_list ap;
    char *text;
    ASSERT(d->stage < STAGE_ENDING && done->kind == EVENT_DONE);

    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    end_send_stop(d, WIRE__OUTCOME__OUTCOME_FINISHED, text, NULL);
    driver_event(d, done);
    begin_ending(d, STATUS_OK, text, 0, 0);
    free(text);
}

static const char *host_of(const struct driver *d, const struct cause *c)
{
    return c->host ? c->host : c->rank >= 0 ? d->seats[c->rank].host : NULL;
}

void end_send_abort(struct driver *d, const char *text, struct conn *only, enum abort_why why)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Abort abort = WIRE__ABORT__INIT;
    struct arena a;

    arena_init(&a);
    abort.text = msg_text(&a, text, MSG_MAX_TEXT);
    abort.recover = why == ABORT_RECOVERS;
    abort.stopped = why == ABORT_STOPPED;
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_ABORT;
    m.abort = &abort;
    if (only) {
        driver_send(d, only, &m);
        conn_leave(&d->membership, only, ABORT_MS);
    } else if (why == ABORT_RECOVERS) {
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

/* 1: rank 0's state is worth saving.  If another rank or the samples are at fault, rank 0's last
 * applied step is good, and at most one step older than the newest.  After wrong numbers nothing is
 * saved, unless no update has read them. */
static int is_state_good(const struct driver *d, const struct cause *c)
{
    int is_wrong = c->code == ERR_NUMERIC || c->code == ERR_PROTO || c->code == ERR_CORRUPT;
    return d->formation.has_formed && (cause_is_of_data(c) || c->is_unapplied ||
                                       ((c->rank > 0 || c->is_consequence) && !is_wrong));
}

/* 1: rank 0 has a state to save, and needs no other rank for that. */
static int can_save_alone(const struct driver *d)
{
    return !d->o.evaluate && !d->o.is_test && !(d->o.is_divided && d->membership.n_ranks > 1);
}

static void fail_for_good(struct driver *d, const struct cause *c)
{
    const char *host = host_of(d, c);
    const int status = status_of(d, c), saves = is_state_good(d, c);

    ASSERT(c->text && d->stage < STAGE_ENDING);
    queue_log(d->out, LOG_ERROR, "%s", c->text);
    if (c->is_lost && !c->is_final) /* a final cause was told when the rank was lost */
        driver_event(d, &(struct session_event){.kind = EVENT_LOST,
                                                .rank = c->rank,
                                                .step = c->step,
                                                .phase = PHASE_COUNT,
                                                .text = xstrdup(c->text)});
    driver_event(d, &(struct session_event){
                        .kind = EVENT_ERROR,
                        .rank = c->rank,
                        .host = host ? xstrdup(host) : NULL,
                        .step = c->step,
                        .phase = c->phase,
                        .error = {.is_diverged = d->run.nonfinite != NULL,
                                  .is_of_input = d->run.nonfinite && d->run.nonfinite_is_of_input},
                        .text = xstrdup(c->text)});
    if (c->rank != 0 || c->code != ERR_TIMEOUT) {
        /* Its progress tells later what rank 0 does now: it may have begun a step since. */
        const int validates = d->seats[0].at.phase == PHASE_VALIDATE;
        if (saves && can_save_alone(d))
            d->ending.works_until_ms =
                d->now_ms + deadline_of_leaving(d, validates ? PHASE_VALIDATE : PHASE_LOAD);
        d->ending.saves_until_ms =
            max_i64(d->now_ms, d->ending.works_until_ms) + d->o.cluster.deadlines.checkpoint_ms;
    }
    end_send_abort(d, c->text, NULL, ABORT_FAILED);
    begin_ending(d, status, c->text, 1, saves);
    ASSERT(d->stage >= STAGE_ENDING);
}

static void end_fail(struct driver *d, const struct cause *c)
{
    struct cause final = *c;
    char *why_not = NULL;
    if (driver_recover(d, c, &why_not))
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
    ASSERT(c.rank >= -1 && c.rank < d->n_seats && c.code < 0);
    if (d->stage >= STAGE_ENDING)
        return;
    va_start(ap, fmt);
    c.text = xvasprintf(fmt, ap);
    va_end(ap);
    if (!is_consequence) {
        end_fail(d, &c);
        free(c.text);
        end_forget_pending(d);
    } else if (!d->ending.pending.text) {
        queue_log(d->out, LOG_WARN, "%s; looking for the cause", c.text);
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
    for (int k = 1; k < d->membership.n_ranks; k++)
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
    end_fail(d, &c);
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

void end_lost(struct driver *d, int rank, const char *why)
{
    struct cause c = watch_cause_at(d, rank, ERR_PEER);
    char *who = driver_label(d, rank), *where = where_of(d, rank);
    ASSERT(rank > 0 && d->seats[rank].is_member);
    c.is_lost = 1;
    end_accuse(d, c, 0, "%s was lost, last seen %s: %s", who, where, why);
    free(where);
    free(who);
}

void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
{
    char *who = driver_label(d, rank), *text;
    va_list ap;
    ASSERT(rank >= 0 && d->seats[rank].is_taken);
    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    if (rank > 0 && !d->seats[rank].is_member) {
        struct conn *c = d->seats[rank].conn;
        gather_leave(&d->membership, rank, text);
        queue_close(d->out, c->id, text);
        conn_drop(&d->membership, c);
    } else {
        end_accuse(d, watch_cause_at(d, rank, ERR_PROTO), 0, "%s broke the protocol during %s: %s",
                   who, stage_name(d->stage), text);
    }
    free(text);
    free(who);
}

void end_stop_first(struct driver *d)
{
    int is_training = d->stage == STAGE_TRAIN || d->stage <= STAGE_FORM;
    if (d->stage < STAGE_TRAIN && !d->formation.has_formed) {
        end_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED, "stopped by %s before %s began",
                 d->ending.stop_why, d->o.evaluate ? "the evaluation" : "training");
        return;
    }
    if (d->o.evaluate || d->o.is_test) { /* there is nothing to save */
        end_at_once(d);
        return;
    }
    queue_log(d->out, LOG_INFO,
              "%s: stopping after this %s, with a checkpoint; once more to stop "
              "at once",
              d->ending.stop_why,
              is_training                  ? "step"
              : d->stage == STAGE_VALIDATE ? "validation"
                                           : stage_name(d->stage));
    if (is_training) /* or the ranks will be, once they have formed again */
        queue_put(d->out, &(struct action){.kind = ACTION_REQUEST, .request = REQUEST_STOP});
    if (d->stage == STAGE_WAIT)
        driver_try(d);
}

void end_at_once(struct driver *d)
{
    const char *how = d->o.how_to_resume;
    char *text =
        d->o.evaluate ? xasprintf("the evaluation was stopped by %s", d->ending.stop_why)
        : d->run.saved_path && d->run.is_dir_gone
            ? xasprintf("stopped at once by %s; the newest checkpoint was written as %s, and its "
                        "run directory is gone (moved?)",
                        d->ending.stop_why, d->run.saved_path)
        : d->run.saved_path
            ? xasprintf("stopped at once by %s; the newest checkpoint is %s%s%s",
                        d->ending.stop_why, d->run.saved_path, how ? "; resume with: " : "",
                        how ? how : "")
            : xasprintf("stopped at once by %s; no checkpoint was written", d->ending.stop_why);
    ASSERT(d->ending.n_stops > 0 && d->stage < STAGE_ENDING);
    end_send_abort(d, text, NULL, ABORT_STOPPED);
    begin_ending(d, STATUS_STOPPED, text, 1, 0);
    free(text);
}

/* The operator's first signal comes while the job ends, which it does not hasten. */
void end_say_waiting(struct driver *d)
{
    const struct progress *p = &d->seats[0].at;
    char engine[160] = "";

    ASSERT(d->stage == STAGE_ENDING && d->ending.stop_why);
    if (d->ending.is_engine_stopped)
        snprintf(engine, sizeof engine, "its followers to leave");
    else if (is_still_saving(d))
        snprintf(engine, sizeof engine, "rank 0 to write its checkpoint");
    else if (d->now_ms < d->ending.works_until_ms && is_work(p->phase))
        snprintf(engine, sizeof engine, "rank 0, which saves its state when it has done %s%s %lld",
                 phase_name(p->phase), phase_of(p->phase), (long long)p->step);
    else
        snprintf(engine, sizeof engine, "rank 0 to stop");
    queue_log(d->out, LOG_INFO,
              "%s: the job ends already, and waits for %s; a second signal ends "
              "it at once",
              d->ending.stop_why, engine);
}

void end_hurry(struct driver *d)
{
    ASSERT(d->stage == STAGE_ENDING);
    d->ending.conns_until_ms = d->ending.works_until_ms = d->ending.saves_until_ms = d->now_ms;
    d->ending.engine_until_ms = min_i64(d->ending.engine_until_ms, d->now_ms + ABORT_MS);
    d->ending.obeys_until_ms = d->ending.engine_until_ms;
}

/* End without a message to the followers.  An Abort would end them; a connection that just closes
 * makes them look for the driver that leads. */
static void end_silently(struct driver *d, int status, char *text)
{
    queue_log(d->out, status == STATUS_FAILED ? LOG_ERROR : LOG_INFO, "%s", text);
    d->ending.is_silent = 1;
    for (struct conn *c; (c = conn_first(d));) {
        queue_close(d->out, c->id, text);
        if (c->state == CONN_MEMBER)
            seat_clear(&d->membership, c->rank);
        conn_drop(&d->membership, c);
    }
    begin_ending(d, status, text, 1, 0);
    ASSERT(d->membership.conns.n == 0 && d->stage >= STAGE_ENDING);
}

void end_deposed(struct driver *d, const char *why)
{
    if (d->stage >= STAGE_ENDING)
        return;
    char *text = xasprintf("%s; this one ends, and writes nothing more", why);
    d->ending.is_deposed = 1;
    end_silently(d, STATUS_FAILED, text);
    free(text);
}

void end_unelected(struct driver *d, const char *who, const char *remedy)
{
    if (d->stage >= STAGE_ENDING)
        return;
    char *text = xasprintf("%s may lead this run: neither it nor enough ranks were heard for %g s "
                           "(cluster.driver_timeout); this one ends, and writes nothing more%s",
                           who, 1e-3 * (double)d->o.cluster.driver_timeout_ms, remedy);
    end_silently(d, STATUS_FAILED, text);
    free(text);
}

void end_handed_over(struct driver *d)
{
    char *text =
        xasprintf("%s: the standby at %s leads from step %lld on; this driver ends",
                  d->ending.hands_over, d->membership.succession.told, (long long)d->run.step);
    ASSERT(d->stage < STAGE_ENDING && d->ending.hands_over);
    end_silently(d, STATUS_STOPPED, text);
    free(text);
}

void end_fini(struct driver *d)
{
    free(d->ending.notice);
    free(d->ending.hands_over);
    free(d->ending.stop_why);
    end_forget_pending(d);
    free(d->ending.text);
}
