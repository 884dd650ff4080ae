/* The world around the sessions of live.h: connections that deliver in order, processes that begin
 * and end, time.  Every action of a session is carried out here, and checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "live_impl.h"
#include "wire/text.h"

static struct process *conn_process(struct live *l, int64_t conn)
{
    for (int k = 1; k <= MOST_FOLLOWERS; k++)
        if (l->p[k].is_connected && l->p[k].conn == conn)
            return &l->p[k];
    return NULL;
}

/* ---- pipes ---- */

static void pipe_clear(struct pipe *p)
{
    while (p->n > 0)
        frame_unref(p->frame[--p->n]);
}

static void pipe_put(struct pipe *p, struct frame *f)
{
    ASSERT(p->n < MOST_FRAMES); /* no session sends without end while nothing comes back */
    p->frame[p->n++] = f;
}

struct frame *live_take_frame(struct pipe *p)
{
    struct frame *f = p->frame[0];

    memmove(p->frame, p->frame + 1, sizeof(*p->frame) * (size_t)--p->n);
    return f;
}

/* ---- actions ---- */

void live_check_text(const char *s)
{
    for (size_t i = 0, n; s && s[i]; i += n) {
        n = text_clean_char(s + i);
        ASSERT(n > 0); /* may be shown on a terminal */
    }
}

/* The other side's view of a frame; a test may let memory run out. */
static void check_frame(const struct frame *f)
{
    Wire__Control *m;
    struct err err;
    int rc = msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err);

    ASSERT(rc == 0 || rc == ERR_NOMEM);
    if (rc == 0)
        msg_free(m);
}

void live_break(struct live *l, struct process *p, const struct err *why_d, const struct err *why_f)
{
    if (!p->is_connected)
        return;
    p->is_connected = 0;
    pipe_clear(&p->up);
    pipe_clear(&p->down);
    if (!p->is_closing && !l->p[0].is_finished) {
        driver_closed(l->p[0].d, l->now, p->conn, why_d);
        live_drain(l, &l->p[0]);
    }
    if (!p->is_leaving && !p->is_finished) {
        follower_closed(p->f, l->now, why_f);
        live_drain(l, p);
    }
}

static void note_event(struct live *l, const struct session_event *ev)
{
    live_check_text(ev->text);
    live_check_text(ev->host);
    l->r->n_epochs += ev->kind == EVENT_EPOCH;
    l->r->n_recovered += ev->kind == EVENT_RECOVERED;
}

static void hand_ring(struct live *l, struct process *p)
{
    const struct collective c = {.number = 1, .step = p->e.step, .bucket = -1, .n_bytes = 8};

    if (p->d)
        driver_ring(p->d, l->now, &c, 1);
    else
        follower_ring(p->f, l->now, &c, 1);
}

static void act(struct live *l, struct process *p, struct action *a)
{
    struct process *other = p->d ? conn_process(l, a->conn) : p;

    switch (a->kind) {
    case ACTION_SEND:
        check_frame(a->send.frame);
        ASSERT(other && other->is_connected && !(p->d ? other->is_closing : p->is_leaving));
        pipe_put(p->d ? &other->down : &p->up, frame_ref(a->send.frame));
        break;
    case ACTION_CLOSE:
        live_check_text(a->close.text);
        ASSERT(other && other->is_connected && !(p->d ? other->is_closing : p->is_leaving));
        if (p->d)
            other->is_closing = 1; /* messages that were sent still arrive */
        else
            p->is_leaving = 1;
        break;
    case ACTION_COMMAND:
        live_engine_post(&p->e, a->command);
        a->command = NULL;
        break;
    case ACTION_ABORT:
        p->e.canceled = p->e.posted;
        break;
    case ACTION_LOG:
        live_check_text(a->log.text);
        break;
    case ACTION_EVENT:
        note_event(l, &a->event);
        break;
    case ACTION_FINISHED:
        ASSERT(a->finished.status >= STATUS_OK && a->finished.status <= STATUS_STOPPED);
        live_check_text(a->finished.text);
        p->is_finished = 1;
        if (p->d)
            l->r->status = a->finished.status;
        break;
    case ACTION_RING:
        hand_ring(l, p);
        break;
    case ACTION_SEEK: /* followers here keep no state */
    case ACTION_TRUST:
    case ACTION_REQUEST:
    case ACTION_INJECT:
    case ACTION_INCIDENT:
    case ACTION_TRACE: /* the engines here record nothing */
        break;
    }
}

void live_drain(struct live *l, struct process *p)
{
    struct action a;

    while (p->d ? driver_next(p->d, &a) : follower_next(p->f, &a)) {
        ASSERT(!p->is_finished);
        act(l, p, &a);
        action_fini(&a);
    }
    p->is_leaving |= !p->d && p->is_finished;
}

/* ---- reports and messages ---- */

void live_report(struct live *l, struct process *p, struct report *r)
{
    if (p->is_finished)
        report_free(r);
    else if (p->d)
        driver_report(p->d, l->now, r);
    else
        follower_report(p->f, l->now, r);
    if (!p->is_finished)
        live_drain(l, p);
}

void live_hand_over(struct live *l, struct process *p, int is_up, const Wire__Control *m)
{
    struct process *to = is_up ? &l->p[0] : p;

    if (to->is_finished || (is_up ? p->is_closing : p->is_leaving))
        return;
    if (is_up)
        driver_message(l->p[0].d, l->now, p->conn, m);
    else
        follower_message(p->f, l->now, m);
    live_drain(l, to);
}

/* ---- processes ---- */

void live_start_follower(struct live *l, int k, int rank)
{
    static const char *const backends[] = {"cpu"};
    struct process *p = &l->p[k];
    char host[16], address[16], from[24];

    snprintf(host, sizeof(host), "h%d", k);
    snprintf(address, sizeof(address), "10.0.0.%d", k);
    snprintf(from, sizeof(from), "%s:4000", address);
    *p = (struct process){.is_alive = 1, .is_connected = 1, .conn = ++l->n_conns};
    p->e.canceled = -1;
    p->f = follower_new(&(struct follower_options){.rank = rank,
                                                   .host = host,
                                                   .host_id = host,
                                                   .device = "auto",
                                                   .backends = backends,
                                                   .n_backends = 1,
                                                   .driver = "10.0.0.100:7000"},
                        l->now);
    driver_connected(l->p[0].d, l->now, p->conn, address, "10.0.0.100", from);
    live_drain(l, p);
    live_drain(l, &l->p[0]);
}

void live_end_process(struct process *p)
{
    live_engine_clear(&p->e);
    pipe_clear(&p->up);
    pipe_clear(&p->down);
    follower_free(p->f);
    driver_free(p->d);
    p->f = NULL;
    p->d = NULL;
    p->is_alive = 0;
}

void live_kill(struct live *l, struct process *p)
{
    if (!p->is_alive)
        return;
    p->is_finished = 1;
    live_break(l, p, NULL, NULL);
    live_end_process(p);
}

void live_restart(struct live *l, int k, int rank)
{
    live_kill(l, &l->p[k]);
    if (!l->p[0].is_finished) /* otherwise no driver listens */
        live_start_follower(l, k, rank);
}

void live_finish_closing(struct live *l, struct process *p)
{
    if ((p->is_closing && !p->down.n) || (p->is_leaving && !p->up.n))
        live_break(l, p, NULL, NULL);
}

/* ---- time ---- */

void live_tick(struct live *l, struct process *p)
{
    struct progress at = {.bucket = -1, .head = {.at = {.bucket = -1}}};

    if (!p->is_alive || p->is_finished)
        return;
    at.phase = p->e.n ? PHASE_FORWARD : PHASE_IDLE;
    at.generation = p->e.n ? p->e.next[0]->generation : 0;
    at.step = p->e.step;
    if (p->d && l->now >= driver_deadline(p->d)) {
        driver_progress(p->d, l->now, &at);
        driver_tick(p->d, l->now);
    } else if (p->f && l->now >= follower_deadline(p->f)) {
        follower_progress(p->f, l->now, &at);
        follower_tick(p->f, l->now);
    }
    live_drain(l, p);
}

static int64_t next_deadline(const struct live *l)
{
    int64_t due = INT64_MAX;

    for (int k = 0; k <= MOST_FOLLOWERS; k++)
        if (l->p[k].is_alive && !l->p[k].is_finished)
            due =
                min_i64(due, l->p[k].d ? driver_deadline(l->p[k].d) : follower_deadline(l->p[k].f));
    return due;
}

void live_wait(struct live *l, int64_t ms)
{
    for (int64_t end = l->now + ms * MS; l->now < end;) {
        l->now = min_i64(end, max_i64(next_deadline(l), l->now + MS));
        for (int k = 0; k <= MOST_FOLLOWERS; k++)
            live_tick(l, &l->p[k]);
    }
}
