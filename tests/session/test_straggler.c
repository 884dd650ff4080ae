/* straggler: the measure, and when a rank becomes a straggler and ceases to be one.
 * Pure functions on made-up times. */
#include "../test.h"

#include "session/straggler.h"

#define WORK(steps, ms)                                                \
    {                                                                  \
        .n_steps = (steps), .busy_ns = (int64_t)(steps) * (ms)*1000000 \
    }

static void the_median_is_the_measure(void **state)
{
    struct work w[] = {WORK(100, 20), WORK(90, 46), WORK(110, 19), WORK(100, 21)};
    double median_ns = 0;
    (void)state;
    assert_int_equal(straggler_compare(w, 4, &median_ns), 1);
    assert_float_equal(median_ns, 20e6, 1); /* of 19 20 21 46 the lower one */
    assert_float_equal(w[1].factor, 2.3, 1e-9);
    assert_float_equal(w[0].factor, 1, 1e-9);
    assert_float_equal(w[2].factor, 0.95, 1e-9);
    assert_int_equal(straggler_compare(w, 3, &median_ns), 1);
    assert_float_equal(median_ns, 20e6, 1);
}

static void of_two_the_faster_is(void **state)
{
    struct work w[] = {WORK(10, 60), WORK(10, 20)};
    double median_ns;
    (void)state;
    assert_int_equal(straggler_compare(w, 2, &median_ns), 1);
    assert_float_equal(w[0].factor, 3, 1e-9);
    assert_float_equal(w[1].factor, 1, 1e-9);
}

static void too_few_steps_tell_nothing(void **state)
{
    struct work w[] = {WORK(STRAGGLER_LEAST_STEPS, 20), WORK(STRAGGLER_LEAST_STEPS - 1, 90)};
    double median_ns = -1;
    (void)state;
    assert_int_equal(straggler_compare(w, 2, &median_ns), 0);
    assert_int_equal((int)median_ns, -1);
    w[0].busy_ns = w[1].busy_ns = 0; /* a clock that stands still */
    w[1].n_steps++;
    assert_int_equal(straggler_compare(w, 2, &median_ns), 1);
    assert_float_equal(w[1].factor, 1, 1e-9);
}

static void it_takes_more_to_begin_than_to_go_on(void **state)
{
    static const struct {
        double factor;
        int is;
    } windows[] = {{1.0, 0}, {1.49, 0}, {1.5, 1}, {1.3, 1}, {1.26, 1}, {1.24, 0}, {1.4, 0}};
    int is = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        is = straggler_is(is, windows[i].factor, 1.5);
        assert_int_equal(is, windows[i].is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_measure),
        cmocka_unit_test(of_two_the_faster_is),
        cmocka_unit_test(too_few_steps_tell_nothing),
        cmocka_unit_test(it_takes_more_to_begin_than_to_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
