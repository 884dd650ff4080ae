#include "live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "live_engine.h"
#include "samples.h"
#include "session/driver.h"
#include "session/follower.h"
#include "wire/text.h"

enum { MS = 1000000, MOST_FOLLOWERS = 6, MOST_FRAMES = 64, MOST_OPS = 600 };

struct pipe { /* one way of a connection */
    struct frame *frame[MOST_FRAMES];
    int n;
};

struct process { /* 0 the driver, else a follower with its connection to it */
    struct driver *d;
    struct follower *f;
    struct live_engine e;
    int is_alive, is_connected, is_finished;
    int is_closing, is_leaving; /* the driver has closed its end; the follower its own */
    int64_t conn;               /* the driver's number for it */
    struct pipe up, down;
};

struct live {
    const uint8_t *at, *end;
    int64_t now, n_conns;
    struct process p[1 + MOST_FOLLOWERS];
    int is_eager; /* engines answer at once */
    struct live_result *r;
};

static unsigned take(struct live *l) { return l->at < l->end ? *l->at++ : 0; }

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
    ASSERT(p->n < MOST_FRAMES); /* nobody sends without end while nothing comes back */
    p->frame[p->n++] = f;
}

static struct frame *pipe_take(struct pipe *p)
{
    struct frame *f = p->frame[0];

    memmove(p->frame, p->frame + 1, sizeof(*p->frame) * (size_t)--p->n);
    return f;
}

/* ---- actions ---- */

static void drain(struct live *l, struct process *p);

static void check_text(const char *s)
{
    for (size_t i = 0, n; s && s[i]; i += n) {
        n = text_clean_char(s + i);
        ASSERT(n > 0); /* may be shown on a terminal */
    }
}

/* What the other side would make of it; a test may let memory run out. */
static void check_frame(const struct frame *f)
{
    Wire__Control *m;
    struct err err;
    int rc = msg_unpack(f->data + FRAME_HEADER, f->len - FRAME_HEADER, &m, &err);

    ASSERT(rc == 0 || rc == ERR_NOMEM);
    if (rc == 0)
        msg_free(m);
}

/* `why_d`, `why_f`: what either end is told; NULL: it just closed. */
static void break_conn(struct live *l, struct process *p, const struct err *why_d,
                       const struct err *why_f)
{
    if (!p->is_connected)
        return;
    p->is_connected = 0;
    pipe_clear(&p->up);
    pipe_clear(&p->down);
    if (!p->is_closing && !l->p[0].is_finished) {
        driver_closed(l->p[0].d, l->now, p->conn, why_d);
        drain(l, &l->p[0]);
    }
    if (!p->is_leaving && !p->is_finished) {
        follower_closed(p->f, l->now, why_f);
        drain(l, p);
    }
}

static void note_event(struct live *l, const struct session_event *ev)
{
    check_text(ev->text);
    check_text(ev->host);
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
        check_text(a->close.text);
        ASSERT(other && other->is_connected && !(p->d ? other->is_closing : p->is_leaving));
        if (p->d)
            other->is_closing = 1; /* what it sent still arrives */
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
        check_text(a->log.text);
        break;
    case ACTION_EVENT:
        note_event(l, &a->event);
        break;
    case ACTION_FINISHED:
        ASSERT(a->finished.status >= STATUS_OK && a->finished.status <= STATUS_STOPPED);
        check_text(a->finished.text);
        p->is_finished = 1;
        if (p->d)
            l->r->status = a->finished.status;
        break;
    case ACTION_RING:
        hand_ring(l, p);
        break;
    case ACTION_TRUST:
    case ACTION_REQUEST:
    case ACTION_INJECT:
    case ACTION_INCIDENT:
        break;
    }
}

static void drain(struct live *l, struct process *p)
{
    struct action a;

    while (p->d ? driver_next(p->d, &a) : follower_next(p->f, &a)) {
        ASSERT(!p->is_finished);
        act(l, p, &a);
        action_fini(&a);
    }
    p->is_leaving |= !p->d && p->is_finished;
}

/* ---- engines ---- */

static void report(struct live *l, struct process *p, struct report *r)
{
    if (p->is_finished)
        report_free(r);
    else if (p->d)
        driver_report(p->d, l->now, r);
    else
        follower_report(p->f, l->now, r);
    if (!p->is_finished)
        drain(l, p);
}

/* The engine answers the oldest of its commands; is_bad: it fails. */
static void run_engine(struct live *l, struct process *p, int is_bad, unsigned how)
{
    struct report *r = p->e.n ? live_engine_answer(&p->e, is_bad, how) : NULL;

    if (r)
        report(l, p, r);
}

/* What an engine says without being asked. */
static void speak(struct live *l, struct process *p, unsigned what)
{
    struct report *r = report_new(what % 3 == 0   ? REPORT_STEP
                                  : what % 3 == 1 ? REPORT_WARNING
                                                  : REPORT_CHECKPOINT,
                                  what / 3 % 4);

    if (p->e.is_stopped || p->is_finished || !p->e.n || (what % 3 == 2 && !p->d)) {
        report_free(r);
        return;
    }
    if (r->kind == REPORT_STEP) {
        r->step.step = p->e.step;
        r->step.first = r->step.is_formed = 1;
    } else if (r->kind == REPORT_WARNING) {
        r->warning.text = xstrdup("look out");
    } else {
        r->checkpoint.is_unasked = 1;
        r->checkpoint.step = p->e.step;
        r->checkpoint.path = what & 64 ? xstrdup("p") : NULL;
        r->checkpoint.error = what & 64 ? NULL : xstrdup("no space left");
    }
    report(l, p, r);
}

/* ---- messages ---- */

static void hand_over(struct live *l, struct process *p, int is_up, const Wire__Control *m)
{
    struct process *to = is_up ? &l->p[0] : p;

    if (to->is_finished || (is_up ? p->is_closing : p->is_leaving))
        return;
    if (is_up)
        driver_message(l->p[0].d, l->now, p->conn, m);
    else
        follower_message(p->f, l->now, m);
    drain(l, to);
}

/* One message, if its bytes are one; else the receiver's connection layer closes. */
static void give_bytes(struct live *l, struct process *p, int is_up, const uint8_t *body,
                       size_t len, int is_changed)
{
    Wire__Control *m;
    struct err err;

    if (msg_unpack(body, len, &m, &err) < 0) {
        l->r->n_refused++;
        break_conn(l, p, is_up ? &err : NULL, is_up ? NULL : &err);
        return;
    }
    l->r->n_changed += is_changed;
    hand_over(l, p, is_up, m);
    msg_free(m);
}

/* The next message on its way; `n_flips` of its bytes changed. */
static void deliver(struct live *l, struct process *p, int is_up, int n_flips, int twice)
{
    struct pipe *way = is_up ? &p->up : &p->down;
    struct frame *f;
    uint8_t *copy;
    size_t len;

    if (!p->is_connected || !way->n)
        return;
    f = pipe_take(way);
    len = f->len - FRAME_HEADER;
    copy = xmalloc(len);
    memcpy(copy, f->data + FRAME_HEADER, len);
    frame_unref(f);
    for (int i = 0; i < n_flips; i++) {
        size_t at = take(l);

        copy[(at | take(l) << 8) % len] = (uint8_t)take(l);
    }
    for (int i = 0; i <= twice && p->is_connected; i++)
        give_bytes(l, p, is_up, copy, len, n_flips > 0 || i > 0);
    free(copy);
}

/* Some valid message that nobody asked for. */
static void intrude(struct live *l, struct process *p, int is_up, unsigned which,
                    unsigned generation)
{
    struct arena a;
    Wire__Control m;

    arena_init(&a);
    if (p->is_connected && sample_make(&a, (int)(which % 24), &m)) {
        m.generation = generation % 8;
        l->r->n_changed++;
        hand_over(l, p, is_up, &m);
    }
    arena_fini(&a);
}

static void raw(struct live *l, struct process *p, int is_up)
{
    size_t n = min_i64(take(l), l->end - l->at);

    if (p->is_connected && n)
        give_bytes(l, p, is_up, l->at, n, 1);
    l->at += n;
}

/* ---- processes ---- */

static void start_follower(struct live *l, int k, int rank)
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
    drain(l, p);
    drain(l, &l->p[0]);
}

static void end_process(struct process *p)
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

static void kill_follower(struct live *l, struct process *p)
{
    if (!p->is_alive)
        return;
    p->is_finished = 1;
    break_conn(l, p, NULL, NULL);
    end_process(p);
}

static void restart_follower(struct live *l, int k, int rank)
{
    kill_follower(l, &l->p[k]);
    if (!l->p[0].is_finished) /* who would listen? */
        start_follower(l, k, rank);
}

/* Both ends of a connection that one of them wants closed, once all is delivered. */
static void finish_closing(struct live *l, struct process *p)
{
    if ((p->is_closing && !p->down.n) || (p->is_leaving && !p->up.n))
        break_conn(l, p, NULL, NULL);
}

/* ---- time ---- */

static void tick(struct live *l, struct process *p)
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
    drain(l, p);
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

static void wait_ms(struct live *l, int64_t ms)
{
    for (int64_t end = l->now + ms * MS; l->now < end;) {
        l->now = min_i64(end, max_i64(next_deadline(l), l->now + MS));
        for (int k = 0; k <= MOST_FOLLOWERS; k++)
            tick(l, &l->p[k]);
    }
}

/* As it should be: everything is delivered and answered, again and again. */
static void run_well(struct live *l, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        l->now += 5 * MS;
        for (int k = 1; k <= MOST_FOLLOWERS; k++) {
            struct process *p = &l->p[k];

            deliver(l, p, 1, 0, 0);
            deliver(l, p, 0, 0, 0);
            finish_closing(l, p);
            if (p->is_alive)
                run_engine(l, p, 0, 0);
            tick(l, p);
        }
        run_engine(l, &l->p[0], 0, 0);
        tick(l, &l->p[0]);
    }
}

/* ---- what happens next ---- */

static void stop(struct live *l, struct process *p)
{
    if (!p->is_alive || p->is_finished)
        return;
    if (p->d)
        driver_stop(p->d, l->now, "SIGTERM");
    else
        follower_stop(p->f, l->now, "SIGTERM");
    drain(l, p);
}

static void drain_rank(struct live *l, int rank)
{
    struct err err;

    if (l->p[0].is_finished)
        return;
    if (driver_drain(l->p[0].d, l->now, rank, &err) < 0)
        check_text(err.msg);
    drain(l, &l->p[0]);
}

static void describe(struct live *l, struct process *p)
{
    struct buf text = {0};
    struct status s = {0};

    if (p->d)
        driver_status(p->d, l->now, &s);
    else if (p->is_alive)
        follower_describe(p->f, l->now, &text);
    status_fini(&s);
    buf_fini(&text);
}

/* One step: a letter says what, the next byte to or from whom. */
static void go(struct live *l)
{
    unsigned what = take(l), who = take(l);
    int k = 1 + (int)(who % MOST_FOLLOWERS), is_up = who & 16;
    struct process *p = &l->p[k], *any = &l->p[who % (1 + MOST_FOLLOWERS)];

    switch (what % 16) {
    case 'r' % 16: /* 2 */
        run_well(l, 1 + (int)(who % 32));
        break;
    case 3:
        deliver(l, p, is_up, 0, 0);
        break;
    case 4:
        deliver(l, p, is_up, 1 + (int)(who >> 6), 0);
        break;
    case 5:
        deliver(l, p, is_up, 0, 1);
        break;
    case 6:
        intrude(l, p, is_up, take(l), take(l));
        break;
    case 7:
        raw(l, p, is_up);
        break;
    case 8:
        if (any->is_alive)
            run_engine(l, any, 0, 0);
        break;
    case 9:
        if (any->is_alive)
            run_engine(l, any, 1, take(l));
        break;
    case 10:
        if (any->is_alive)
            speak(l, any, take(l));
        break;
    case 11:
        break_conn(l, p, NULL, NULL);
        break;
    case 12:
        restart_follower(l, k, who & 32 ? -1 : k);
        break;
    case 13:
        kill_follower(l, p);
        break;
    case 14:
        wait_ms(l, 50 * (int64_t)(1 + who));
        break;
    case 15:
        stop(l, any);
        break;
    case 0:
        drain_rank(l, (int)(who % 10) - 1);
        break;
    case 1:
        describe(l, any);
        break;
    }
}

static int all_over(const struct live *l)
{
    for (int k = 0; k <= MOST_FOLLOWERS; k++)
        if (l->p[k].is_alive && !l->p[k].is_finished)
            return 0;
    return 1;
}

/* Nothing more is delivered or answered: everybody must find that out by themselves. */
static void run_out(struct live *l)
{
    for (int i = 0; i < 20 && !all_over(l); i++) {
        wait_ms(l, 10000);
        for (int k = 1; k <= MOST_FOLLOWERS; k++)
            if (l->p[0].is_finished)
                break_conn(l, &l->p[k], NULL, NULL);
    }
    ASSERT(all_over(l));
}

static void start_driver(struct live *l)
{
    unsigned a = take(l), b = take(l);
    int n = 1 + (int)(a % 4);
    struct process *p = &l->p[0];

    p->is_alive = 1;
    p->e = (struct live_engine){.is_driver = 1, .canceled = -1};
    p->d = driver_new(
        &(struct driver_options){.n_ranks = n,
                                 .job = "name: x",
                                 .job_len = 7,
                                 .host = "h0",
                                 .host_id = "h0",
                                 .device = "cpu",
                                 .n_epochs = 3,
                                 .max_steps = a & 64 ? 6 : 0,
                                 .validate_every = a >> 4 & 1,
                                 .checkpoint_every_epochs = a >> 5 & 1,
                                 .heartbeat_timeout_ms = 5000,
                                 .min_ranks = b & 1 ? 1 : n,
                                 .max_ranks = b & 2 ? n + 2 : n,
                                 .n_spares = b >> 2 & 1,
                                 .replace_timeout_ms = b & 8 ? 10000 : 0,
                                 .join_interval_ms = b & 16 ? 1000 : 0,
                                 .deadlines = {20000, 10000, 10000, 10000, 10000, 10000, 10000}},
        l->now);
    driver_start(p->d, l->now);
    drain(l, p);
    for (int k = 1; k < n; k++)
        start_follower(l, k, b & 32 ? -1 : k);
}

void live_run(const uint8_t *data, size_t len, struct live_result *out)
{
    struct live l = {.at = data, .end = data + len, .now = 1000 * (int64_t)MS, .r = out};

    *out = (struct live_result){.status = -1};
    start_driver(&l);
    for (int i = 0; i < MOST_OPS && l.at < l.end && !all_over(&l); i++)
        go(&l);
    run_out(&l);
    ASSERT(out->status >= 0);
    for (int k = MOST_FOLLOWERS; k >= 0; k--)
        end_process(&l.p[k]);
}
