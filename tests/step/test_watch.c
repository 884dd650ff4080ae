/* watch: of each bucket the shortest times count: when it was filled, by the host's clock or a
 * device's stopwatches, and how long its sum took.  The device here has a clock that the test
 * moves. */
#include "../test.h"

#include "../host_memory.h"
#include "session/ring.h"
#include "step/watch.h"

enum { N_BUCKETS = 2 };

struct clock {
    struct backend base; /* first */
    int64_t now_ns;
};

static int stopwatch(struct backend *b, int64_t watch[2], int stops, struct err *err)
{
    const struct clock *c = (struct clock *)b;

    (void)err;
    if (stops)
        watch[1] += c->now_ns - watch[0];
    else
        watch[0] = c->now_ns;
    return 0;
}

static const struct backend_device_ops device = {.zero = host_memory_zero, .stopwatch = stopwatch};
static const struct backend_ops on_host = {.name = "host"};
static const struct backend_ops on_device = {.name = "device",
                                             .alloc = host_memory_alloc,
                                             .free = host_memory_free,
                                             .copy_out = host_memory_copy,
                                             .device = &device};

static void nowhere(void *arg, enum phase phase, int64_t bucket)
{
    (void)arg, (void)phase, (void)bucket;
}

static int never(void *arg, int bucket)
{
    (void)arg, (void)bucket;
    return 0;
}

/* A step on the device that computes each bucket for computed_ns, and sums it for summed_ns. */
static void step(struct bucket_watch *w, struct clock *c, struct exchange *x, int64_t computed_ns,
                 int64_t summed_ns)
{
    struct err err;

    w->began_ns = 0;
    for (int b = 0; b < N_BUCKETS; b++) {
        assert_int_equal(watch_backward(w, &err), 0); /* each stage of backward calls it */
        c->now_ns += computed_ns;
        assert_int_equal(watch_filled(w, b, &err), 0);
        c->now_ns += summed_ns;
        assert_int_equal(watch_handed(w, b, x, &err), 0);
    }
    c->now_ns += 1000;
    assert_int_equal(watch_read(w, &err), 0);
}

static void test_a_device(void **state)
{
    struct exchange_options o = {
        .ring = ring_new(), .n_buckets = N_BUCKETS, .hooks = {.at = nowhere, .is_left_out = never}};
    struct exchange *x = exchange_new(&o);
    struct clock c = {.base = {&on_device}};
    struct bucket_watch w = {0};
    struct err err;

    (void)state;
    assert_false(watch_holds_up(&w));
    assert_int_equal(watch_start(&w, &c.base, N_BUCKETS, &err), 0);
    assert_true(watch_holds_up(&w));
    step(&w, &c, x, 5, 70);
    step(&w, &c, x, 6, 60);
    step(&w, &c, x, 7, 80);
    for (int b = 0; b < N_BUCKETS; b++) {
        assert_int_equal(w.filled_ns[b], 5 * (b + 1)); /* without the sums before */
        assert_int_equal(w.summed_ns[b], 60);
    }
    watch_stop(&w);
    assert_false(watch_holds_up(&w));
    exchange_free(x);
    ring_free(o.ring);
}

/* The record of collectives has the sums. */
static void test_the_host(void **state)
{
    struct backend b = {&on_host};
    struct bucket_watch w = {0};
    struct err err;

    (void)state;
    assert_int_equal(watch_filled(&w, 0, &err), 0); /* nothing is watched */
    assert_int_equal(watch_start(&w, &b, N_BUCKETS, &err), 0);
    assert_false(watch_holds_up(&w));
    assert_null(w.summed_ns);
    assert_int_equal(watch_backward(&w, &err), 0);
    for (int k = 0; k < N_BUCKETS; k++) {
        assert_int_equal(w.filled_ns[k], INT64_MAX);
        assert_int_equal(watch_filled(&w, k, &err), 0);
    }
    assert_in_range(w.filled_ns[0], 0, w.filled_ns[1]);
    assert_true(w.filled_ns[1] < INT64_MAX);
    w.filled_ns[0] = -1; /* shorter than the next one can be */
    assert_int_equal(watch_filled(&w, 0, &err), 0);
    assert_int_equal(w.filled_ns[0], -1);
    assert_int_equal(watch_read(&w, &err), 0);
    watch_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_device),
                                       cmocka_unit_test(test_the_host)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
