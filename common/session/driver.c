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
    offsetof(struct driver_options, how_to_resume), offsetof(struct driver_options, run),
    offsetof(struct driver_options, standby_id),    offsetof(struct driver_options, led_by),
    offsetof(struct driver_options, leads_at),
};

static const char **text_at(struct driver_options *o, size_t i)
{
    return (const char **)((char *)o + texts[i]);
}

static void copy_options(struct driver_options *to, const struct driver_options *from)
{
    *to = *from;
    to->job = blob_of(from->job, from->job_len).data;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char **text = text_at(to, i);
        *text = *text ? xstrdup(*text) : NULL;
    }
}

static void drop(const void *p) { free((void *)(uintptr_t)p); }

static void free_options(struct driver_options *o)
{
    drop(o->job);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        drop(*text_at(o, i));
}

/* Heartbeats: one a second, rarer beyond 1,000 ranks, and several within the timeout. */
static void set_beat(struct driver *d)
{
    int64_t timeout = d->o.cluster.heartbeat_timeout_ms;
    int64_t slow = 1000 * ceil_div_i64(d->o.cluster.max_ranks, 1000);
    d->beat_ms = slow > 1000 ? slow : max_i64(10, min_i64(1000, timeout / 4));
    d->timeout_ms = max_i64(timeout, 3 * d->beat_ms);
}

struct driver *driver_new(const struct driver_options *o, int64_t now_ns)
{
    int most = (int)max_i64(o->cluster.max_ranks, o->n_ranks);
    int n_spares = (int)o->cluster.spares;
    ASSERT(o->n_ranks >= 1 && n_spares >= 0 && most + n_spares <= MSG_MAX_RANKS);
    ASSERT(o->host && o->host_id && o->device && o->job_len > 0);
    struct driver *d = xcalloc(1, sizeof(*d));
    copy_options(&d->o, o);
    d->o.cluster.max_ranks = most;
    queue_init(&d->out);
    d->clock.due_ns = INT64_MAX;
    d->now_ns = now_ns;
    d->n_ranks = o->n_ranks;
    d->n_seats = most + n_spares;
    d->seats = xcalloc((size_t)d->n_seats, sizeof(*d->seats));
    d->recovery.n_fruitless_at = xcalloc((size_t)d->n_seats, sizeof(*d->recovery.n_fruitless_at));
    d->recovery.resume = STAGE_TRAIN;
    d->recovery.suspect_from = -1;
    d->gather.full_ms = o->n_ranks == 1 ? 0 : -1;
    d->run.first_step_s = -1;
    d->run.saved_step = -1;
    d->free_from = 1;
    d->formation.generation = o->led.generation;
    d->lead.is_taking_over = o->resume || o->standby_id;
    succession_init(d);
    seat_take(d, 0, NULL);
    d->seats[0].host = xstrdup(o->host);
    d->seats[0].host_id = xstrdup(o->host_id);
    if (o->gpu_uuid)
        seat_use_gpu(d, 0, o->gpu_uuid, o->gpu_bus);
    d->seats[0].pid = o->pid;
    d->seats[0].pid_space = o->pid_space;
    set_beat(d);
    return d;
}

void driver_free(struct driver *d)
{
    if (!d)
        return;
    for (int k = 0; k < d->n_seats; k++)
        seat_clear(d, k);
    free(d->seats);
    while (d->n_conns > 0)
        driver_drop_conn(d, d->conns[0]);
    free(d->conns);
    run_fini(d);
    recover_fini(d);
    succession_fini(d);
    end_fini(d);
    incident_free(d->watch.incident);
    queue_fini(&d->out);
    free_options(&d->o);
    free(d);
}

/* ---- time ---- */

static void enter(struct driver *d, int64_t now_ns)
{
    d->now_ns = now_ns;
    d->now_ms = session_enter_ms(&d->clock, now_ns);
}

int64_t driver_deadline(const struct driver *d) { return d->clock.due_ns; }

/* The end of each event: find out whether the job is over, and compute when to be called next. */
static void leave(struct driver *d)
{
    int64_t due = INT64_MAX;
    end_check_over(d);
    if (d->stage == STAGE_ENDING)
        due = d->now_ms + CHECK_MS;
    else if (d->stage != STAGE_OVER && d->stage != STAGE_NEW)
        due = min_i64(min_i64(d->next_check_ms, d->next_beat_ms),
                      d->ending.pending.text ? d->ending.pending_ms : INT64_MAX);
    if (d->stage == STAGE_ENDING && d->ending.engine_until_ms > d->now_ms)
        due = min_i64(due, d->ending.engine_until_ms);
    if (d->stage == STAGE_ENDING && d->ending.conns_until_ms > d->now_ms)
        due = min_i64(due, d->ending.conns_until_ms);
    if (d->stage < STAGE_ENDING && d->stage != STAGE_TRAIN) /* in training it looks at all ranks */
        due = min_i64(due, deadline_due(d) > d->now_ms ? deadline_due(d) : d->now_ms + CHECK_MS);
    if (d->stage == STAGE_WAIT && d->recovery.settled_ms > d->now_ms)
        due = min_i64(due, d->recovery.settled_ms);
    session_leave(&d->clock, due);
}

/* ---- connections ---- */

/* Index of the first connection whose id is not below `id`. */
static int lower_bound(const struct driver *d, int64_t id)
{
    int lo = 0, hi = d->n_conns;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (d->conns[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct conn *find_conn(const struct driver *d, int64_t id)
{
    int i = lower_bound(d, id);
    return i < d->n_conns && d->conns[i]->id == id ? d->conns[i] : NULL;
}

void driver_drop_conn(struct driver *d, struct conn *c)
{
    int i = lower_bound(d, c->id);
    ASSERT(i < d->n_conns && d->conns[i] == c);
    d->n_conns--;
    memmove(&d->conns[i], &d->conns[i + 1], (size_t)(d->n_conns - i) * sizeof(struct conn *));
    free(c->peer);
    free(c->local);
    free(c->from);
    free(c);
}

void driver_leave(struct driver *d, struct conn *c, int64_t ms)
{
    c->state = CONN_LEAVING;
    c->until_ms = d->now_ms + ms;
}

void driver_send(struct driver *d, const struct conn *c, const Wire__Control *m)
{
    struct err err;
    struct frame *f = msg_frame(m, &err);
    if (f)
        queue_send(&d->out, c->id, f);
    else
        end_accuse(d, (struct cause){.rank = 0, .code = err.code, .phase = PHASE_COUNT, .step = -1},
                   0, "%s", err.msg);
}

/* A socket for both families shows 10.0.0.1 as "::ffff:10.0.0.1". */
static char *plain_address(const char *s)
{
    return xstrdup(!strncmp(s, "::ffff:", 7) && strchr(s, '.') ? s + 7 : s);
}

void driver_connected(struct driver *d, int64_t now_ns, int64_t id, const char *peer,
                      const char *local, const char *from)
{
    enter(d, now_ns);
    ASSERT(d->n_conns == 0 || d->conns[d->n_conns - 1]->id < id);
    if (d->stage == STAGE_OVER || d->n_conns > 2 * d->n_seats + 256) {
        queue_close(&d->out, id,
                    d->stage == STAGE_OVER ? "the job is over" : "too many connections");
        leave(d);
        return;
    }
    if (d->n_conns == d->cap_conns) {
        d->cap_conns = d->cap_conns ? 2 * d->cap_conns : 16;
        d->conns = xrealloc(d->conns, (size_t)d->cap_conns * sizeof(struct conn *));
    }
    struct conn *c = xcalloc(1, sizeof(*c));
    *c = (struct conn){.id = id,
                       .until_ms = d->now_ms + HELLO_MS,
                       .peer = plain_address(peer),
                       .local = plain_address(local),
                       .from = xstrdup(from)};
    d->conns[d->n_conns++] = c;
    leave(d);
}

/* The connection of a rank is gone, or is to be closed. */
static void lose_rank(struct driver *d, int rank, const char *why)
{
    d->seats[rank].conn->rank = -1;
    if (!d->seats[rank].is_member)
        gather_leave(d, rank, why);
    else
        end_lost(d, rank, why);
}

static void close_conn(struct driver *d, struct conn *c, const char *why)
{
    int rank = c->state == CONN_MEMBER ? c->rank : -1;
    queue_close(&d->out, c->id, why);
    c->state = CONN_LEAVING; /* so that no Abort is sent after the close */
    if (rank >= 0)
        lose_rank(d, rank, why);
    succession_lost(d, c, why);
    driver_drop_conn(d, c);
}

void driver_closed(struct driver *d, int64_t now_ns, int64_t id, const struct err *why)
{
    enter(d, now_ns);
    struct conn *c = find_conn(d, id);
    const char *text = session_reason(why), *whole = why ? why->msg : text;
    if (c && c->state == CONN_STRANGER && d->stage < STAGE_ENDING && strstr(whole, c->from))
        stranger_say(d, "before it said Hello: %s", whole); /* the text contains the address */
    else if (c && c->state == CONN_STRANGER && d->stage < STAGE_ENDING)
        stranger_say(d, "%s went away before it said Hello: %s", c->from, text);
    if (c && c->state == CONN_MEMBER) {
        c->state = CONN_LEAVING; /* nothing can be sent to it any more */
        int rank = c->rank;
        lose_rank(d, rank, text);
    }
    if (c)
        succession_lost(d, c, text);
    if (c)
        driver_drop_conn(d, c);
    leave(d);
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
        stranger_say(d, "closing %s: %s", c->from, why);
        close_conn(d, c, why);
        free(why);
    } else if (d->ending.is_silent) { /* a Refused would end a follower that seeks the leader */
        close_conn(d, c, "another driver leads this run, or may");
    } else if (!stranger_is_of_launch(d, c, m->hello)) {
        return;
    } else if (d->stage >= STAGE_ENDING) {
        int is_told = is_finished_for(d, m->hello);
        gather_refuse(d, c, is_told ? WIRE__REASON__REASON_FINISHED : WIRE__REASON__REASON_ENDING,
                      is_told ? d->ending.text : "this job is over");
    } else {
        gather_hello(d, c, m->hello);
    }
}

static void on_heartbeat(struct driver *d, int rank, int64_t generation, const Wire__Heartbeat *h)
{
    struct progress p;
    convert_from_beat(h, generation, &p);
    run_moved(d, rank, &p);
    d->seats[rank].since_ms = d->now_ms - h->phase_ms;
    watch_compare(d, rank);
    if (h->first_step)
        run_stepped(d, rank, h->rss_mib);
}

/* A rank wants to leave.  If it says so politely, and its place can be filled, it goes when the
 * step under way is done; else at once. */
static void on_goodbye(struct driver *d, struct conn *c, const Wire__Goodbye *g)
{
    int rank = c->rank;
    if (g->polite && d->seats[rank].is_member && d->stage > STAGE_WAIT && d->stage < STAGE_ENDING &&
        recover_is_possible(d, rank)) {
        free(d->seats[rank].leaving);
        d->seats[rank].leaving = xasprintf("left: %s", g->text);
        d->seats[rank].is_drained = 0; /* it leaves of its own will: it cannot be kept */
        recover_let_leave(d);
        return;
    }
    char *why = xasprintf("it left: %s", g->text);
    if (g->polite)
        recover_farewell(d, c, g->text);
    driver_leave(d, c, REFUSED_MS);
    lose_rank(d, rank, why);
    free(why);
}

static void on_member(struct driver *d, struct conn *c, const Wire__Control *m)
{
    int rank = c->rank;
    d->seats[rank].heard_ms = d->now_ms;
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
            run_digest(d, rank, r);
        else
            end_misbehaved(d, rank, "unexpected message %s", msg_name(m));
    }
}

void driver_message(struct driver *d, int64_t now_ns, int64_t id, const Wire__Control *m)
{
    enter(d, now_ns);
    struct conn *c = find_conn(d, id);
    if (c && c->state != CONN_STRANGER && m->body_case == WIRE__CONTROL__BODY_RING)
        incident_message(d, id, m->ring);
    else if (c && c->state == CONN_STRANGER)
        on_stranger(d, c, m);
    else if (c && c->state == CONN_MEMBER)
        on_member(d, c, m);
    else if (c && c->state == CONN_STANDBY)
        succession_message(d, c, m);
    leave(d);
}

/* ---- rank 0, the operator ---- */

void driver_start(struct driver *d, int64_t now_ns)
{
    struct cmd *c = cmd_new(CMD_OPEN, 0);
    ASSERT(d->stage == STAGE_NEW);
    enter(d, now_ns);
    stage_enter(d, STAGE_GATHER);
    d->gather.full_ms = d->o.n_ranks == 1 ? d->now_ms : -1;
    d->next_beat_ms = d->now_ms + d->beat_ms;
    d->next_check_ms = d->now_ms + CHECK_MS;
    d->gather.next_missing_ms = d->now_ms + MISSING_LINE_MS;
    d->seats[0].at.phase = PHASE_OPEN;
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
    queue_command(&d->out, c);
    leave(d);
}

void driver_report(struct driver *d, int64_t now_ns, struct report *r)
{
    enter(d, now_ns);
    run_digest(d, 0, r);
    leave(d);
}

void driver_progress(struct driver *d, int64_t now_ns, const struct progress *p)
{
    enter(d, now_ns);
    if (d->stage == STAGE_PREPARE && p->generation < d->formation.generation)
        d->seats[0].at.phase = p->phase; /* it has not left the formation before; a follower tells
                                            that by its heartbeat */
    run_moved(d, 0, p);
    leave(d);
}

void driver_ring(struct driver *d, int64_t now_ns, const struct collective *c, int n)
{
    enter(d, now_ns);
    incident_own(d, now_ns, c, n);
    leave(d);
}

static void stop_first(struct driver *d)
{
    int is_training = d->stage == STAGE_TRAIN || d->stage <= STAGE_FORM;
    if (d->stage < STAGE_TRAIN && !d->formation.has_formed) {
        end_stop(d, WIRE__OUTCOME__OUTCOME_STOPPED, STATUS_STOPPED, "stopped by %s before %s began",
                 d->ending.stop_why, d->o.evaluate ? "the evaluation" : "training");
        return;
    }
    if (d->o.evaluate) { /* there is nothing to save */
        end_at_once(d);
        return;
    }
    queue_log(&d->out, LOG_INFO,
              "%s: stopping after this %s, with a checkpoint; once more to stop "
              "at once",
              d->ending.stop_why,
              is_training                  ? "step"
              : d->stage == STAGE_VALIDATE ? "validation"
                                           : stage_name(d->stage));
    if (is_training) /* or the ranks will be, once they have formed again */
        queue_put(&d->out, &(struct action){.kind = ACTION_REQUEST, .request = REQUEST_STOP});
    if (d->stage == STAGE_WAIT)
        recover_try(d);
}

void driver_stop(struct driver *d, int64_t now_ns, const char *why)
{
    enter(d, now_ns);
    d->ending.n_stops++;
    if (!d->ending.stop_why)
        d->ending.stop_why = xstrdup(why);
    if (d->stage < STAGE_ENDING && d->ending.n_stops == 1)
        stop_first(d);
    else if (d->stage < STAGE_ENDING)
        end_at_once(d);
    else if (d->stage == STAGE_ENDING && d->ending.n_stops > 1)
        end_hurry(d);
    leave(d);
}

void driver_deposed(struct driver *d, int64_t now_ns, const char *by)
{
    enter(d, now_ns);
    end_deposed(d, by);
    leave(d);
}

int driver_drain(struct driver *d, int64_t now_ns, const char *who, struct drained *out,
                 struct err *err)
{
    enter(d, now_ns);
    int rc = drain_seats(d, who, out, err);
    leave(d);
    return rc;
}

/* ---- housekeeping ---- */

static void send_beats(struct driver *d)
{
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Heartbeat h = WIRE__HEARTBEAT__INIT;
    const struct progress *p = &d->seats[0].at;
    struct err err;

    h.epoch = max_i64(p->epoch, 0);
    h.step = max_i64(p->step, 0);
    h.phase = (Wire__Phase)p->phase;
    h.bucket = max_i64(p->bucket, -1);
    m.generation = d->formation.generation;
    m.body_case = WIRE__CONTROL__BODY_HEARTBEAT;
    m.heartbeat = &h;
    struct frame *f = msg_frame(&m, &err);
    ASSERT(f);
    for (int k = 1; k < d->n_seats; k++)
        if (d->seats[k].is_taken)
            queue_send(&d->out, d->seats[k].conn->id, frame_ref(f));
    if (d->succession.conn)
        queue_send(&d->out, d->succession.conn->id, frame_ref(f));
    frame_unref(f);
}

static void check_silence(struct driver *d)
{
    for (int k = 1; k < d->n_seats && d->stage < STAGE_ENDING; k++) {
        const struct seat *s = &d->seats[k];
        if (!s->is_taken || d->now_ms - s->heard_ms < d->timeout_ms)
            continue;
        struct buf why = {0};
        buf_printf(&why, "no sign of life for %.1f s", 1e-3 * (double)(d->now_ms - s->heard_ms));
        watch_put_waiters_for(d, k, &why);
        incident_silent(d, k, buf_cstr(&why));
        close_conn(d, s->conn, buf_cstr(&why));
        buf_fini(&why);
    }
    if (d->succession.conn && d->now_ms - d->succession.heard_ms >= d->timeout_ms)
        close_conn(d, d->succession.conn, "it was silent for too long");
}

static void check_conns(struct driver *d)
{
    for (int i = d->n_conns - 1; i >= 0; i--) {
        struct conn *c = d->conns[i];
        if (c->state == CONN_MEMBER || c->state == CONN_STANDBY || d->now_ms < c->until_ms)
            continue;
        if (c->state == CONN_STRANGER)
            stranger_say(d, "closing %s: it did not say Hello", c->from);
        queue_close(&d->out, c->id,
                    c->state == CONN_STRANGER ? "no Hello" : "it was told to leave");
        driver_drop_conn(d, c);
    }
}

static void check_all(struct driver *d)
{
    if (d->now_ms >= d->next_beat_ms) {
        d->next_beat_ms = d->now_ms + d->beat_ms;
        send_beats(d);
    }
    if (d->now_ms >= d->next_check_ms) {
        d->next_check_ms = d->now_ms + CHECK_MS;
        check_silence(d);
        if (d->stage < STAGE_ENDING)
            check_conns(d);
        stranger_check(d);
    }
    gather_check(d);
    recover_ask_regroup(d);
    watch_check(d);
    pace_check(d);
    if (d->stage <= STAGE_WAIT && d->now_ms >= d->gather.next_missing_ms) {
        d->gather.next_missing_ms = d->now_ms + MISSING_LINE_MS;
        gather_say_missing(d);
    }
}

/* Act if the deadline of this stage has passed; but a silent rank counts as lost, not as late. */
static void check_deadline(struct driver *d)
{
    check_silence(d);
    if (d->stage < STAGE_ENDING && d->now_ms >= deadline_due(d))
        deadline_passed(d);
}

void driver_tick(struct driver *d, int64_t now_ns)
{
    enter(d, now_ns);
    if (d->stage > STAGE_NEW && d->stage < STAGE_ENDING)
        check_all(d);
    end_check_pending(d);
    incident_check(d);
    if (d->stage == STAGE_WAIT)
        recover_try(d);
    else if (d->stage < STAGE_ENDING && d->now_ms >= deadline_due(d))
        check_deadline(d);
    leave(d);
}

int driver_next(struct driver *d, struct action *out) { return queue_take(&d->out, out); }

/* ---- telling ---- */

char *driver_label(const struct driver *d, int rank)
{
    const char *host = d->seats[rank].host;
    if (rank >= d->n_ranks)
        return xasprintf("spare %d (%s)", rank - d->n_ranks + 1, host ? host : "?");
    return host ? xasprintf("rank %d (%s)", rank, host) : xasprintf("rank %d", rank);
}

void driver_event(struct driver *d, struct session_event *e)
{
    if (e->rank >= 0 && !e->host && d->seats[e->rank].host)
        e->host = xstrdup(d->seats[e->rank].host);
    struct action a = {.kind = ACTION_EVENT, .event = *e};
    if (d->ending.is_silent)
        action_fini(&a);
    else
        queue_put(&d->out, &a);
}
