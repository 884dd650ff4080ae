/* The functions of driver.h: life, connections, messages, time, and texts.
 *
 * Each of them calls enter, passes the event to the file that deals with it (driver_impl.h), and
 * calls leave, which computes the next deadline. */
#include "session/driver.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* ---- life ---- */

/* The texts of the options, which the driver copies; each may be NULL. */
static const size_t texts[] = {
    offsetof(struct driver_options, host),          offsetof(struct driver_options, host_id),
    offsetof(struct driver_options, device),        offsetof(struct driver_options, gpu_uuid),
    offsetof(struct driver_options, gpu_bus),       offsetof(struct driver_options, advertise),
    offsetof(struct driver_options, launch),        offsetof(struct driver_options, resume),
    offsetof(struct driver_options, evaluate),      offsetof(struct driver_options, predict),
    offsetof(struct driver_options, how_to_resume), offsetof(struct driver_options, no_energy),
    offsetof(struct driver_options, run),           offsetof(struct driver_options, standby_id),
    offsetof(struct driver_options, led_by),        offsetof(struct driver_options, leads_at),
    offsetof(struct driver_options, name),          offsetof(struct driver_options, run_dir),
    offsetof(struct driver_options, how_past_stop),
};

static const char **driver_text_at(struct driver_options *o, size_t i)
{
    return (const char **)((char *)o + texts[i]);
}

static void copy_options(struct driver_options *to, const struct driver_options *from)
{
    *to = *from;
    to->job = blob_of(from->job, from->job_len).data;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char **text = driver_text_at(to, i);
        *text = *text ? xstrdup(*text) : NULL;
    }
}

static void driver_drop(const void *p) { free((void *)(uintptr_t)p); }

static void free_options(struct driver_options *o)
{
    driver_drop(o->job);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        driver_drop(*driver_text_at(o, i));
}

/* Heartbeats: one a second, rarer beyond 1,000 ranks, and several within the timeout.  A look at
 * all ranks reads all of their seats, which no cache holds: so it is rarer, too, where silence is
 * long. */
static void set_beat(struct driver *d)
{
    int64_t timeout = d->o.cluster.heartbeat_timeout_ms;
    int64_t slow = 1000 * ceil_div_i64(d->o.cluster.max_ranks, 1000);
    d->beat_ms = slow > 1000 ? slow : max_i64(10, min_i64(1000, timeout / 4));
    d->timeout_ms = max_i64(timeout, 3 * d->beat_ms);
    d->check_ms = max_i64(CHECK_MS, d->beat_ms / 100);
}

/* Each machine looks at the whole; membership's seats are everybody's. */
static void init_machines(struct driver *d)
{
    const struct driver_options *o = &d->o;
    struct seat *seats = xcalloc((size_t)d->n_seats, sizeof *seats);
    d->seats = seats;
    d->membership = (struct membership){.d = d,
                                        .seats = seats,
                                        .n_seats = d->n_seats,
                                        .n_ranks = o->n_ranks,
                                        .free_from = 1,
                                        .gather.full_ms = o->n_ranks == 1 ? 0 : -1,
                                        .lead.is_taking_over = o->resume || o->standby_id};
    d->formation = (struct formation){
        .d = d,
        .seats = seats,
        .generation = o->led.generation,
        .recovery = {.resume = STAGE_TRAIN,
                     .suspect_from = -1,
                     .n_fruitless_at = xcalloc((size_t)d->n_seats, sizeof(int))}};
    d->run = (struct run){.d = d, .seats = seats, .first_step_s = -1, .saved_step = -1};
    d->run.live_lr = o->led.live_lr;
    d->run.live_step = o->led.live_step;
    d->watch = (struct watch){.d = d, .seats = seats};
}

struct driver *driver_new(const struct driver_options *o, int64_t now_ns)
{
    int most = (int)max_i64(o->cluster.max_ranks, o->n_ranks);
    int n_spares = (int)o->cluster.spares;
    ASSERT(o->n_ranks >= 1 && n_spares >= 0 && most + n_spares <= MSG_MAX_RANKS);
    ASSERT(o->host && o->host_id && o->device && o->job_len > 0);
    struct driver *d = xcalloc(1, sizeof *d);
    copy_options(&d->o, o);
    d->o.cluster.max_ranks = most;
    d->out = xcalloc(1, sizeof *d->out);
    queue_init(d->out);
    d->unsent = xcalloc(1, sizeof *d->unsent);
    d->latest = xcalloc(1, sizeof *d->latest);
    latest_init(d->latest, &(struct latest_options){o->n_epochs, o->max_steps, o->global_batch});
    d->clock.due_ns = INT64_MAX;
    d->now_ns = now_ns;
    d->n_seats = most + n_spares;
    init_machines(d);
    set_beat(d);
    ledger_init(d);
    succession_init(&d->membership);
    seat_take_own(&d->membership);
    return d;
}

void driver_free(struct driver *d)
{
    if (!d)
        return;
    for (int k = 0; k < d->n_seats; k++)
        seat_clear(&d->membership, k);
    for (struct conn *c; (c = conn_first(d));)
        conn_drop(&d->membership, c);
    numbered_fini(&d->membership.conns);
    free(d->membership.seats);
    run_fini(&d->run);
    recover_fini(&d->formation);
    succession_fini(&d->membership);
    end_fini(d);
    ledger_fini(d);
    incident_free(d->watch.incident);
    queue_fini(d->out);
    free(d->out);
    free(d->unsent);
    free(d->latest);
    free_options(&d->o);
    free(d);
}

/* ---- time ---- */

void driver_enter(struct driver *d, int64_t now_ns)
{
    d->now_ns = now_ns;
    d->now_ms = session_enter_ms(&d->clock, now_ns);
    driver_check(d);
}

int64_t driver_deadline(const struct driver *d) { return d->clock.due_ns; }

/* A message could not be made: rank 0 is to blame, as its job is too large. */
static void accuse_unsent(struct driver *d)
{
    struct err err = *d->unsent;
    if (err.code == 0)
        return;
    d->unsent->code = 0;
    end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1}, 0,
               "%s", err.msg);
}

/* The end of each event: find out whether the job is over, and compute when to be called next. */
void driver_leave(struct driver *d)
{
    int64_t due = INT64_MAX;
    accuse_unsent(d);
    end_check_over(d);
    ledger_note_ranks(d);
    trace_check(&d->watch);
    driver_check(d);
    if (d->stage == STAGE_ENDING)
        due = d->now_ms + CHECK_MS;
    else if (d->stage != STAGE_OVER && d->stage != STAGE_NEW)
        due = min_i64(min_i64(d->next_check_ms, d->next_beat_ms),
                      d->ending.pending.text ? d->ending.pending_ms : INT64_MAX);
    if (d->stage == STAGE_ENDING && d->ending.engine_until_ms > d->now_ms)
        due = min_i64(due, d->ending.engine_until_ms);
    if (d->stage == STAGE_ENDING && d->ending.obeys_until_ms > d->now_ms)
        due = min_i64(due, d->ending.obeys_until_ms);
    if (d->stage == STAGE_ENDING && d->ending.conns_until_ms > d->now_ms)
        due = min_i64(due, d->ending.conns_until_ms);
    if (d->stage < STAGE_ENDING) {
        const int64_t next = deadline_to_look(d);
        due = min_i64(due, next > d->now_ms ? next : d->now_ms + CHECK_MS);
    }
    if (d->stage == STAGE_WAIT && d->formation.recovery.settled_ms > d->now_ms)
        due = min_i64(due, d->formation.recovery.settled_ms);
    session_leave(&d->clock, due);
}

/* ---- connections ---- */

void driver_connected(struct driver *d, int64_t now_ns, int64_t id, const char *peer,
                      const char *local, const char *from)
{
    driver_enter(d, now_ns);
    if (d->stage == STAGE_OVER || d->membership.conns.n > 2 * (size_t)d->n_seats + 256) {
        queue_close(d->out, id,
                    d->stage == STAGE_OVER ? "the job is over" : "too many connections");
        driver_leave(d);
        return;
    }
    conn_add(&d->membership, id, peer, local, from);
    driver_leave(d);
}

static void close_conn(struct driver *d, struct conn *c, const char *why)
{
    int rank = c->state == CONN_MEMBER ? c->rank : -1;
    queue_close(d->out, c->id, why);
    conn_gone(&d->membership, c); /* so that no Abort is sent after the close */
    if (rank >= 0)
        driver_lose(d, rank, why);
    driver_apply(d, succession_lost(&d->membership, c, why));
    conn_drop(&d->membership, c);
}

void driver_closed(struct driver *d, int64_t now_ns, int64_t id, const struct err *why)
{
    driver_enter(d, now_ns);
    struct conn *c = conn_find(d, id);
    const char *text = session_reason(why), *whole = why ? why->msg : text;
    if (c && c->state == CONN_STRANGER && d->stage < STAGE_ENDING && strstr(whole, c->from))
        stranger_say(&d->membership, "before it said Hello: %s",
                     whole); /* the text contains the address */
    else if (c && c->state == CONN_STRANGER && d->stage < STAGE_ENDING)
        stranger_say(&d->membership, "%s went away before it said Hello: %s", c->from, text);
    if (c && c->state == CONN_MEMBER) {
        conn_gone(&d->membership, c);
        int rank = c->rank;
        driver_lose(d, rank, text);
    }
    if (c)
        driver_apply(d, succession_lost(&d->membership, c, text));
    if (c)
        conn_drop(&d->membership, c);
    driver_leave(d);
}

/* ---- messages ---- */

/* 1: the peer lost this driver before it was told that the job is finished. */
static int is_finished_for(const struct driver *d, const Wire__Hello *h)
{
    return d->ending.status == STATUS_OK && d->o.run && !strcmp(h->run, d->o.run);
}

static void on_stranger(struct driver *d, struct conn *c, const Wire__Control *m)
{
    if (m->body_case != WIRE__CONTROL__BODY_HELLO) {
        char *why = xasprintf("its first message is %s, want Hello", msg_name(m));
        stranger_say(&d->membership, "closing %s: %s", c->from, why);
        close_conn(d, c, why);
        free(why);
    } else if (d->ending.is_silent) { /* a Refused would end a follower that seeks the leader */
        close_conn(d, c, "another driver leads this run, or may");
    } else if (!stranger_is_of_launch(&d->membership, c, m->hello)) {
        return;
    } else if (d->stage >= STAGE_ENDING) {
        int is_told = is_finished_for(d, m->hello);
        gather_refuse(&d->membership, c,
                      is_told ? WIRE__REASON__REASON_FINISHED : WIRE__REASON__REASON_ENDING,
                      is_told ? d->ending.text : "this job is over");
    } else {
        driver_apply(d, gather_hello(&d->membership, c, m->hello));
    }
}

static void on_heartbeat(struct driver *d, int rank, int64_t generation, const Wire__Heartbeat *h)
{
    struct progress p;
    convert_from_beat(h, generation, &p);
    driver_moved(d, rank, &p);
    watch_used(&d->watch, rank, &p.usage);
    watch_clock(&d->watch, rank, h);
    watch_since(&d->watch, rank, d->now_ms - h->phase_ms);
    driver_apply(d, watch_compare(&d->watch, rank));
    if (h->first_step)
        run_stepped(&d->run, rank, h->rss_mib);
}

/* A rank wants to leave.  If it says so politely, and its place can be filled, it goes when the
 * step under way is done; else at once. */
static void on_goodbye(struct driver *d, struct conn *c, const Wire__Goodbye *g)
{
    int rank = c->rank;
    if (*g->source)
        notice_say(d, rank, &(struct notice){.source = g->source, .seconds = g->seconds});
    if (g->polite && d->seats[rank].is_member && d->stage > STAGE_WAIT && d->stage < STAGE_ENDING &&
        recover_is_possible(d, rank)) {
        /* It leaves of its own will, so it cannot be kept, even if it was drained. */
        recover_leave(&d->formation, rank, xasprintf("left: %s", g->text), 0);
        driver_let_leave(d);
        return;
    }
    char *why = xasprintf("it left: %s", g->text);
    if (g->polite)
        driver_farewell(d, c, g->text);
    conn_leave(&d->membership, c, REFUSED_MS);
    driver_lose(d, rank, why);
    free(why);
}

static void on_member(struct driver *d, struct conn *c, const Wire__Control *m)
{
    int rank = c->rank;
    watch_heard(&d->watch, rank);
    if (m->body_case == WIRE__CONTROL__BODY_HEARTBEAT) {
        on_heartbeat(d, rank, m->generation, m->heartbeat);
    } else if (m->body_case == WIRE__CONTROL__BODY_GOODBYE) {
        on_goodbye(d, c, m->goodbye);
    } else if (m->generation > d->formation.generation) {
        end_misbehaved(d, rank, "%s of generation %lld, want at most %lld", msg_name(m),
                       (long long)m->generation, (long long)d->formation.generation);
    } else {
        struct report *r = convert_to_report(m);
        if (r)
            report_digest(d, rank, r);
        else
            end_misbehaved(d, rank, "unexpected message %s", msg_name(m));
    }
}

static void on_standby(struct driver *d, struct conn *c, const Wire__Control *m)
{
    driver_apply(d, succession_heard(&d->membership, m));
    if (m->body_case != WIRE__CONTROL__BODY_GOODBYE)
        return;
    succession_resign(&d->membership);
    driver_apply(d, succession_lost(&d->membership, c, m->goodbye->text));
    driver_farewell(d, c, m->goodbye->text);
}

void driver_message(struct driver *d, int64_t now_ns, int64_t id, const Wire__Control *m)
{
    driver_enter(d, now_ns);
    struct conn *c = conn_find(d, id);
    if (c && c->state != CONN_STRANGER && m->body_case == WIRE__CONTROL__BODY_RING)
        incident_message(&d->watch, id, m->ring);
    else if (c && c->state == CONN_STRANGER)
        on_stranger(d, c, m);
    else if (c && c->state == CONN_MEMBER)
        on_member(d, c, m);
    else if (c && c->state == CONN_STANDBY)
        on_standby(d, c, m);
    driver_leave(d);
}

/* ---- rank 0, the operator ---- */

void driver_start(struct driver *d, int64_t now_ns)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    ASSERT(d->stage == STAGE_NEW);
    driver_enter(d, now_ns);
    stage_enter(d, STAGE_GATHER);
    gather_begin(&d->membership);
    d->next_beat_ms = d->now_ms + d->beat_ms;
    d->next_check_ms = d->now_ms + d->check_ms;
    watch_in_phase(&d->watch, 0, PHASE_OPEN);
    c->open.n_ranks = d->o.n_ranks;
    c->open.job = blob_of(d->o.job, d->o.job_len);
    c->open.resume = d->o.resume ? xstrdup(d->o.resume) : NULL;
    c->open.evaluate = d->o.evaluate ? xstrdup(d->o.evaluate) : NULL;
    c->open.averaged = d->o.averaged;
    c->open.predict = d->o.predict ? xstrdup(d->o.predict) : NULL;
    c->open.predicts = d->o.predict != NULL;
    c->open.inject = inject_for_opening(d, -1);
    inject_announce(d);
    succession_say_leader(d);
    d->is_engine_busy = 1;
    queue_command(d->out, c);
    driver_leave(d);
}

void driver_report(struct driver *d, int64_t now_ns, struct report *r)
{
    driver_enter(d, now_ns);
    report_digest(d, 0, r);
    driver_leave(d);
}

void driver_progress(struct driver *d, int64_t now_ns, const struct progress *p)
{
    driver_enter(d, now_ns);
    if (d->stage == STAGE_PREPARE && p->generation < d->formation.generation)
        watch_in_phase(&d->watch, 0, p->phase); /* it has not left the formation before; a follower
                                                   tells that by its heartbeat */
    driver_moved(d, 0, p);
    watch_used(&d->watch, 0, &p->usage);
    ledger_moved(d, p);
    driver_leave(d);
}

void driver_ring(struct driver *d, int64_t now_ns, const struct collective *c, int n)
{
    driver_enter(d, now_ns);
    incident_own(&d->watch, now_ns, c, n);
    driver_leave(d);
}

void driver_stop(struct driver *d, int64_t now_ns, const char *why)
{
    driver_enter(d, now_ns);
    if (notice_takes_signal(d, why)) {
        driver_leave(d);
        return;
    }
    d->ending.n_stops++;
    free(d->ending.hands_over);
    d->ending.hands_over = NULL;
    if (!d->ending.stop_why)
        d->ending.stop_why = xstrdup(why);
    if (d->stage < STAGE_ENDING && d->ending.n_stops == 1)
        end_stop_first(d);
    else if (d->stage < STAGE_ENDING)
        end_at_once(d);
    else if (d->stage == STAGE_ENDING && d->ending.n_stops == 1)
        end_say_waiting(d);
    else if (d->stage == STAGE_ENDING)
        end_hurry(d);
    driver_leave(d);
}

void driver_deposed(struct driver *d, int64_t now_ns, const char *why)
{
    driver_enter(d, now_ns);
    end_deposed(d, why);
    driver_leave(d);
}

int driver_release(struct driver *d, int seat, const char *why, const char *text)
{
    struct conn *c = d->seats[seat].conn;

    if (drain_seat(&d->formation, seat, why))
        return 1;
    driver_farewell(d, c, text);
    conn_unseat(&d->membership, c);
    gather_leave(&d->membership, seat, "drained");
    return 0;
}

/* Numbers change when followers go, so tell of them first. */
static void driver_release_all(struct driver *d, const struct meant *m)
{
    for (int i = 0; i < m->n; i++)
        driver_release(d, m->seat[i], "was drained", "drained by the operator of the driver");
    driver_let_leave(d);
}

int driver_drain(struct driver *d, int64_t now_ns, const char *who, struct drained *out,
                 struct err *err)
{
    struct meant m;
    driver_enter(d, now_ns);
    int rc = drain_find(d, who, &m, err);
    if (rc == 0) {
        drain_tell(d, &m, out);
        driver_release_all(d, &m);
    }
    free(m.seat);
    driver_leave(d);
    return rc;
}

/* ---- housekeeping ---- */

static void send_beats(struct driver *d)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    const struct progress *p = &d->seats[0].at;
    int64_t account[ACCOUNT_NUMBERS];
    struct err err;

    h.epoch = max_i64(p->epoch, 0);
    h.step = max_i64(p->step, 0);
    h.phase = (Wire__Phase)p->phase;
    h.bucket = max_i64(p->bucket, -1);
    h.clock_ns = max_i64(d->now_ns, 0);
    ledger_write(d, &h, account);
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    struct frame *f = msg_frame(&m, &err);
    ASSERT(f);
    for (int k = 1; k < d->n_seats; k++)
        if (d->seats[k].is_taken)
            queue_send(d->out, d->seats[k].conn->id, frame_ref(f));
    if (d->membership.succession.conn)
        queue_send(d->out, d->membership.succession.conn->id, frame_ref(f));
    frame_unref(f);
}

static void driver_check_silence(struct driver *d)
{
    for (int k = 1; k < d->n_seats && d->stage < STAGE_ENDING; k++) {
        const struct seat *s = &d->seats[k];
        if (!s->is_taken || d->now_ms - s->heard_ms < d->timeout_ms)
            continue;
        struct buf why = {0};
        buf_printf(&why, "no sign of life for %.1f s", 1e-3 * (double)(d->now_ms - s->heard_ms));
        watch_put_waiters_for(d, k, &why);
        incident_silent(&d->watch, k, buf_cstr(&why));
        close_conn(d, s->conn, buf_cstr(&why));
        buf_fini(&why);
    }
    if (d->membership.succession.conn &&
        d->now_ms - d->membership.succession.heard_ms >= d->timeout_ms)
        close_conn(d, d->membership.succession.conn, "it was silent for too long");
}

static void check_conns(struct driver *d)
{
    size_t at = SIZE_MAX;
    for (struct conn *c; (c = conn_down(d, &at));) {
        if (c->state == CONN_MEMBER || c->state == CONN_STANDBY || d->now_ms < c->until_ms)
            continue;
        if (c->state == CONN_STRANGER)
            stranger_say(&d->membership, "closing %s: it did not say Hello", c->from);
        queue_close(d->out, c->id, c->state == CONN_STRANGER ? "no Hello" : "it was told to leave");
        conn_drop(&d->membership, c);
    }
}

static void driver_check_all(struct driver *d)
{
    if (d->now_ms >= d->next_beat_ms) {
        d->next_beat_ms = d->now_ms + d->beat_ms;
        send_beats(d);
    }
    if (d->now_ms >= d->next_check_ms) {
        d->next_check_ms = d->now_ms + d->check_ms;
        driver_check_silence(d);
        corruption_check(d);
        if (d->stage < STAGE_ENDING)
            check_conns(d);
        stranger_check(&d->membership);
    }
    driver_apply(d, gather_check(&d->membership));
    notice_check(d);
    recover_ask_regroup(d);
    watch_check(&d->watch);
    pace_check(&d->watch);
    gather_say_missing(&d->membership);
}

/* Act if the deadline of this stage has passed; but a silent rank counts as lost, not as late. */
static void check_deadline(struct driver *d)
{
    driver_check_silence(d);
    if (d->stage < STAGE_ENDING && d->now_ms >= deadline_due(d))
        driver_apply(d, deadline_passed(&d->watch));
}

void driver_tick(struct driver *d, int64_t now_ns)
{
    driver_enter(d, now_ns);
    if (d->stage > STAGE_NEW && d->stage < STAGE_ENDING)
        driver_check_all(d);
    end_check_pending(d);
    incident_check(&d->watch);
    if (d->stage == STAGE_WAIT)
        driver_try(d);
    else if (d->stage < STAGE_ENDING && d->now_ms >= deadline_due(d))
        check_deadline(d);
    driver_leave(d);
}

int driver_next(struct driver *d, struct action *out) { return queue_take(d->out, out); }

/* ---- telling ---- */

char *driver_label(const struct driver *d, int rank)
{
    const char *host = d->seats[rank].host;
    if (rank >= d->membership.n_ranks)
        return xasprintf("spare %d (%s)", rank - d->membership.n_ranks + 1, host ? host : "?");
    return host ? xasprintf("rank %d (%s)", rank, host) : xasprintf("rank %d", rank);
}

void driver_event(const struct driver *d, struct session_event *e)
{
    if (e->rank >= 0 && !e->host && d->seats[e->rank].host)
        e->host = xstrdup(d->seats[e->rank].host);
    struct action a = {.kind = ACTION_EVENT, .event = *e};
    ledger_stamp(d, &a.event);
    latest_note(d->latest, e, d->now_ns);
    if (d->ending.is_silent)
        action_fini(&a);
    else
        queue_put(d->out, &a);
}
