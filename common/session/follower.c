#include "session/follower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/convert.h"
#include "session/queue.h"

enum {
    CONN = 0,
    WELCOME_MS = 10000,
    ABORT_MS = 800,
    STOP_MS = 5000,
    EXPLAIN_MS = 5000,
    CHECK_MS = 250,
    POLITE_MS = 30000 /* for the driver to let it go at the end of a step */
};

enum stage {
    STAGE_HELLO,  /* waits for Welcome */
    STAGE_JOINED, /* does what the driver says */
    STAGE_ENDING, /* connection closed; waits for the engine */
    STAGE_OVER
};

struct follower {
    struct follower_options o; /* its texts are ours; gpus and backends went into Hello */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ms;

    enum stage stage;
    int rank, n_ranks;
    char *device, *driver_host;
    struct blob token;
    int64_t beat_ms, timeout_ms;
    int64_t heard_ms, next_beat_ms;
    int64_t generation;
    int64_t aborted; /* what this generation, or an older one, still reports is of the past */
    int is_waiting;  /* for the next formation */
    int is_spare;
    char *leaving; /* why it leaves, once the driver lets it; or NULL */
    int64_t leave_until_ms;

    int has_engine;         /* CMD_OPEN is out */
    enum cmd_kind doing;    /* not yet answered; 0: nothing */
    struct progress at;     /* of the engine */
    int64_t moved_ms;       /* when its phase began */
    int64_t now_ns;         /* the caller's */
    int has_stepped;        /* its first step is done, or rather: was reported */
    double rss_mib;         /* then */
    char *fault;            /* what this engine cannot go on for */
    int is_consequence;     /* ... which is some other rank's doing */
    int64_t fault_until_ms; /* by then the driver must have said something */

    int64_t inspected; /* the incident that the driver asked about last */

    int n_stops;
    int status, retry, reason;
    char *text;
    int is_engine_stopped;
    int64_t engine_until_ms;
};

/* ---- ending ---- */

static void check_over(struct follower *f)
{
    if (f->stage != STAGE_ENDING || (!f->is_engine_stopped && f->now_ms < f->engine_until_ms))
        return;
    f->stage = STAGE_OVER;
    queue_put(&f->out, &(struct action){.kind = ACTION_FINISHED,
                                        .finished = {.status = f->status,
                                                     .retry = f->retry,
                                                     .reason = f->reason,
                                                     .is_engine_stuck = !f->is_engine_stopped,
                                                     .text = xstrdup(f->text)}});
}

struct ending {
    int status, retry, reason;
    int is_closed; /* the connection is gone already */
    int is_abort;  /* the engine leaves what it does */
};

static void finish(struct follower *f, struct ending e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void finish(struct follower *f, struct ending e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&f->text, fmt, ap) < 0)
        ASSERT(!"out of memory");
    va_end(ap);
    f->stage = STAGE_ENDING;
    f->status = f->leaving && e.status != STATUS_OK ? STATUS_STOPPED : e.status;
    f->retry = e.retry && f->n_stops == 0;
    f->reason = e.reason;
    if (!e.is_closed)
        queue_close(&f->out, CONN, f->text);
    if (!f->has_engine) {
        f->is_engine_stopped = 1;
        return;
    }
    if (e.is_abort || f->doing)
        queue_abort(&f->out);
    queue_command(&f->out, cmd_new(CMD_STOP, f->generation));
    f->engine_until_ms = f->now_ms + (e.is_abort ? ABORT_MS : STOP_MS);
}

static void send_goodbye(struct follower *f, const char *text, int is_polite);

static void lost_driver(struct follower *f, int is_closed, const char *why)
{
    struct ending e = {.status = STATUS_FAILED, .retry = 1, .is_closed = is_closed, .is_abort = 1};
    if (!is_closed && f->stage == STAGE_JOINED)
        send_goodbye(f, why, 0); /* perhaps only one direction is broken */
    if (f->stage == STAGE_HELLO) {
        e.status = STATUS_REFUSED;
        finish(f, e, "no answer from the driver at %s: %s", f->o.driver, why);
    } else if (f->leaving) {
        finish(f, e, "%s", f->leaving);
    } else if (f->fault && !f->is_consequence) {
        finish(f, e, "%s", f->fault);
    } else {
        finish(f, e, "lost the driver at %s in %s of step %lld: %s", f->o.driver,
               phase_name(f->at.phase), (long long)f->at.step, why);
    }
}

/* ---- sending ---- */

static void send(struct follower *f, const Wire__Control *m)
{
    struct err err;
    struct frame *frame = msg_frame(m, &err);
    ASSERT(frame); /* all of these are small */
    queue_send(&f->out, CONN, frame);
}

static void send_hello(struct follower *f, const struct follower_options *o)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Hello h = WIRE__HELLO__INIT;
    struct arena a;

    arena_init(&a);
    h.protocol = MSG_PROTOCOL;
    h.version = msg_text(&a, DPTRAIN_VERSION, 64);
    h.rank = o->rank < 0 ? -1 : o->rank;
    h.host = msg_text(&a, o->host && *o->host ? o->host : "?", MSG_MAX_NAME);
    h.host_id = msg_text(&a, o->host_id && *o->host_id ? o->host_id : h.host, 64);
    h.pid = o->pid;
    h.device = msg_text(&a, o->device ? o->device : "auto", 64);
    h.advertise = msg_text(&a, o->advertise, 64);
    h.token = (ProtobufCBinaryData){o->token_len, (uint8_t *)(uintptr_t)o->token};
    h.n_gpus = (size_t)o->n_gpus;
    h.gpus = arena_alloc(&a, (h.n_gpus + 1) * sizeof(*h.gpus));
    for (size_t i = 0; i < h.n_gpus; i++) {
        h.gpus[i] = arena_alloc(&a, sizeof(**h.gpus));
        wire__gpu__init(h.gpus[i]);
        h.gpus[i]->uuid = msg_text(&a, o->gpus[i].uuid, 64);
        h.gpus[i]->name = msg_text(&a, o->gpus[i].name, 128);
        h.gpus[i]->memory_mib = o->gpus[i].memory_mib;
        h.gpus[i]->index = o->gpus[i].index;
    }
    h.n_backends = (size_t)o->n_backends;
    h.backends = arena_alloc(&a, (h.n_backends + 1) * sizeof(*h.backends));
    for (size_t i = 0; i < h.n_backends; i++)
        h.backends[i] = msg_text(&a, o->backends[i], 64);
    m.body_case = WIRE__CONTROL__BODY_HELLO;
    m.hello = &h;
    send(f, &m);
    arena_fini(&a);
}

/* By the engine's own clock where it says so. */
static int64_t phase_ms(const struct follower *f)
{
    if (f->at.since_ns > 0)
        return max_i64(0, (f->now_ns - f->at.since_ns) / 1000000);
    return max_i64(0, f->now_ms - f->moved_ms);
}

static void send_beat(struct follower *f)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;

    h.epoch = max_i64(f->at.epoch, 0);
    h.step = max_i64(f->at.step, 0);
    h.phase = (Wire__Phase)f->at.phase;
    h.bucket = max_i64(f->at.bucket, -1);
    h.phase_ms = phase_ms(f);
    h.first_step = f->has_stepped;
    h.rss_mib = f->rss_mib > 0 ? f->rss_mib : 0;
    convert_pace(&f->at, f->generation, &h);
    m.generation = f->generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    f->next_beat_ms = f->now_ms + f->beat_ms;
    send(f, &m);
}

static void send_goodbye(struct follower *f, const char *text, int is_polite)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Goodbye g = WIRE__GOODBYE__INIT;
    struct arena a;

    arena_init(&a);
    g.text = msg_text(&a, text, MSG_MAX_TEXT);
    g.polite = is_polite != 0;
    m.generation = f->generation;
    m.body_case = WIRE__CONTROL__BODY_GOODBYE;
    m.goodbye = &g;
    send(f, &m);
    arena_fini(&a);
}

/* ---- life and time ---- */

static void enter(struct follower *f, int64_t now_ns)
{
    f->now_ns = now_ns;
    f->now_ms = session_enter_ms(&f->clock, now_ns);
}

static void leave(struct follower *f)
{
    int64_t due = INT64_MAX;
    check_over(f);
    if (f->stage == STAGE_HELLO)
        due = min_i64(f->heard_ms + f->timeout_ms, f->now_ms + CHECK_MS); /* a stall is no wait */
    else if (f->stage == STAGE_JOINED)
        due = min_i64(f->next_beat_ms, min_i64(f->heard_ms + f->timeout_ms,
                                               f->fault ? f->fault_until_ms : INT64_MAX));
    if (f->stage == STAGE_JOINED && f->leaving)
        due = min_i64(due, f->leave_until_ms);
    if (f->stage == STAGE_ENDING)
        due = min_i64(f->engine_until_ms, f->now_ms + CHECK_MS); /* the same */
    session_leave(&f->clock, due);
}

int64_t follower_deadline(const struct follower *f) { return f->clock.due_ns; }

struct follower *follower_new(const struct follower_options *o, int64_t now_ns)
{
    struct follower *f = xcalloc(1, sizeof(*f));
    ASSERT(o->token_len <= MSG_MAX_TOKEN && o->n_gpus >= 0 && o->n_backends >= 0);
    f->o.data_dir = o->data_dir ? xstrdup(o->data_dir) : NULL;
    f->o.driver = xstrdup(o->driver ? o->driver : "?");
    f->rank = -1;
    f->aborted = -1;
    f->device = xstrdup("");
    f->timeout_ms = o->welcome_ms > 0 ? o->welcome_ms : WELCOME_MS;
    queue_init(&f->out);
    f->clock.due_ns = INT64_MAX;
    enter(f, now_ns);
    f->heard_ms = f->now_ms;
    send_hello(f, o);
    leave(f);
    return f;
}

void follower_free(struct follower *f)
{
    if (!f)
        return;
    free((void *)(uintptr_t)f->o.data_dir);
    free((void *)(uintptr_t)f->o.driver);
    free(f->device);
    free(f->driver_host);
    free(f->token.data);
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
    lost_driver(f, 0, text);
    free(text);
}

static void on_welcome(struct follower *f, const Wire__Welcome *w)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    f->stage = STAGE_JOINED;
    f->rank = w->rank;
    f->n_ranks = w->n_ranks;
    f->is_spare = w->spare;
    free(f->device);
    f->device = xstrdup(w->device);
    f->driver_host = xstrdup(w->host);
    f->token = blob_of(w->token.data, w->token.len);
    f->beat_ms = w->heartbeat_ms;
    f->timeout_ms = w->heartbeat_timeout_ms;
    f->next_beat_ms = f->now_ms + f->beat_ms;
    f->at = (struct progress){.phase = PHASE_OPEN, .bucket = -1};
    f->moved_ms = f->now_ms;
    c->open.rank = w->rank;
    c->open.n_ranks = w->n_ranks;
    c->open.job = blob_of(w->job.data, w->job.len);
    c->open.data_dir = f->o.data_dir ? xstrdup(f->o.data_dir) : NULL;
    c->open.inject = *w->inject ? xstrdup(w->inject) : NULL;
    f->has_engine = 1;
    f->doing = CMD_OPEN;
    if (f->is_spare)
        queue_log(&f->out, LOG_INFO, "joined the driver at %s (%s) as a spare, on %s", f->o.driver,
                  f->driver_host, f->device);
    else
        queue_log(&f->out, LOG_INFO, "joined the driver at %s (%s) as rank %d of %d, on %s",
                  f->o.driver, f->driver_host, f->rank, f->n_ranks, f->device);
    queue_command(&f->out, c);
}

static void on_refused(struct follower *f, const Wire__Refused *r)
{
    int is_over = r->reason == WIRE__REASON__REASON_ENDING;
    finish(f,
           (struct ending){
               .status = STATUS_REFUSED, .retry = is_over, .reason = (int)r->reason, .is_abort = 1},
           "refused by the driver at %s: %s", f->o.driver, r->text);
}

static void on_stop(struct follower *f, const Wire__Stop *s)
{
    static const int status[] = {
        [WIRE__OUTCOME__OUTCOME_NONE] = STATUS_FAILED,
        [WIRE__OUTCOME__OUTCOME_FINISHED] = STATUS_OK,
        [WIRE__OUTCOME__OUTCOME_STOPPED] = STATUS_STOPPED,
        [WIRE__OUTCOME__OUTCOME_FAILED] = STATUS_FAILED,
    };
    finish(f, (struct ending){.status = status[s->outcome], .retry = !s->drained}, "%s", s->text);
}

/* Form has an endpoint for each rank, or ids for all and nothing else. */
static int fits_ranks(const struct cmd *c, int n_ranks)
{
    size_t n_ids = ((size_t)n_ranks + MSG_RANKS_PER_ID - 1) / MSG_RANKS_PER_ID;
    if (c->form.ids.len == 0)
        return c->form.n_endpoints == n_ranks;
    return c->form.n_endpoints == 0 && c->form.ids.len == n_ids * MSG_ID;
}

/* NULL, or what is wrong with a command that is fit in itself. */
static const char *command_fault(const struct follower *f, const struct cmd *c)
{
    if (f->doing)
        return "the one before is not answered yet";
    if (c->kind == CMD_PREPARE &&
        (c->prepare.rank >= c->prepare.n_ranks || c->prepare.local >= c->prepare.n_local ||
         c->prepare.n_local > c->prepare.n_ranks || c->generation < 1 ||
         c->generation <= f->aborted))
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
        f->generation = c->generation;
        f->rank = c->prepare.rank;
        f->n_ranks = c->prepare.n_ranks;
        if (f->is_spare)
            queue_log(&f->out, LOG_INFO, "takes part as rank %d of %d", f->rank, f->n_ranks);
        f->is_waiting = f->is_spare = 0;
    }
    f->doing = c->kind;
    queue_command(&f->out, c);
}

/* Some rank was lost, and not this one: leave what runs, and wait. */
static void on_pause(struct follower *f, const Wire__Control *m)
{
    if (f->generation == 0 || m->generation != f->generation) {
        broke_protocol(f, msg_name(m), "it is of another generation than Prepare");
        return;
    }
    queue_log(&f->out, LOG_WARN, "%s; this rank keeps step %lld and waits for the next formation",
              m->abort->text, (long long)f->at.step);
    f->aborted = f->generation;
    f->is_waiting = 1;
    f->doing = 0;
    free(f->fault);
    f->fault = NULL;
    queue_abort(&f->out);
}

static void on_joined(struct follower *f, const Wire__Control *m)
{
    switch (m->body_case) {
    case WIRE__CONTROL__BODY_HEARTBEAT:
        break;
    case WIRE__CONTROL__BODY_INSPECT:
        f->inspected = m->inspect->incident;
        queue_put(&f->out, &(struct action){.kind = ACTION_RING});
        break;
    case WIRE__CONTROL__BODY_ABORT:
        if (m->abort->recover) {
            on_pause(f, m);
            break;
        }
        finish(f, (struct ending){.status = STATUS_FAILED, .retry = 1, .is_abort = 1}, "%s",
               m->abort->text);
        break;
    case WIRE__CONTROL__BODY_STOP:
        on_stop(f, m->stop);
        break;
    case WIRE__CONTROL__BODY_REFUSED:
        on_refused(f, m->refused);
        break;
    default:
        if (m->generation >= f->generation) /* else: of a formation that is gone */
            on_command(f, m);
    }
}

static void on_hello_answer(struct follower *f, const Wire__Control *m)
{
    if (m->body_case == WIRE__CONTROL__BODY_REFUSED)
        on_refused(f, m->refused);
    else if (m->body_case != WIRE__CONTROL__BODY_WELCOME)
        broke_protocol(f, msg_name(m), "want Welcome or Refused first");
    else if (m->welcome->rank < 1 ||
             (!m->welcome->spare && m->welcome->rank >= m->welcome->n_ranks))
        broke_protocol(f, "Welcome", "rank out of range");
    else
        on_welcome(f, m->welcome);
}

void follower_message(struct follower *f, int64_t now_ns, const Wire__Control *m)
{
    enter(f, now_ns);
    f->heard_ms = f->now_ms;
    if (f->stage == STAGE_HELLO)
        on_hello_answer(f, m);
    else if (f->stage == STAGE_JOINED)
        on_joined(f, m);
    leave(f);
}

void follower_closed(struct follower *f, int64_t now_ns, const struct err *why)
{
    enter(f, now_ns);
    if (f->stage < STAGE_ENDING)
        lost_driver(f, 1, why ? why->msg : "it closed the connection (crashed or killed?)");
    leave(f);
}

/* ---- from the engine ---- */

static void on_fault(struct follower *f, const struct report *r)
{
    const char *why = *r->fault.err.msg ? r->fault.err.msg : err_code_text(r->fault.err.code);
    if (f->doing == CMD_OPEN) { /* not fit for this job: the driver goes on without us */
        finish(f, (struct ending){.status = STATUS_USAGE}, "%s", why);
        return;
    }
    f->doing = 0;
    if (f->fault)
        return;
    f->fault = xstrdup(why);
    f->is_consequence = r->fault.is_consequence;
    f->fault_until_ms = f->now_ms + f->timeout_ms + EXPLAIN_MS;
}

static enum cmd_kind answered(enum report_kind k)
{
    static const enum cmd_kind of[] = {
        [REPORT_OPENED] = CMD_OPEN,        [REPORT_PREPARED] = CMD_PREPARE,
        [REPORT_FORMED] = CMD_FORM,        [REPORT_EPOCH] = CMD_TRAIN,
        [REPORT_VALIDATED] = CMD_VALIDATE, [REPORT_CHECKPOINT] = CMD_CHECKPOINT,
    };
    return (size_t)k < ARRAY_LEN(of) ? of[k] : 0;
}

/* That this engine failed by itself is news at any time. */
static int is_past(const struct follower *f, const struct report *r)
{
    return r->generation <= f->aborted && (r->kind != REPORT_FAULT || r->fault.is_consequence);
}

static void forward(struct follower *f, const struct report *r)
{
    struct err err;
    struct frame *frame = convert_report(r, &err);
    if (!frame) {
        finish(f, (struct ending){.status = STATUS_FAILED, .retry = 1, .is_abort = 1}, "%s",
               err.msg);
        return;
    }
    queue_send(&f->out, CONN, frame);
    if (r->kind == REPORT_FAULT)
        on_fault(f, r);
    else if (answered(r->kind) == f->doing)
        f->doing = 0;
}

static void on_report(struct follower *f, const struct report *r)
{
    if (r->kind == REPORT_STEP) {
        if (!r->step.first || f->has_stepped)
            return;
        f->has_stepped = 1;
        f->rss_mib = r->step.rss_mib;
        send_beat(f);
    } else if (r->kind == REPORT_WARNING) {
        queue_log(&f->out, LOG_WARN, "%s", r->warning.text ? r->warning.text : "no text");
    } else if (r->kind != REPORT_STOPPED && !is_past(f, r)) {
        forward(f, r);
    }
}

/* A fault on purpose: said before it happens, and in whatever stage, for the engine waits. */
static void inject(struct follower *f, const struct report *r)
{
    queue_log(&f->out, LOG_WARN, "injected fault %s: %s", r->inject.fault.text, r->inject.text);
    if (f->stage == STAGE_JOINED)
        forward(f, r);
    queue_inject(&f->out, &r->inject.fault);
}

void follower_report(struct follower *f, int64_t now_ns, struct report *r)
{
    enter(f, now_ns);
    if (r->kind == REPORT_STOPPED)
        f->is_engine_stopped = 1;
    if (r->kind == REPORT_INJECT)
        inject(f, r);
    else if (f->stage == STAGE_JOINED)
        on_report(f, r);
    report_free(r);
    leave(f);
}

void follower_progress(struct follower *f, int64_t now_ns, const struct progress *p)
{
    enter(f, now_ns);
    if (p->phase != f->at.phase || p->step != f->at.step)
        f->moved_ms = f->now_ms;
    f->at = *p;
    leave(f);
}

void follower_ring(struct follower *f, int64_t now_ns, const struct collective *c, int n)
{
    struct collective ring[RING_LEN];
    struct err err;
    enter(f, now_ns);
    ASSERT(n <= RING_LEN);
    if (n > 0)
        memcpy(ring, c, (size_t)n * sizeof(*ring));
    ring_rebase(ring, n, now_ns);
    struct frame *frame = convert_ring(ring, n, f->inspected, f->generation, &err);
    if (frame && f->stage == STAGE_JOINED)
        queue_send(&f->out, CONN, frame);
    else
        frame_unref(frame);
    leave(f);
}

/* ---- operator, time ---- */

void follower_stop(struct follower *f, int64_t now_ns, const char *why)
{
    enter(f, now_ns);
    f->n_stops++;
    if (f->stage == STAGE_JOINED && f->n_stops == 1 && f->generation > 0 && !f->is_waiting &&
        !f->fault) {
        f->leaving = xasprintf("stopped by %s", why);
        f->leave_until_ms = f->now_ms + POLITE_MS;
        queue_log(&f->out, LOG_INFO, "%s: leaving after this step; once more to leave at once",
                  why);
        send_goodbye(f, f->leaving, 1);
    } else if (f->stage < STAGE_ENDING) {
        char *text = xasprintf("stopped by %s", why);
        if (f->stage == STAGE_JOINED)
            send_goodbye(f, text, 0);
        finish(f, (struct ending){.status = STATUS_STOPPED, .is_abort = 1}, "%s", text);
        free(text);
    } else if (f->n_stops > 1 + (f->leaving != NULL)) {
        f->engine_until_ms = f->now_ms;
    }
    leave(f);
}

static void check_silence(struct follower *f)
{
    int64_t silent_ms = f->now_ms - f->heard_ms;
    if (silent_ms < f->timeout_ms)
        return;
    char *why = xasprintf("no sign of life from the driver for %.1f s", 1e-3 * (double)silent_ms);
    lost_driver(f, 0, why);
    free(why);
}

void follower_tick(struct follower *f, int64_t now_ns)
{
    enter(f, now_ns);
    if (f->stage < STAGE_ENDING)
        check_silence(f);
    if (f->stage == STAGE_JOINED && f->fault && f->now_ms >= f->fault_until_ms)
        finish(f, (struct ending){.status = STATUS_FAILED, .retry = 1, .is_abort = 1}, "%s",
               f->fault);
    if (f->stage == STAGE_JOINED && f->leaving && f->now_ms >= f->leave_until_ms) {
        send_goodbye(f, f->leaving, 0);
        finish(f, (struct ending){.status = STATUS_STOPPED, .is_abort = 1}, "%s", f->leaving);
    }
    if (f->stage == STAGE_JOINED && f->now_ms >= f->next_beat_ms)
        send_beat(f);
    leave(f);
}

int follower_next(struct follower *f, struct action *out) { return queue_take(&f->out, out); }

int follower_rank(const struct follower *f) { return f->rank; }

const char *follower_device(const struct follower *f) { return f->device; }

const void *follower_token(const struct follower *f, size_t *len)
{
    *len = f->token.len;
    return f->token.data;
}

static void describe_collectives(const struct follower *f, struct buf *out)
{
    const struct ring_head *h = &f->at.head;
    buf_printf(out, "  collectives: %lld handed over, %lld ended", (long long)h->n_handed,
               (long long)h->n_ended);
    if (h->at.number > 0 && h->at.bucket >= 0)
        buf_printf(out, "; bucket %lld of step %lld (%lld bytes) is %s", (long long)h->at.bucket,
                   (long long)h->at.step, (long long)h->at.n_bytes, collective_state(&h->at));
    else if (h->at.number > 0)
        buf_printf(out, "; %s of step %lld", h->at.bucket == RING_SYNC ? "statistics" : "the state",
                   (long long)h->at.step);
    buf_printf(out, "\n");
}

static void describe_pace(const struct follower *f, struct buf *out)
{
    double n = (double)max_i64(f->at.n_steps, 1);
    buf_printf(out, "  steps: %lld made, %.1f ms each, %.1f ms of it its own work\n",
               (long long)f->at.n_steps, 1e-6 * (double)f->at.wall_ns / n,
               1e-6 * (double)f->at.busy_ns / n);
}

void follower_describe(const struct follower *f, int64_t now_ns, struct buf *out)
{
    static const char *const names[] = {"waiting for Welcome", "joined", "ending", "over"};
    int64_t now_ms = (now_ns - f->clock.stalled_ns) / 1000000;
    buf_printf(out, "%s, driver %s (heard %.1f s ago), rank %d of %d, generation %lld\n",
               names[f->stage], f->o.driver, 1e-3 * (double)(now_ms - f->heard_ms), f->rank,
               f->n_ranks, (long long)f->generation);
    buf_printf(out, "  engine: %s, in %s of step %lld (epoch %lld) for %.1f s\n",
               f->doing ? cmd_name(f->doing) : "waits", phase_name(f->at.phase),
               (long long)f->at.step, (long long)f->at.epoch,
               1e-3 * (double)(now_ms - f->moved_ms));
    describe_collectives(f, out);
    describe_pace(f, out);
}
