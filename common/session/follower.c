/* The functions of follower.h: the driver's messages, the operator, time, and the end.
 *
 * Reports of the engine are in follower_report.c, messages to the driver in follower_send.c. */
#include "session/follower.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/follower_impl.h"

enum {
    WELCOME_MS = 10000,
    STOP_MS = 5000,
    CHECK_MS = 250,
};

/* ---- what is always true ---- */

void follower_set_stage(struct follower *f, enum stage stage)
{
    static const unsigned moves[] = {
        [STAGE_HELLO] = 1u << STAGE_JOINED | 1u << STAGE_SEEK | 1u << STAGE_ENDING,
        [STAGE_JOINED] = 1u << STAGE_SEEK | 1u << STAGE_ENDING,
        [STAGE_SEEK] = 1u << STAGE_HELLO | 1u << STAGE_ENDING,
        [STAGE_ENDING] = 1u << STAGE_OVER,
        [STAGE_OVER] = 0,
    };
    ASSERT((size_t)f->stage < ARRAY_LEN(moves) && (size_t)stage < ARRAY_LEN(moves));
    ASSERT(moves[f->stage] >> stage & 1);
    f->stage = stage;
}

/* At both ends of an event. */
static void follower_check_state(const struct follower *f)
{
    ASSERT(f->stage <= STAGE_OVER);
    ASSERT((f->stage >= STAGE_ENDING) == (f->text != NULL));
    ASSERT(f->has_engine || (f->stage != STAGE_JOINED && f->stage != STAGE_SEEK));
    ASSERT(f->has_engine || f->doing == 0);
    ASSERT(f->aborted <= f->generation);
    ASSERT(!f->is_waiting || f->aborted == f->generation);
    ASSERT(!f->leaving || f->n_stops > 0 || *f->source);
    ASSERT(f->stage != STAGE_SEEK || (f->kept.run && f->kept.why));
    ASSERT(f->stage != STAGE_JOINED || (f->kept.leader && f->driver_host));
}

/* ---- ending ---- */

static void check_over(struct follower *f)
{
    if (f->stage != STAGE_ENDING || (!f->is_engine_stopped && f->now_ms < f->engine_until_ms))
        return;
    follower_set_stage(f, STAGE_OVER);
    queue_put(&f->out,
              &(struct action){.kind = ACTION_FINISHED,
                               .finished = {.status = f->status,
                                            .retry = f->is_engine_stopped ? f->retry : RETRY_NOT,
                                            .is_engine_stuck = !f->is_engine_stopped,
                                            .text = xstrdup(f->text)}});
}

void follower_finish(struct follower *f, struct ending e, const char *fmt, ...)
{
    va_list ap;
    ASSERT(f->stage < STAGE_ENDING && !f->text);
    va_start(ap, fmt);
    f->text = xvasprintf(fmt, ap);
    va_end(ap);
    follower_set_stage(f, STAGE_ENDING);
    int is_stopped = f->is_drained || (f->leaving && e.status != STATUS_OK);
    f->status = is_stopped ? STATUS_STOPPED : e.status;
    f->retry =
        f->n_stops > 0 || *f->source || f->is_drained || f->is_gpu_lost ? RETRY_NOT : e.retry;
    if (!e.is_closed)
        queue_close(&f->out, CONN, f->text);
    if (!f->has_engine) {
        f->is_engine_stopped = 1;
        return;
    }
    if (e.is_abort || f->doing)
        queue_abort(&f->out);
    queue_command(&f->out, cmd_new(CMD_STOP, f->generation));
    f->engine_until_ms = f->now_ms + (e.is_abort ? ENGINE_ABORT_MS : STOP_MS);
}

/* End because no driver has answered.  TLS gives the reason why a driver did not let this follower
 * in: "ADDRESS: the secrets differ". */
static void finish_unanswered(struct follower *f, struct ending e, const char *why)
{
    const char *text = strstr(why, ": ");
    if (text && !memchr(why, ' ', (size_t)(text - why)))
        follower_finish(f, e, "the driver at %s does not let this follower in%s", f->o.driver,
                        text);
    else
        follower_finish(f, e, "no answer from the driver at %s: %s%s", f->o.driver, why,
                        e.is_closed ? "; if it refused this follower, its log says why" : "");
}

/* The connection with the driver has failed.
 *
 * is_gone 1: the driver may have died, so the follower keeps its state and seeks it.  0: the driver
 * misbehaved, or does not let this follower in, so the follower ends.  But while the follower seeks
 * its driver, any process may answer at the address, and its answer proves nothing; then the search
 * goes on.  `bye` is the reason in the Goodbye to the driver. */
static void follower_lost_driver(struct follower *f, int is_closed, int is_gone, const char *why,
                                 const char *bye)
{
    struct ending e = {
        .status = STATUS_FAILED, .retry = RETRY_SOON, .is_closed = is_closed, .is_abort = 1};
    ASSERT(f->stage == STAGE_HELLO || f->stage == STAGE_JOINED);
    if (!is_closed && f->stage == STAGE_JOINED)
        follower_send_goodbye(f, bye, 0); /* perhaps only one direction is broken */
    if (is_gone && f->stage == STAGE_JOINED && keep_is_possible(f)) {
        keep_seek(f, is_closed, why);
    } else if (f->stage == STAGE_HELLO && f->has_engine) {
        keep_seek_on(f, is_closed, why);
    } else if (f->stage == STAGE_HELLO) {
        e.status = STATUS_REFUSED;
        if (is_gone || f->o.launch) /* at other ports there may be the driver */
            e.retry = RETRY_UNANSWERED;
        finish_unanswered(f, e, why);
    } else if (f->leaving) {
        follower_finish(f, e, "%s", f->leaving);
    } else if (f->fault && !f->is_consequence) {
        follower_finish(f, e, "%s", f->fault);
    } else {
        follower_finish(f, e, "lost the driver at %s in %s%s %lld: %s", f->o.driver,
                        phase_name(f->at.phase), phase_of(f->at.phase), (long long)f->at.step, why);
    }
}

/* ---- life and time ---- */

void follower_enter(struct follower *f, int64_t now_ns)
{
    f->now_ns = now_ns;
    f->now_ms = session_enter_ms(&f->clock, now_ns);
    follower_check_state(f);
}

void follower_leave(struct follower *f)
{
    int64_t due = INT64_MAX;
    check_over(f);
    follower_check_state(f);
    if (f->stage == STAGE_HELLO)
        due = min_i64(f->heard_ms + f->timeout_ms,
                      f->now_ms + CHECK_MS); /* a stall of ours is no silence of the driver's */
    else if (f->stage == STAGE_JOINED)
        due = min_i64(f->next_beat_ms, min_i64(f->heard_ms + f->timeout_ms,
                                               f->fault ? f->fault_until_ms : INT64_MAX));
    if (f->stage == STAGE_JOINED && f->leaving)
        due = min_i64(due, f->leave_until_ms);
    if (f->stage == STAGE_SEEK)
        due = min_i64(f->kept.until_ms, f->now_ms + CHECK_MS);
    if (f->stage == STAGE_ENDING)
        due = min_i64(f->engine_until_ms, f->now_ms + CHECK_MS); /* the same */
    session_leave(&f->clock, due);
}

int64_t follower_deadline(const struct follower *f) { return f->clock.due_ns; }

struct follower *follower_new(const struct follower_options *o, int64_t now_ns)
{
    struct follower *f = xcalloc(1, sizeof *f);
    ASSERT(o->n_gpus >= 0 && o->n_backends >= 0);
    f->o.data_dir = o->data_dir ? xstrdup(o->data_dir) : NULL;
    f->o.launch = o->launch ? xstrdup(o->launch) : NULL;
    f->o.driver = xstrdup(o->driver ? o->driver : "?");
    f->o.keeps_state = o->keeps_state;
    f->o.is_proven = o->is_proven;
    f->rank = -1;
    f->aborted = -1;
    f->device = xstrdup("");
    f->timeout_ms = o->welcome_ms > 0 ? o->welcome_ms : WELCOME_MS;
    queue_init(&f->out);
    f->clock.due_ns = INT64_MAX;
    follower_enter(f, now_ns);
    f->heard_ms = f->now_ms;
    follower_send_hello(f, o);
    follower_leave(f);
    return f;
}

void follower_connected(struct follower *f, const struct follower_options *o, int64_t now_ns)
{
    follower_enter(f, now_ns);
    ASSERT(f->stage >= STAGE_SEEK);
    if (f->stage != STAGE_SEEK) {
        queue_close(&f->out, CONN, "the search for a driver has ended");
        follower_leave(f);
        return;
    }
    free((void *)(uintptr_t)f->o.driver);
    f->o.driver = xstrdup(o->driver);
    f->o.is_proven = o->is_proven;
    follower_set_stage(f, STAGE_HELLO);
    f->timeout_ms = o->welcome_ms > 0 ? o->welcome_ms : WELCOME_MS;
    f->heard_ms = f->now_ms;
    follower_send_hello(f, o);
    follower_leave(f);
}

void follower_free(struct follower *f)
{
    if (!f)
        return;
    keep_fini(f);
    free((void *)(uintptr_t)f->o.data_dir);
    free((void *)(uintptr_t)f->o.launch);
    free((void *)(uintptr_t)f->o.driver);
    free(f->device);
    free(f->driver_host);
    free(f->heeds);
    free(f->fault);
    free(f->leaving);
    free(f->text);
    queue_fini(&f->out);
    free(f);
}

/* ---- from the driver ---- */

static void broke_protocol(struct follower *f, const char *what, const char *why)
{
    char *text = xasprintf("it broke the protocol: %s: %s", what, why);
    follower_lost_driver(f, 0, 0, text, text);
    free(text);
}

/* The engine opens job and data. */
static void open_engine(struct follower *f, const Wire__Welcome *w)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    ASSERT(!f->has_engine && f->doing == 0);
    f->at = (struct progress){.phase = PHASE_OPEN, .bucket = -1};
    f->moved_ms = f->now_ms;
    c->open.rank = w->rank;
    c->open.n_ranks = w->n_ranks;
    c->open.job = blob_of(w->job.data, w->job.len);
    c->open.data_dir = f->o.data_dir ? xstrdup(f->o.data_dir) : NULL;
    c->open.inject = *w->inject ? xstrdup(w->inject) : NULL;
    c->open.predicts = w->predicts;
    f->has_engine = 1;
    f->doing = CMD_OPEN;
    queue_command(&f->out, c);
}

static void follower_on_welcome(struct follower *f, const Wire__Welcome *w)
{
    ASSERT(f->stage == STAGE_HELLO);
    follower_set_stage(f, STAGE_JOINED);
    f->rank = w->rank;
    f->n_ranks = w->n_ranks;
    f->is_spare = w->spare;
    f->echo_ns = 0; /* of the driver before */
    free(f->device);
    free(f->driver_host);
    free(f->heeds);
    f->heeds = xasprintf("%.*s", (int)w->notice.len, (const char *)w->notice.data);
    f->device = xstrdup(w->device);
    f->driver_host = xstrdup(w->host);
    f->beat_ms = w->heartbeat_ms;
    f->timeout_ms = w->heartbeat_timeout_ms;
    f->next_beat_ms = f->now_ms + f->beat_ms;
    keep_note_welcome(f, w);
    if (f->has_engine) {
        keep_rejoin(f, w);
        return;
    }
    if (f->is_spare)
        queue_log(&f->out, LOG_INFO, "joined the driver at %s (%s) as a spare, on %s", f->o.driver,
                  f->driver_host, f->device);
    else
        queue_log(&f->out, LOG_INFO, "joined the driver at %s (%s) as rank %d of %d, on %s",
                  f->o.driver, f->driver_host, f->rank, f->n_ranks, f->device);
    open_engine(f, w);
}

/* Tells whether the follower is to try again after this refusal.  If its job or data are wrong, it
 * would be refused again.  But a place may become free, and another driver may come. */
static enum retry retry_of(Wire__Reason reason)
{
    switch (reason) {
    case WIRE__REASON__REASON_ENDING:
    case WIRE__REASON__REASON_FINISHED:
        return RETRY_SOON;
    case WIRE__REASON__REASON_STALE:
        return RETRY_AS_NEW;
    case WIRE__REASON__REASON_OTHER_JOB:
        return RETRY_UNANSWERED;
    case WIRE__REASON__REASON_VERSION:
    case WIRE__REASON__REASON_RANK_TAKEN:
    case WIRE__REASON__REASON_FULL:
    case WIRE__REASON__REASON_DEVICE:
        return RETRY_LATER;
    default:
        return RETRY_NOT;
    }
}

/* 1: this refusal ends the search for the driver.  A follower that seeks its driver believes only
 * these reasons, and only from a driver that has proven that it knows the secret.  Without a secret
 * it believes a driver that names the run.  That is no proof, but the driver of another job at the
 * same address does not know the run's name. */
static int is_for_good(const struct follower *f, const Wire__Refused *r)
{
    int is_final =
        r->reason == WIRE__REASON__REASON_ENDING || r->reason == WIRE__REASON__REASON_FINISHED ||
        r->reason == WIRE__REASON__REASON_STALE || r->reason == WIRE__REASON__REASON_VERSION;
    int is_of_run = f->kept.run && !strcmp(r->run, f->kept.run);
    return is_final && (f->o.is_proven || is_of_run);
}

static void follower_on_refused(struct follower *f, const Wire__Refused *r)
{
    if (f->stage == STAGE_HELLO && f->has_engine && !is_for_good(f, r)) {
        keep_seek_on(f, 0, r->text);
        return;
    }
    if (f->has_engine && r->reason == WIRE__REASON__REASON_FINISHED) {
        follower_finish(f, (struct ending){.status = STATUS_OK, .retry = RETRY_SOON}, "%s",
                        r->text);
        return;
    }
    follower_finish(
        f, (struct ending){.status = STATUS_REFUSED, .retry = retry_of(r->reason), .is_abort = 1},
        "refused by the driver at %s: %s", f->o.driver, r->text);
}

static void follower_on_stop(struct follower *f, const Wire__Stop *s)
{
    static const int status[] = {
        [WIRE__OUTCOME__OUTCOME_NONE] = STATUS_FAILED,
        [WIRE__OUTCOME__OUTCOME_FINISHED] = STATUS_OK,
        [WIRE__OUTCOME__OUTCOME_STOPPED] = STATUS_STOPPED,
        [WIRE__OUTCOME__OUTCOME_FAILED] = STATUS_FAILED,
    };
    follower_finish(f, (struct ending){.status = status[s->outcome], .retry = RETRY_SOON}, "%s",
                    s->text);
}

static void on_drain(struct follower *f, const Wire__Drain *m)
{
    f->is_drained = !m->taken_back;
    f->kept.is_wrong |= m->wrong;
    if (m->wrong)
        queue_log(&f->out, LOG_WARN,
                  "bits of this rank were wrong, so %s: test its memory and its processor",
                  m->taken_back ? "it leaves once the job can do without it"
                                : "this follower leaves when the driver lets it, and for good");
    else
        queue_log(&f->out, LOG_INFO, "drained by the operator of the driver: %s",
                  m->taken_back ? "taken back, as too few ranks are left; this one stays"
                                : "this follower leaves when the driver lets it, and for good");
}

/* 1: Form has an endpoint for each rank, or else ids for all. */
static int fits_ranks(const struct cmd *c, int n_ranks)
{
    ASSERT(c->kind == CMD_FORM && n_ranks >= 1);
    if (c->form.ids.len == 0)
        return c->form.n_endpoints == n_ranks;
    return c->form.n_endpoints == 0 && c->form.ids.len == (size_t)msg_n_ids(n_ranks) * MSG_ID;
}

/* The reason why a well-formed command is wrong at this moment, or NULL. */
static const char *command_fault(const struct follower *f, const struct cmd *c)
{
    if (f->doing)
        return "the one before is not answered yet";
    if (c->kind == CMD_PREPARE &&
        (c->prepare.rank >= c->prepare.n_ranks || c->prepare.local >= c->prepare.n_local ||
         c->prepare.n_local > c->prepare.n_ranks || c->prepare.n_container > c->prepare.n_local ||
         c->generation < 1 || c->generation <= f->aborted))
        return "rank, local rank or generation out of range";
    if (c->kind != CMD_PREPARE && (f->generation == 0 || f->is_waiting))
        return "it came before Prepare";
    if (c->kind == CMD_FORM && (!fits_ranks(c, f->n_ranks) || c->form.source >= f->n_ranks))
        return "another number of ranks than in Prepare";
    return NULL;
}

static void on_command(struct follower *f, const Wire__Control *m)
{
    struct cmd *c = convert_to_command(m);
    const char *why = c ? command_fault(f, c) : "unexpected message";
    if (why) {
        cmd_free(c);
        broke_protocol(f, msg_name(m), why);
        return;
    }
    if (c->kind == CMD_PREPARE) {
        int is_other =
            f->is_spare || f->rank != c->prepare.rank || f->n_ranks != c->prepare.n_ranks;
        f->generation = c->generation;
        f->rank = c->prepare.rank;
        f->n_ranks = c->prepare.n_ranks;
        if (is_other)
            queue_log(&f->out, LOG_INFO, "takes part as rank %d of %d", f->rank, f->n_ranks);
        f->is_waiting = f->is_spare = 0;
    }
    keep_note_command(f, c);
    f->doing = c->kind;
    queue_command(&f->out, c);
}

void follower_abort(struct follower *f)
{
    ASSERT(f->has_engine && f->generation > 0 && !f->is_waiting);
    f->aborted = f->generation;
    f->is_waiting = 1;
    f->doing = 0;
    free(f->fault);
    f->fault = NULL;
    queue_abort(&f->out);
}

/* The job ends at once: by a failure, or by a second signal to the driver. */
static void on_abort(struct follower *f, const Wire__Abort *a)
{
    follower_finish(f,
                    (struct ending){.status = a->stopped ? STATUS_STOPPED : STATUS_FAILED,
                                    .retry = RETRY_SOON,
                                    .is_abort = 1},
                    "%s", a->text);
}

/* Another rank was lost: abort the engine's command, keep the state, and wait for Prepare. */
static void on_pause(struct follower *f, const Wire__Control *m)
{
    if (f->generation == 0 || m->generation != f->generation) {
        broke_protocol(f, msg_name(m), "it is of another generation than Prepare");
        return;
    }
    if (f->is_waiting)
        return; /* it was told so before */
    queue_log(&f->out, LOG_WARN, "%s; this rank keeps its state and waits for the next formation",
              m->abort->text);
    follower_abort(f);
}

static void follower_on_joined(struct follower *f, const Wire__Control *m)
{
    switch (m->body_case) {
    case WIRE__CONTROL__BODY_HEARTBEAT:
        f->echo_ns = m->heartbeat->clock_ns;
        f->echo_at_ns = f->now_ns;
        break;
    case WIRE__CONTROL__BODY_TRACE:
        queue_put(&f->out, &(struct action){.kind = ACTION_TRACE,
                                            .trace = {m->trace->number, m->trace->duration_ns}});
        break;
    case WIRE__CONTROL__BODY_INSPECT:
        f->inspected = m->inspect->incident;
        queue_put(&f->out, &(struct action){.kind = ACTION_RING});
        break;
    case WIRE__CONTROL__BODY_ABORT:
        if (m->abort->recover)
            on_pause(f, m);
        else
            on_abort(f, m->abort);
        break;
    case WIRE__CONTROL__BODY_STOP:
        follower_on_stop(f, m->stop);
        break;
    case WIRE__CONTROL__BODY_DRAIN:
        on_drain(f, m->drain);
        break;
    case WIRE__CONTROL__BODY_STANDBY:
        keep_note_standby(f, m->standby->address);
        break;
    case WIRE__CONTROL__BODY_REFUSED:
        follower_on_refused(f, m->refused);
        break;
    default:
        if (m->generation >= f->generation) /* else it is about a formation that is over */
            on_command(f, m);
    }
}

static void on_hello_answer(struct follower *f, const Wire__Control *m)
{
    if (m->body_case == WIRE__CONTROL__BODY_REFUSED)
        follower_on_refused(f, m->refused);
    else if (m->body_case != WIRE__CONTROL__BODY_WELCOME)
        broke_protocol(f, msg_name(m), "want Welcome or Refused first");
    else if (m->welcome->rank < 1 ||
             (!m->welcome->spare && m->welcome->rank >= m->welcome->n_ranks))
        broke_protocol(f, "Welcome", "rank out of range");
    else if (f->has_engine && (strcmp(m->welcome->run, f->kept.run) != 0 ||
                               strcmp(m->welcome->device, f->device) != 0))
        broke_protocol(f, "Welcome", "it is of another run or device than the state that is kept");
    else if (f->has_engine && m->welcome->term < f->kept.term)
        keep_seek_on(f, 0, "another driver leads the run now");
    else
        follower_on_welcome(f, m->welcome);
}

void follower_message(struct follower *f, int64_t now_ns, const Wire__Control *m)
{
    follower_enter(f, now_ns);
    f->heard_ms = f->now_ms;
    if (f->stage == STAGE_HELLO)
        on_hello_answer(f, m);
    else if (f->stage == STAGE_JOINED)
        follower_on_joined(f, m);
    follower_leave(f);
}

void follower_closed(struct follower *f, int64_t now_ns, const struct err *why)
{
    follower_enter(f, now_ns);
    if (f->stage < STAGE_SEEK)
        follower_lost_driver(f, 1, !why || (why->code != ERR_PROTO && why->code != ERR_REFUSED),
                             session_reason(why), NULL);
    follower_leave(f);
}

/* ---- operator, time ---- */

static void follower_check_silence(struct follower *f)
{
    int64_t silent_ms = f->now_ms - f->heard_ms;
    ASSERT(f->timeout_ms > 0);
    if (silent_ms < f->timeout_ms)
        return;
    double seconds = 1e-3 * (double)silent_ms;
    char *why = xasprintf("no sign of life from the driver for %.1f s", seconds);
    char *bye = xasprintf("it had heard nothing from this driver for %.1f s", seconds);
    follower_lost_driver(f, 0, 1, why, bye);
    free(bye);
    free(why);
}

void follower_tick(struct follower *f, int64_t now_ns)
{
    follower_enter(f, now_ns);
    if (f->stage < STAGE_SEEK)
        follower_check_silence(f);
    keep_check(f);
    if (f->stage == STAGE_JOINED && f->fault && f->now_ms >= f->fault_until_ms)
        follower_finish(
            f, (struct ending){.status = STATUS_FAILED, .retry = RETRY_SOON, .is_abort = 1}, "%s",
            f->fault);
    if (f->stage == STAGE_JOINED && f->leaving && f->now_ms >= f->leave_until_ms) {
        follower_send_goodbye(f, f->leaving, 0);
        follower_finish(f, (struct ending){.status = STATUS_STOPPED, .is_abort = 1}, "%s",
                        f->leaving);
    }
    if (f->stage == STAGE_JOINED && f->now_ms >= f->next_beat_ms)
        follower_send_beat(f);
    follower_leave(f);
}

int follower_next(struct follower *f, struct action *out) { return queue_take(&f->out, out); }

int follower_rank(const struct follower *f) { return f->rank; }
int follower_is_spare(const struct follower *f) { return f->is_spare; }

const char *follower_device(const struct follower *f) { return f->device; }

const char *follower_heeds(const struct follower *f) { return f->heeds; }
