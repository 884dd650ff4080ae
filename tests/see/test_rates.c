/* Tests of a range test's suggestion, its table, its file and its picture. */
#include "../test.h"

#include <math.h>

#include "see/rates.h"

enum { STEPS = 200 };

static double rate_at(int step) { return 1e-6 * pow(1e7, (double)step / (STEPS - 1)); }

/* A loss that is level, falls most at the rate 1e-2, is lowest near 1e-1, and diverges then. */
static double loss_at(double rate)
{
    const double x = log10(rate);

    return 2.3 - 2 / (1 + exp(-6 * (x + 2))) + (rate > 0.3 ? 100 * (rate - 0.3) : 0);
}

/* step: the first one that is not added. */
static void fill(struct rates *r, int first, int end)
{
    for (int i = first; i < end; i++)
        rates_add(r, i + 1, rate_at(i), loss_at(rate_at(i)));
}

static void test_suggestion(void **state)
{
    struct rates r = {0};

    (void)state;
    fill(&r, 0, STEPS);
    r.point[30].loss = 0; /* one odd step decides nothing */
    rates_find(&r);
    assert_true(r.steepest > 0.8e-2 && r.steepest < 1.25e-2);
    assert_true(r.lowest > 0.05 && r.lowest < 0.3);
    rates_fini(&r);
}

/* After a lost rank, steps are told again. */
static void test_again(void **state)
{
    struct rates r = {0};

    (void)state;
    fill(&r, 0, 50);
    fill(&r, 40, STEPS);
    assert_int_equal(r.n, STEPS);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(r.point[i].step, i + 1);
    rates_fini(&r);
}

/* No loss falls, or none is finite, or there is none: nothing is suggested, and all is shown. */
static void test_no_suggestion(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct rates r = {0};
        struct buf out = {0};

        for (int i = 0; kind < 3 && i < (kind == 2 ? 1 : 50); i++)
            rates_add(&r, i + 1, rate_at(i), kind == 1 ? NAN : 1 + 0.1 * i);
        rates_find(&r);
        assert_true(r.steepest == 0);
        rates_put_table(&r, &out);
        assert_non_null(strstr(buf_cstr(&out), "no suggestion"));
        rates_put_json(&r, &out);
        rates_put_csv(&r, &out);
        rates_put_svg(&r, "a<b", &out);
        assert_non_null(strstr(buf_cstr(&out), "\"suggestion\": null"));
        assert_null(strstr(buf_cstr(&out), "-nan"));
        buf_fini(&out);
        rates_fini(&r);
    }
}

static void test_shown(void **state)
{
    struct rates r = {0};
    struct buf out = {0};

    (void)state;
    fill(&r, 0, STEPS);
    rates_add(&r, STEPS + 1, 11, INFINITY);
    rates_find(&r);
    rates_put_csv(&r, &out);
    assert_int_equal(strncmp(buf_cstr(&out), "step,learning_rate,loss,smoothed\n1,1e-06,2.", 43),
                     0);
    assert_non_null(strstr(buf_cstr(&out), "\n201,11,nan,nan\n"));
    buf_fini(&out);
    rates_put_svg(&r, "a<b", &out);
    assert_non_null(strstr(buf_cstr(&out), ">a&lt;b: loss by learning rate<"));
    assert_non_null(strstr(buf_cstr(&out), "where the loss falls most</text>"));
    buf_fini(&out);
    rates_put_table(&r, &out);
    assert_non_null(strstr(buf_cstr(&out), "suggestion: optimizer.lr=0.01"));
    buf_fini(&out);
    rates_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggestion),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_no_suggestion),
        cmocka_unit_test(test_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
