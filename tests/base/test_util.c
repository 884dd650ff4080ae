/* Tests of util and clock: rounding is right at the edges of its range, and the clock never runs
 * backward. */
#include "../test.h"

#include "base/clock.h"

static void rounding(void **state)
{
    static const struct {
        int64_t a, b, quotient, rounded;
    } cases[] = {
        {0, 16, 0, 0},
        {1, 16, 1, 16},
        {16, 16, 1, 16},
        {17, 16, 2, 32},
        {1000000000000, 7, 142857142858, 1000000000006},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(ceil_div_i64(cases[i].a, cases[i].b), cases[i].quotient);
        assert_int_equal(round_up_i64(cases[i].a, cases[i].b), cases[i].rounded);
    }
    assert_int_equal(min_i64(-3, 2), -3);
    assert_int_equal(max_i64(-3, 2), 2);
}

static void clocks(void **state)
{
    int64_t last = clock_mono_ns();
    double since;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_ns();

        assert_true(now >= last);
        last = now;
    }
    since = clock_since_s(last);
    assert_true(since >= 0 && since < 3600);
    assert_true(clock_wall_s() > 1.7e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding),
        cmocka_unit_test(clocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
