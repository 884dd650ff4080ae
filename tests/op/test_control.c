/* test_control - the control vector: the numbers that ranks put in come back exactly as sums, for
 * any number of ranks and in any order of addition. */
#include "../test.h"

#include <math.h>

#include "base/rng.h"
#include "ir/graph.h"
#include "op/control.h"

static void one_rank(void **state)
{
    static const struct {
        double metrics[METRIC_COUNT];
        unsigned requests;
        struct control want;
    } cases[] = {
        {{0}, 0, {0}},
        {{2.5, 3, 8}, 0, {.loss = 5 << 23, .n_correct = 3, .n_targets = 8}},
        {{0x1p-24, 1, 1}, 1, {.loss = 1, .n_correct = 1, .n_targets = 1, .n_stop = 1}},
        {{1e6 + 0x1p-20, 16777217, 4294967295.0, 4294967295.0},
         2,
         {.loss = (1000000LL << 24) + 16,
          .n_correct = 16777217,
          .n_targets = 4294967295,
          .weight = 4294967295 << 30,
          .n_checkpoint = 1}},
        {{2, 1, 8, 0.75 + 0x1p-30}, 0, {2 << 24, 1, 8, (3 << 28) + 1, 0, 0, 0}},
        {{NAN, 1, 8}, 3, {0, 1, 8, 0, 1, 1, 1}},
        {{INFINITY, 1, 8}, 0, {0, 1, 8, 0, 1, 0, 0}},
        {{-1, 1, 8}, 0, {-(1 << 24), 1, 8, 0, 0, 0, 0}},
        {{-1e300, 1, 8}, 0, {-INT64_MAX, 1, 8, 0, 0, 0, 0}},
        {{-0x1p39 + 0x1p-13, 1, 8}, 0, {-INT64_MAX + 2047, 1, 8, 0, 0, 0, 0}},
        {{2, 1, 8, [METRIC_NONFINITE] = 5}, 0, {2 << 24, 1, 8, 0, 1, 0, 0}},
        {{1e300, 1, 8}, 0, {INT64_MAX, 1, 8, 0, 0, 0, 0}},
        {{0x1p39, 1, 8}, 0, {INT64_MAX, 1, 8, 0, 0, 0, 0}},
        {{0x1p39 - 0x1p-13, 1, 8}, 0, {INT64_MAX - 2047, 1, 8, 0, 0, 0, 0}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        float v[CONTROL_LEN];
        struct control seen;

        memset(v, 0xff, sizeof v);
        control_pack(cases[i].metrics, cases[i].requests, 0, v);
        control_read(v, &seen);
        assert_int_equal(seen.loss, cases[i].want.loss);
        assert_int_equal(seen.n_correct, cases[i].want.n_correct);
        assert_int_equal(seen.n_targets, cases[i].want.n_targets);
        assert_int_equal(seen.weight, cases[i].want.weight);
        assert_true(control_weight(v) == cases[i].metrics[METRIC_WEIGHT]);
        assert_int_equal(seen.n_nonfinite, cases[i].want.n_nonfinite);
        assert_int_equal(seen.n_stop, cases[i].want.n_stop);
        assert_int_equal(seen.n_checkpoint, cases[i].want.n_checkpoint);
        assert_true(v[CONTROL_VOID] == 0 && seen.n_ready == 0);
        for (int e = CONTROL_WEIGHT + CONTROL_WEIGHT_DIGITS; e < CONTROL_LEN; e++)
            assert_true(v[e] == 0);
    }
    assert_true(control_loss(5 << 23) == 2.5);
    assert_true(control_loss(-(5 << 23)) == -2.5);
    assert_true(isinf(control_loss(INT64_MAX)) && control_loss(-INT64_MAX) == -HUGE_VAL);
}

enum { MAX_RANKS = 1000 };

static void reduce(float (*v)[CONTROL_LEN], int n, int backwards, float *sum)
{
    memset(sum, 0, CONTROL_LEN * sizeof *sum);
    for (int k = 0; k < n; k++)
        for (int e = 0; e < CONTROL_LEN; e++)
            sum[e] += v[backwards ? n - 1 - k : k][e];
}

static void sums_of_ranks(void **state)
{
    static const int sizes[] = {1, 2, 3, 17, 256, MAX_RANKS};
    static float v[MAX_RANKS][CONTROL_LEN];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct control want = {0}, seen;
        float sum[CONTROL_LEN], other[CONTROL_LEN];
        struct rng_stream rng;

        rng_stream_init(&rng, 1, RNG_TEST, (uint64_t)sizes[i]);
        for (int k = 0; k < sizes[i]; k++) {
            double samples = (double)rng_next_below(&rng, 1 << 20);
            double metrics[METRIC_COUNT] = {rng_next_unit(&rng) * 1e5 - 4e4,
                                            floor(samples * rng_next_unit(&rng)), samples,
                                            (double)rng_next_below(&rng, 1 << 30) * 0x1p-24,
                                            [METRIC_NONFINITE] = rng_next_below(&rng, 5) == 0};
            unsigned requests = (unsigned)rng_next_below(&rng, 16);

            want.loss += (int64_t)(metrics[METRIC_LOSS_SUM] * 0x1p24); /* towards 0 */
            want.n_correct += (int64_t)metrics[METRIC_CORRECT];
            want.n_targets += (int64_t)samples;
            want.weight += (int64_t)(metrics[METRIC_WEIGHT] * WEIGHT_UNITS);
            want.n_nonfinite += metrics[METRIC_NONFINITE] > 0;
            want.n_stop += requests & 1;
            want.n_checkpoint += requests >> 1 & 1;
            want.n_regroup += requests >> 2 & 1;
            want.n_ready += requests >> 3 & 1;
            control_pack(metrics, requests, 0, v[k]);
        }
        reduce(v, sizes[i], 0, sum);
        reduce(v, sizes[i], 1, other);
        assert_memory_equal(sum, other, sizeof sum);
        control_read(sum, &seen);
        assert_int_equal(seen.loss, want.loss);
        assert_int_equal(seen.n_correct, want.n_correct);
        assert_int_equal(seen.n_targets, want.n_targets);
        assert_int_equal(seen.weight, want.weight);
        assert_true(control_weight(sum) == (double)want.weight / WEIGHT_UNITS);
        assert_int_equal(seen.n_nonfinite, want.n_nonfinite);
        assert_int_equal(seen.n_stop, want.n_stop);
        assert_int_equal(seen.n_checkpoint, want.n_checkpoint);
        assert_int_equal(seen.n_regroup, want.n_regroup);
        assert_int_equal(seen.n_ready, want.n_ready);
    }
}

/* A sum beyond int64 is cut and does not wrap around; so is a sum with one rank that is cut. */
static void too_much_is_cut(void **state)
{
    double metrics[METRIC_COUNT] = {1e300};
    float v[CONTROL_LEN], sum[CONTROL_LEN] = {0};
    struct control seen;

    (void)state;
    for (int k = 0; k < 2; k++) {
        const double mine[METRIC_COUNT] = {k == 0 ? 1e12 : 3, 0, 8, 8};

        control_pack(mine, 0, 0, v);
        for (int e = 0; e < CONTROL_LEN; e++)
            sum[e] += v[e];
    }
    control_read(sum, &seen);
    assert_true(seen.loss == INT64_MAX);
    assert_int_equal(seen.n_targets, 16);
    memset(sum, 0, sizeof sum);
    metrics[METRIC_LOSS_SUM] = 0x1p38;
    control_pack(metrics, 0, 0, v);
    for (int k = 0; k < CONTROL_MAX_RANKS; k++)
        for (int e = 0; e < CONTROL_LEN; e++)
            sum[e] += v[e];
    control_read(sum, &seen);
    assert_true(seen.loss == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(sums_of_ranks),
        cmocka_unit_test(too_much_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
