/* feed - a driver, a follower or a standby takes the bytes of one peer: they are cut into frames
 * and unpacked as the daemons do it, and an engine answers each command at once. */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver.h"
#include "session/follower.h"
#include "session/standby.h"

enum { MS = 1000000 };
enum {
    TO_DRIVER,
    TO_FOLLOWER
}; /* connections, by the peer; further followers have later numbers */
enum { MOST_CONNS = 6 };

static const char *const tensor_names[] = {"conv1.weight", "conv1.bias", "fc.weight"};

static struct tensor_hash *tensors(int *n)
{
    struct tensor_hash *t = xcalloc(ARRAY_LEN(tensor_names), sizeof(*t));
    for (size_t i = 0; i < ARRAY_LEN(tensor_names); i++)
        t[i] = (struct tensor_hash){xstrdup(tensor_names[i]),
                                    hash_of(tensor_names[i], strlen(tensor_names[i]))};
    *n = (int)ARRAY_LEN(tensor_names);
    return t;
}

/* The answer of an engine that succeeds at once, with the numbers of tests/wire's samples: it holds
 * step 4 of 8, in epochs of 4.  NULL: the command has no answer. */
static struct report *answer(const struct cmd *c)
{
    static const enum report_kind kinds[] = {
        [CMD_OPEN] = REPORT_OPENED,        [CMD_PREPARE] = REPORT_PREPARED,
        [CMD_FORM] = REPORT_FORMED,        [CMD_TRAIN] = REPORT_EPOCH,
        [CMD_VALIDATE] = REPORT_VALIDATED, [CMD_CHECKPOINT] = REPORT_CHECKPOINT,
        [CMD_STOP] = REPORT_STOPPED,
    };
    struct report *r = report_new(kinds[c->kind], c->generation);
    if (c->kind == CMD_OPEN) {
        r->opened.layout = hash_of("layout", 6);
        r->opened.data = hash_of("data", 4);
        r->opened.tensor = tensors(&r->opened.n_tensors);
        r->opened.n_train = 100;
        r->opened.n_validation = 10;
        r->opened.n_parameters = 1000;
        r->opened.steps_per_epoch = 4;
        r->opened.step = 4;
    } else if (c->kind == CMD_PREPARE) {
        r->prepared.library = xstrdup("tcp");
    } else if (c->kind == CMD_FORM) {
        r->formed.step = 7;
    } else if (c->kind == CMD_TRAIN) {
        r->epoch.epoch = c->train.epoch;
        r->epoch.step = 4 * c->train.epoch;
        r->epoch.end = EPOCH_WHOLE;
        r->epoch.replica = hash_of("replica", 7);
        r->epoch.tensor = tensors(&r->epoch.n_tensors);
    } else if (c->kind == CMD_VALIDATE) {
        r->validated.epoch = c->validate.epoch;
        r->validated.n_samples = 5;
        r->validated.n_targets = r->validated.n_samples;
        r->validated.weight = (double)r->validated.n_targets;
        r->validated.n_correct = 4;
        r->validated.loss_sum = 2.5;
    } else if (c->kind == CMD_CHECKPOINT) {
        r->checkpoint.step = c->checkpoint.step;
        r->checkpoint.path = xstrdup("checkpoints/step-00000008");
    }
    return r;
}

struct feed {
    struct driver *d; /* one of the three */
    struct follower *f;
    struct standby *s;
    int64_t now;
    int64_t conn;            /* on which the bytes come */
    int is_open[MOST_CONNS]; /* by connection */
    int is_seeking;          /* it wants to connect with its driver again */
    struct feed_result *r;
};

static int next_action(struct feed *f, struct action *a)
{
    return f->d ? driver_next(f->d, a) : f->f ? follower_next(f->f, a) : standby_next(f->s, a);
}

static void hand_ring(struct feed *f)
{
    const struct collective c = {.number = 1, .step = 4, .bucket = -1, .n_bytes = 8};

    if (f->d)
        driver_ring(f->d, f->now, &c, 1);
    else
        follower_ring(f->f, f->now, &c, 1);
}

static void drain(struct feed *f)
{
    struct action a;
    while (next_action(f, &a)) {
        ASSERT(f->r->status < 0); /* nothing after ACTION_FINISHED */
        if (a.kind == ACTION_COMMAND) {
            struct report *r = answer(a.command);
            if (f->d)
                driver_report(f->d, f->now, r);
            else
                follower_report(f->f, f->now, r);
        } else if (a.kind == ACTION_SEND) {
            ASSERT(f->is_open[a.conn]);
        } else if (a.kind == ACTION_CLOSE) {
            ASSERT(f->is_open[a.conn]);
            f->is_open[a.conn] = 0;
        } else if (a.kind == ACTION_RING) {
            hand_ring(f);
        } else if (a.kind == ACTION_SEEK) {
            f->is_seeking = 1;
        } else if (a.kind == ACTION_EVENT) {
            f->r->n_epochs += a.event.kind == EVENT_EPOCH;
        } else if (a.kind == ACTION_FINISHED) {
            f->r->status = a.finished.status;
            f->r->is_leader = a.finished.is_leader;
        }
        action_fini(&a);
    }
}

/* ---- connections ---- */

static const struct follower_options *follower_options(void)
{
    static const char *const backends[] = {"cpu"};
    static const struct follower_options o = {.rank = -1,
                                              .host = "host1",
                                              .host_id = "shared",
                                              .device = "auto",
                                              .backends = backends,
                                              .n_backends = 1,
                                              .driver = "10.0.0.1:7000",
                                              .keeps_state = 1};
    return &o;
}

/* The peer comes again after its connection was closed: as another follower, or as the driver that
 * is sought.  0: it does not. */
static int connect_again(struct feed *f)
{
    if (f->r->status >= 0 || (f->conn == TO_DRIVER && !f->is_seeking) ||
        (f->conn != TO_DRIVER && f->conn + 1 == MOST_CONNS))
        return 0;
    f->is_seeking = 0;
    f->conn += f->conn != TO_DRIVER;
    f->is_open[f->conn] = 1;
    if (f->d)
        driver_connected(f->d, f->now, f->conn, "10.0.0.8", "10.0.0.1", "10.0.0.8:4712");
    else if (f->f)
        follower_connected(f->f, follower_options(), f->now);
    else if (f->conn == TO_DRIVER)
        standby_connected(f->s, f->now);
    drain(f);
    return f->is_open[f->conn];
}

static void close_conn(struct feed *f, int64_t conn, const struct err *why)
{
    if (!f->is_open[conn])
        return;
    f->is_open[conn] = 0;
    if (f->d)
        driver_closed(f->d, f->now, conn, why);
    else if (f->f)
        follower_closed(f->f, f->now, why);
    else
        standby_closed(f->s, f->now, conn, why);
    drain(f);
}

/* ---- bytes ---- */

/* Seeds outlive a release: the version that they name is taken for this one.  Their reports are of
 * generation 1, so for a driver the Hello of its first follower must not have been in a formation
 * before.  No session keeps its state for long. */
static void adopt(const struct feed *f, Wire__Control *m)
{
    if (m->body_case == WIRE__CONTROL__BODY_WELCOME)
        m->welcome->driver_timeout_ms = min_i64(m->welcome->driver_timeout_ms, 3000);
    if (m->body_case != WIRE__CONTROL__BODY_HELLO || !*m->hello->version)
        return;
    if (f->d && f->conn == TO_FOLLOWER)
        m->hello->formed = m->hello->form_generation = 0;
    free(m->hello->version);
    m->hello->version = strdup(DPTRAIN_VERSION);
}

static void take_message(struct feed *f, Wire__Control *m)
{
    adopt(f, m);
    f->now += MS;
    f->r->n_messages++;
    if (f->d)
        driver_message(f->d, f->now, f->conn, m);
    else if (f->f)
        follower_message(f->f, f->now, m);
    else
        standby_message(f->s, f->now, f->conn, m);
    drain(f);
}

/* A body of one byte 0, which is no message, says that the connection is lost; any other body that
 * is no message ends it.  The messages after it come on the next connection. */
static void take_bytes(struct feed *f, const uint8_t *data, size_t len)
{
    struct frame_reader r;
    struct err err;
    const uint8_t *body;
    size_t body_len;
    int rc = 0;

    frame_reader_init(&r, FRAME_MAX);
    ASSERT(frame_reader_add(&r, data, len, &err) == 0);
    while (f->r->status < 0 && (f->is_open[f->conn] || connect_again(f)) &&
           (rc = frame_reader_next(&r, &body, &body_len, &err)) > 0) {
        Wire__Control *m;
        if (body_len == 1 && body[0] == 0) {
            close_conn(f, f->conn, NULL);
        } else if (msg_unpack(body, body_len, &m, &err) == 0) {
            take_message(f, m);
            msg_free(m);
        } else {
            close_conn(f, f->conn, &err);
        }
    }
    if (rc < 0 && f->r->status < 0)
        close_conn(f, f->conn, &err);
    frame_reader_fini(&r);
    f->r->was_closed = !f->is_open[f->conn];
    if (f->r->status < 0)
        close_conn(f, f->conn, NULL);
}

static int64_t deadline(const struct feed *f)
{
    return f->d ? driver_deadline(f->d) : f->f ? follower_deadline(f->f) : standby_deadline(f->s);
}

static void tick(struct feed *f)
{
    if (f->d)
        driver_tick(f->d, f->now);
    else if (f->f)
        follower_tick(f->f, f->now);
    else
        standby_tick(f->s, f->now);
    drain(f);
}

/* Let time pass until the session has ended, for at most two simulated minutes.  A standby that
 * never had a driver looks for it until it is stopped. */
static void run_out(struct feed *f)
{
    for (int i = 0; i < 2000 && f->r->status < 0; i++) {
        int64_t due = deadline(f);
        if (f->s && due == INT64_MAX) {
            standby_stop(f->s, f->now, "the operator");
            drain(f);
            break;
        }
        f->now = due > f->now ? due : f->now + MS;
        tick(f);
    }
    ASSERT(f->r->status >= 0); /* no session waits for ever */
}

/* ---- a driver, a follower ---- */

void feed_driver(const uint8_t *data, size_t len, struct feed_result *out)
{
    struct feed f = {.now = MS, .conn = TO_FOLLOWER, .is_open = {[TO_FOLLOWER] = 1}, .r = out};
    *out = (struct feed_result){.status = -1};
    f.d = driver_new(&(struct driver_options){.n_ranks = 2,
                                              .job = "name: x",
                                              .job_len = 7,
                                              .run = "5f2c9a0b77e14d38", /* the samples' */
                                              .term = 4,
                                              .host = "host0",
                                              .host_id = "shared",
                                              .device = "cpu",
                                              .n_epochs = 2,
                                              .validate_every = 1,
                                              .checkpoint_every_epochs = 1,
                                              .cluster = {.heartbeat_timeout_ms = 5000,
                                                          .deadlines = {20000, 10000, 10000, 10000,
                                                                        10000, 10000, 10000}}},
                     f.now);
    driver_start(f.d, f.now);
    driver_connected(f.d, f.now, TO_FOLLOWER, "10.0.0.7", "10.0.0.1", "10.0.0.7:4711");
    drain(&f);
    take_bytes(&f, data, len);
    run_out(&f);
    driver_free(f.d);
}

void feed_follower(const uint8_t *data, size_t len, struct feed_result *out)
{
    struct feed f = {.now = MS, .conn = TO_DRIVER, .is_open = {[TO_DRIVER] = 1}, .r = out};
    *out = (struct feed_result){.status = -1};
    f.f = follower_new(follower_options(), f.now);
    drain(&f);
    take_bytes(&f, data, len);
    run_out(&f);
    follower_free(f.f);
}

/* ---- standby ---- */

/* The driver of the samples' run welcomes the standby, and formation 7, of three ranks, begins.
 * Then the driver is lost. */
static void lose_driver(struct feed *f)
{
    char device[] = "cpu", host[] = "h0", at[] = "10.0.0.9:7001", run[] = "5f2c9a0b77e14d38";
    char id[] = "77aa";
    Wire__Control m = WIRE__CONTROL__INIT;
    Wire__Welcome w = WIRE__WELCOME__INIT;
    Wire__Voters v = WIRE__VOTERS__INIT;

    w.job = (ProtobufCBinaryData){7, (uint8_t *)(uintptr_t) "name: x"};
    w.n_ranks = 3;
    w.device = device;
    w.host = host;
    w.heartbeat_ms = 1000;
    w.heartbeat_timeout_ms = 5000;
    w.run = run;
    w.term = 3;
    w.driver_timeout_ms = 3000;
    w.standby = at;
    m.body_case = WIRE__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    standby_message(f->s, f->now, TO_DRIVER, &m);
    drain(f);
    v.term = 3;
    v.generation = v.formed = 7;
    v.n_ranks = 3;
    v.standby = id;
    m.body_case = WIRE__CONTROL__BODY_VOTERS;
    m.voters = &v;
    standby_message(f->s, f->now, TO_DRIVER, &m);
    drain(f);
    close_conn(f, TO_DRIVER, NULL);
}

void feed_standby(const uint8_t *data, size_t len, int is_driver, struct feed_result *out)
{
    struct feed f = {.now = MS, .conn = TO_DRIVER, .r = out};
    struct buf text = {0};

    *out = (struct feed_result){.status = -1};
    f.s = standby_new(&(struct standby_options){.id = "77aa",
                                                .port = 7001,
                                                .host = "host9",
                                                .host_id = "other",
                                                .device = "cpu",
                                                .driver = "10.0.0.1:7000"},
                      f.now);
    drain(&f);
    ASSERT(connect_again(&f));
    if (!is_driver) {
        lose_driver(&f);
        f.is_open[f.conn = TO_FOLLOWER] = 1;
    }
    take_bytes(&f, data, len);
    standby_describe(f.s, f.now, &text);
    ASSERT(text.len > 0);
    run_out(&f);
    ASSERT(!out->is_leader || standby_holds(f.s, f.conn));
    buf_fini(&text);
    standby_free(f.s);
}

void feed_all(const uint8_t *data, size_t len)
{
    struct feed_result r;
    feed_driver(data, len, &r);
    feed_follower(data, len, &r);
    feed_standby(data, len, 1, &r);
    feed_standby(data, len, 0, &r);
}
