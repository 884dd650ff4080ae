/* patience - how long a thread rests after tries that failed and that succeeded, and how often it
 * looks meanwhile.  The clock is the test's. */
#include "../test.h"

#include "base/clock.h"
#include "coll/patience.h"

enum { TOOK = 100, LOOK_NS = 1000 };

static int64_t now_ns, late_ns;

/* In place of base/clock's: each look at it takes LOOK_NS. */
int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void) { return now_ns += LOOK_NS + late_ns; }

/* How long the rest after a failure at time 0 lasts, in tries' lengths; 0 to 200. */
static int64_t rest_after_failure(struct patience *p)
{
    int64_t n = 0;

    patience_learn(p, 0, 0, TOOK);
    while (n < 200 && patience_rests(p, n * TOOK))
        n++;
    return n;
}

static void test_failures_double_the_rest(void **state)
{
    struct patience p = {0};

    (void)state;
    assert_false(patience_rests(&p, 0));
    for (int64_t want = 1; want <= 64; want *= 2)
        assert_int_equal(rest_after_failure(&p), want);
    assert_int_equal(rest_after_failure(&p), 64); /* and no longer */
}

static void test_successes_halve_the_rest(void **state)
{
    struct patience p = {0};

    (void)state;
    for (int i = 0; i < 5; i++)
        rest_after_failure(&p); /* the next rest would be of 32 */
    for (int i = 0; i < 2 * PATIENCE_GOOD + PATIENCE_GOOD - 1; i++)
        patience_learn(&p, 1, 0, TOOK);
    assert_int_equal(rest_after_failure(&p), 8);
    assert_int_equal(rest_after_failure(&p), 16); /* a failure forgets the successes before it */
}

static void test_successes_alone_leave_no_debt(void **state)
{
    struct patience p = {0};

    (void)state;
    for (int i = 0; i < 100 * PATIENCE_GOOD; i++)
        patience_learn(&p, 1, 0, TOOK);
    assert_false(patience_rests(&p, 0));
    assert_int_equal(rest_after_failure(&p), 1);
}

struct looks {
    int n, over_at; /* the look that finds it over; 0: none does */
};

static int is_over(const void *arg)
{
    struct looks *k = (struct looks *)(uintptr_t)arg;

    return ++k->n == k->over_at;
}

static void test_a_wait_that_is_over(void **state)
{
    struct patience p = {0};
    struct looks at_once = {0, 1}, later = {0, 100};

    (void)state;
    assert_int_equal(patience_wait(&p, is_over, &at_once), 1);
    assert_int_equal(at_once.n, 1);
    assert_int_equal(patience_wait(&p, is_over, &later), 1);
    assert_int_equal(later.n, 100);
    assert_false(patience_rests(&p, now_ns));
}

/* A wait that is not over in time yields for long once; while it rests, it only looks. */
static void test_a_wait_that_is_not_over(void **state)
{
    struct patience p = {0};
    struct looks never = {0, 0};
    int n_first;

    (void)state;
    assert_int_equal(patience_wait(&p, is_over, &never), 0);
    n_first = never.n;
    assert_true(n_first > 100);
    assert_true(patience_rests(&p, now_ns));
    assert_int_equal(patience_wait(&p, is_over, &never), 0);
    assert_true(never.n - n_first < 10);
    now_ns += (int64_t)n_first * LOOK_NS;
    assert_int_equal(patience_wait(&p, is_over, &never), 0);
    assert_true(never.n > 2 * n_first);
}

/* A thread that computes had the processor meanwhile: that counts as a failure. */
static void test_a_wait_that_was_late(void **state)
{
    struct patience p = {0};
    const int64_t long_ns = 600 * 1000;

    (void)state;
    now_ns = 0;
    late_ns = long_ns;
    assert_int_equal(patience_wait(&p, is_over, &(struct looks){0, 5}), 1);
    late_ns = 0;
    assert_true(patience_rests(&p, now_ns));
}

/* A process that was stopped for an hour in a try does not rest for an hour. */
static void test_a_wait_that_was_stopped(void **state)
{
    struct patience p = {0};
    const int64_t ms = 1000 * 1000, hour_ns = INT64_C(3600) * 1000 * ms;

    (void)state;
    for (int64_t rest_ms = 50; rest_ms <= INT64_C(50) << PATIENCE_DOUBLINGS; rest_ms *= 2) {
        patience_learn(&p, 0, 0, hour_ns);
        assert_true(patience_rests(&p, rest_ms * ms - 1));
        assert_false(patience_rests(&p, rest_ms * ms));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failures_double_the_rest),
        cmocka_unit_test(test_successes_halve_the_rest),
        cmocka_unit_test(test_successes_alone_leave_no_debt),
        cmocka_unit_test(test_a_wait_that_is_over),
        cmocka_unit_test(test_a_wait_that_is_not_over),
        cmocka_unit_test(test_a_wait_that_was_late),
        cmocka_unit_test(test_a_wait_that_was_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
