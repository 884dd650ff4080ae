/* The meaning of the bytes of live.h: every string of bytes means something.
 * live_world.c carries out what follows from it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "live_impl.h"
#include "samples.h"

enum { MOST_OPS = 600 };

static unsigned take(struct live *l) { return l->at < l->end ? *l->at++ : 0; }

/* ---- engines ---- */

/* The engine answers the oldest of its commands; is_bad: it fails. */
static void run_engine(struct live *l, struct process *p, int is_bad, unsigned how)
{
    struct report *r = p->e.n ? live_engine_answer(&p->e, is_bad, how) : NULL;

    if (r)
        live_report(l, p, r);
}

/* Reports that an engine sends without being asked. */
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
        r->step.first = 1;
    } else if (r->kind == REPORT_WARNING) {
        r->warning.text = xstrdup("look out");
    } else {
        r->checkpoint.is_unasked = 1;
        r->checkpoint.step = p->e.step;
        r->checkpoint.path = what & 64 ? xstrdup("p") : NULL;
        r->checkpoint.error = what & 64 ? NULL : xstrdup("no space left");
    }
    live_report(l, p, r);
}

/* ---- messages ---- */

/* Deliver one message if the bytes are a message; otherwise the receiver's connection layer
 * closes. */
static void give_bytes(struct live *l, struct process *p, int is_up, const uint8_t *body,
                       size_t len, int is_changed)
{
    Wire__Control *m;
    struct err err;

    if (msg_unpack(body, len, &m, &err) < 0) {
        l->r->n_refused++;
        live_break(l, p, is_up ? &err : NULL, is_up ? NULL : &err);
        return;
    }
    l->r->n_changed += is_changed;
    live_hand_over(l, p, is_up, m);
    msg_free(m);
}

/* Deliver the next message on its way, with `n_flips` of its bytes changed. */
static void deliver(struct live *l, struct process *p, int is_up, int n_flips, int twice)
{
    struct pipe *way = is_up ? &p->up : &p->down;
    struct frame *f;
    uint8_t *copy;
    size_t len;

    if (!p->is_connected || !way->n)
        return;
    f = live_take_frame(way);
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

/* Deliver a valid message that was not asked for. */
static void intrude(struct live *l, struct process *p, int is_up, unsigned which,
                    unsigned generation)
{
    struct arena a;
    Wire__Control m;

    arena_init(&a);
    if (p->is_connected && sample_make(&a, (int)which % sample_count(), &m)) {
        m.generation = generation % 8;
        l->r->n_changed++;
        live_hand_over(l, p, is_up, &m);
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

/* Let everything run as it should: all is delivered and answered, again and again. */
static void run_well(struct live *l, int n_rounds)
{
    for (int i = 0; i < n_rounds; i++) {
        l->now += 5 * MS;
        for (int k = 1; k <= MOST_FOLLOWERS; k++) {
            struct process *p = &l->p[k];

            deliver(l, p, 1, 0, 0);
            deliver(l, p, 0, 0, 0);
            live_finish_closing(l, p);
            if (p->is_alive)
                run_engine(l, p, 0, 0);
            live_tick(l, p);
        }
        run_engine(l, &l->p[0], 0, 0);
        live_tick(l, &l->p[0]);
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
    live_drain(l, p);
}

static void drain_somebody(struct live *l, int who)
{
    static const char *const named[] = {"0",       "1",      "rank:2",  "spare1", "spare:2",
                                        "spare:0", "nobody", "spare-1", ""};
    struct drained drained = {.n = 0};
    struct err err;
    const char *name = named[(size_t)who % ARRAY_LEN(named)];

    if (l->p[0].is_finished)
        return;
    if (driver_drain(l->p[0].d, l->now, name, &drained, &err) < 0)
        live_check_text(err.msg);
    for (int i = 0; i < drained.n; i++)
        live_check_text(drained.leaver[i].line);
    drained_fini(&drained);
    live_drain(l, &l->p[0]);
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

/* One step: a letter says what happens, and the next byte to which end. */
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
        live_break(l, p, NULL, NULL);
        break;
    case 12:
        live_restart(l, k, who & 32 ? -1 : k);
        break;
    case 13:
        live_kill(l, p);
        break;
    case 14:
        live_wait(l, 50 * (int64_t)(1 + who));
        break;
    case 15:
        stop(l, any);
        break;
    case 0:
        drain_somebody(l, (int)(who % 10));
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

/* Nothing more is delivered or answered: every session must find that out by itself. */
static void run_out(struct live *l)
{
    for (int i = 0; i < 20 && !all_over(l); i++) {
        live_wait(l, 10000);
        for (int k = 1; k <= MOST_FOLLOWERS; k++)
            if (l->p[0].is_finished)
                live_break(l, &l->p[k], NULL, NULL);
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
    p->d = driver_new(&(struct driver_options){.n_ranks = n,
                                               .job = "name: x",
                                               .job_len = 7,
                                               .host = "h0",
                                               .host_id = "h0",
                                               .device = "cpu",
                                               .run = b & 128 ? "5f2c9a0b77e14d38" : NULL,
                                               .term = b & 128 ? 4 : 0,
                                               .n_epochs = 3,
                                               .max_steps = a & 64 ? 6 : 0,
                                               .validate_every = a >> 4 & 1,
                                               .checkpoint_every_epochs = a >> 5 & 1,
                                               .cluster = {.heartbeat_timeout_ms = 5000,
                                                           .min_ranks = b & 1 ? 1 : n,
                                                           .max_ranks = b & 2 ? n + 2 : n,
                                                           .spares = b >> 2 & 1,
                                                           .replace_timeout_ms = b & 8 ? 10000 : 0,
                                                           .join_interval_ms = b & 16 ? 1000 : 0,
                                                           .straggler_factor = b & 64 ? 2 : 0,
                                                           .rebalance = b >> 6 & 1,
                                                           .driver_timeout_ms = b & 128 ? 9000 : 0,
                                                           .deadlines = {20000, 10000, 10000, 10000,
                                                                         10000, 10000, 10000}}},
                      l->now);
    driver_start(p->d, l->now);
    live_drain(l, p);
    for (int k = 1; k < n; k++)
        live_start_follower(l, k, b & 32 ? -1 : k);
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
        live_end_process(&l.p[k]);
}
