/* exchange: after a step that failed, whose collectives nobody waited for, the next step begins
 * afresh. */
#include "../test.h"

#include "../coll/local.h"
#include "session/ring.h"
#include "strategy/exchange.h"

static void nowhere(void *arg, enum phase phase, int64_t bucket)
{
    (void)arg, (void)phase, (void)bucket;
}

static int never(void *arg, int bucket)
{
    (void)arg, (void)bucket;
    return 0;
}

static void test_a_failed_step_leaves_nothing(void **state)
{
    struct exchange_options o = {
        .ring = ring_new(), .n_buckets = 2, .hooks = {.at = nowhere, .is_left_out = never}};
    struct exchange *x = exchange_new(&o);
    struct coll_group *g = coll_group_new(1);
    struct coll *c;
    float v[4] = {1, 2, 3, 4};
    struct err err;

    (void)state;
    assert_int_equal(coll_new_local(g, 0, &c, &err), 0);
    ring_begin(o.ring, 1);
    exchange_join(x, c);
    for (int64_t step = 0; step < 3; step++) { /* none is waited for */
        exchange_begin(x, step);
        for (int b = 0; b < 2; b++)
            assert_int_equal(exchange_allreduce(x, b, v, 4, DTYPE_F32, &err), 0);
    }
    exchange_begin(x, 3);
    assert_int_equal(exchange_wait(x, 1, &err), 0); /* nothing was started */
    exchange_leave(x);
    exchange_free(x);
    coll_free(c);
    coll_group_free(g);
    ring_free(o.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_failed_step_leaves_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
