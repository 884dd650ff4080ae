/* Tests of a daemon's actions: very many take several turns of the loop, in order.  Events that
 * come meanwhile do not make them ever more, and a welcome does not wait for them. */
#include "../test.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "daemon/daemon.h"
#include "session/queue.h"

enum { MANY = 100000 };

struct crowd {
    struct daemon daemon;
    struct action_queue queue;
    int64_t n_asked, n_closed, n_trusted;
};

static int64_t crowd_deadline(const void *m)
{
    (void)m;
    return INT64_MAX;
}

static int crowd_next(void *m, struct action *out)
{
    return queue_take(&((struct crowd *)m)->queue, out);
}

static void crowd_close_one(void *arg, int64_t conn)
{
    struct crowd *c = arg;

    assert_int_equal(conn, c->n_closed);
    c->n_closed++;
}

static void crowd_trust(void *arg, int64_t conn)
{
    struct crowd *c = arg;

    assert_int_equal(conn, c->n_trusted);
    c->n_trusted++;
}

static const struct daemon_machine crowd_calls = {.deadline = crowd_deadline, .next = crowd_next};
static const struct daemon_hooks crowd_hooks = {.close = crowd_close_one, .trust = crowd_trust};

static int crowd_setup(void **state)
{
    const struct engine_options engine = {.device = "cpu"};
    struct crowd *c = xcalloc(1, sizeof *c);
    struct err err;

    assert_int_equal(daemon_init(&c->daemon, &crowd_hooks, c, &engine, &err), 0);
    queue_init(&c->queue);
    daemon_attach(&c->daemon, &crowd_calls, c);
    *state = c;
    return 0;
}

static int crowd_teardown(void **state)
{
    struct crowd *c = *state;

    queue_fini(&c->queue);
    daemon_detach(&c->daemon, 0);
    assert_int_equal(daemon_close(&c->daemon, 0), 0);
    free(c);
    return 0;
}

/* An event after which the machine wants n connections closed, and of is_hello one welcomed. */
static void event(struct crowd *c, int n, int is_hello)
{
    const int64_t n_trusted = c->n_trusted;

    daemon_enter(&c->daemon);
    for (int i = 0; i < n; i++)
        queue_close(&c->queue, c->n_asked++, "");
    if (is_hello)
        queue_trust(&c->queue, n_trusted);
    daemon_leave(&c->daemon);
    assert_int_equal(c->n_trusted, n_trusted + is_hello);
}

static int64_t n_waiting(const struct crowd *c) { return c->n_asked - c->n_closed; }

/* The first are done at once, all others soon. */
static void test_several_turns(void **state)
{
    struct crowd *c = *state;
    int n_turns = 0;

    event(c, MANY, 0);
    assert_in_range(c->n_closed, 1, 10000);
    uv_run(&c->daemon.loop, UV_RUN_NOWAIT);
    assert_in_range(c->n_closed, 10000, 50000);
    for (; n_waiting(c) > 0; n_turns++)
        uv_run(&c->daemon.loop, UV_RUN_NOWAIT);
    assert_in_range(n_turns, 2, 10);
    event(c, MANY, 0); /* and again from the beginning */
    assert_in_range(n_waiting(c), MANY - 10000, MANY - 1);
    while (n_waiting(c) > 0)
        uv_run(&c->daemon.loop, UV_RUN_NOWAIT);
}

/* While many wait, each turn brings a thousand ranks.  Each of them is welcomed at once. */
static void test_many_events(void **state)
{
    struct crowd *c = *state;
    int64_t most = MANY;

    event(c, MANY, 0);
    for (int turn = 0; turn < 50; turn++) {
        for (int i = 0; i < 1000; i++)
            event(c, 3, 1);
        assert_true(n_waiting(c) < most);
        most = n_waiting(c) > 1000 ? n_waiting(c) : 1000;
        uv_run(&c->daemon.loop, UV_RUN_NOWAIT);
    }
    assert_in_range(n_waiting(c), 0, 1000);
    assert_int_equal(c->n_trusted, 50 * 1000);
}

/* Each turn brings an event that wants more than a turn does at first. */
static void test_large_events(void **state)
{
    struct crowd *c = *state;

    for (int turn = 0; turn < 100; turn++) {
        event(c, 30000, 0);
        uv_run(&c->daemon.loop, UV_RUN_NOWAIT);
        assert_true(n_waiting(c) < 200000);
    }
}

/* A welcome stands before all that waits, behind those that came before it. */
static void test_order(void **state)
{
    struct crowd *c = *state;
    struct action a;

    for (int round = 0; round < 2; round++) { /* the queue is empty in between */
        queue_trust(&c->queue, 1);
        queue_close(&c->queue, 2, "");
        queue_trust(&c->queue, 3);
        queue_close(&c->queue, 4, "");
        for (int i = 0; i < 4; i++) {
            static const int conns[] = {1, 3, 2, 4};

            assert_int_equal(queue_take(&c->queue, &a), 1);
            assert_int_equal(a.conn, conns[i]);
            action_fini(&a);
            if (i == 0 && round == 1)
                queue_trust(&c->queue, 5);
            if (i == 1 && round == 1) {
                assert_int_equal(queue_take(&c->queue, &a), 1);
                assert_int_equal(a.conn, 5);
            }
        }
        assert_int_equal(queue_take(&c->queue, &a), 0);
    }
}

int main(void)
{
#define CROWD_TEST(t) cmocka_unit_test_setup_teardown(t, crowd_setup, crowd_teardown)
    const struct CMUnitTest tests[] = {
        CROWD_TEST(test_several_turns),
        CROWD_TEST(test_many_events),
        CROWD_TEST(test_large_events),
        CROWD_TEST(test_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
