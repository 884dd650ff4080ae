/* feed - a driver or a follower takes the bytes of one peer: they are cut into frames and unpacked
 * as the daemons do it, and an engine answers each command at once. */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver.h"
#include "session/follower.h"

enum { MS = 1000000 };

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
    struct driver *d; /* one of the two */
    struct follower *f;
    int64_t now;
    int is_open;
    struct feed_result *r;
};

static int next_action(struct feed *f, struct action *a)
{
    return f->d ? driver_next(f->d, a) : follower_next(f->f, a);
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
            ASSERT(f->is_open);
        } else if (a.kind == ACTION_CLOSE) {
            ASSERT(f->is_open);
            f->is_open = 0;
        } else if (a.kind == ACTION_EVENT) {
            f->r->n_epochs += a.event.kind == EVENT_EPOCH;
        } else if (a.kind == ACTION_FINISHED) {
            f->r->status = a.finished.status;
        }
        action_fini(&a);
    }
}

/* Seeds outlive a release: the version that they name is taken for this one.  Their reports are of
 * generation 1, so their Hello must not have been in a formation before. */
static void adopt(Wire__Control *m)
{
    if (m->body_case != WIRE__CONTROL__BODY_HELLO || !*m->hello->version)
        return;
    m->hello->formed = m->hello->form_generation = 0;
    free(m->hello->version);
    m->hello->version = strdup(DPTRAIN_VERSION);
}

static void take_message(struct feed *f, Wire__Control *m)
{
    adopt(m);
    f->now += MS;
    f->r->n_messages++;
    if (f->d)
        driver_message(f->d, f->now, 1, m);
    else
        follower_message(f->f, f->now, m);
    drain(f);
}

static void close_conn(struct feed *f, const struct err *why)
{
    if (!f->is_open)
        return;
    f->is_open = 0;
    if (f->d)
        driver_closed(f->d, f->now, 1, why);
    else
        follower_closed(f->f, f->now, why);
    drain(f);
}

static void take_bytes(struct feed *f, const uint8_t *data, size_t len)
{
    struct frame_reader r;
    struct err err;
    const uint8_t *body;
    size_t body_len;
    int rc;

    frame_reader_init(&r, FRAME_MAX);
    ASSERT(frame_reader_add(&r, data, len, &err) == 0);
    while (f->is_open && (rc = frame_reader_next(&r, &body, &body_len, &err)) != 0) {
        Wire__Control *m;
        if (rc < 0 || msg_unpack(body, body_len, &m, &err) < 0) {
            close_conn(f, &err);
            break;
        }
        take_message(f, m);
        msg_free(m);
    }
    frame_reader_fini(&r);
    f->r->was_closed = !f->is_open;
    close_conn(f, NULL);
}

/* Let time pass until the driver has ended, for at most two simulated minutes. */
static void run_out(struct feed *f)
{
    for (int i = 0; i < 2000 && f->r->status < 0; i++) {
        int64_t due = f->d ? driver_deadline(f->d) : follower_deadline(f->f);
        f->now = due > f->now ? due : f->now + MS;
        if (f->d)
            driver_tick(f->d, f->now);
        else
            follower_tick(f->f, f->now);
        drain(f);
    }
    ASSERT(f->r->status >= 0); /* no session waits for ever */
}

void feed_driver(const uint8_t *data, size_t len, struct feed_result *out)
{
    struct feed f = {.now = MS, .is_open = 1, .r = out};
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
    driver_connected(f.d, f.now, 1, "10.0.0.7", "10.0.0.1", "10.0.0.7:4711");
    drain(&f);
    take_bytes(&f, data, len);
    run_out(&f);
    driver_free(f.d);
}

void feed_follower(const uint8_t *data, size_t len, struct feed_result *out)
{
    static const char *const backends[] = {"cpu"};
    struct feed f = {.now = MS, .is_open = 1, .r = out};
    *out = (struct feed_result){.status = -1};
    f.f = follower_new(&(struct follower_options){.rank = -1,
                                                  .host = "host1",
                                                  .host_id = "shared",
                                                  .device = "auto",
                                                  .backends = backends,
                                                  .n_backends = 1,
                                                  .driver = "10.0.0.1:7000"},
                       f.now);
    drain(&f);
    take_bytes(&f, data, len);
    run_out(&f);
    follower_free(f.f);
}

void feed_all(const uint8_t *data, size_t len)
{
    struct feed_result r;
    feed_driver(data, len, &r);
    feed_follower(data, len, &r);
}
