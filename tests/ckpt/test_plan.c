/* plan: the newest planned checkpoint once some steps are done. */

#include "../test.h"

#include "ckpt/plan.h"

static void test_newest(void **state)
{
    static const struct {
        struct ckpt_plan plan;
        int64_t done, newest;
    } row[] = {
        {{25, 0, 1000}, 24, 0},
        {{25, 0, 1000}, 25, 25},
        {{25, 0, 1000}, 60, 50},
        {{0, 1, 40}, 39, 0},
        {{0, 1, 40}, 60, 40},
        {{0, 2, 40}, 60, 0},
        {{0, 2, 40}, 80, 80},
        {{0, 0, 40}, 60, 0},
        {{25, 1, 40}, 39, 25}, /* by both */
        {{25, 1, 40}, 45, 40},
        {{25, 1, 40}, 60, 50},
        {{25, 0, 50}, 49, 25}, /* at the end of an epoch, which is not saved */
        {{25, 0, 50}, 50, 25},
        {{25, 0, 50}, 51, 51},
        {{25, 1, 50}, 50, 50}, /* ... which is */
        {{25, 2, 50}, 50, 25},
        {{25, 2, 50}, 100, 100},
        {{50, 0, 50}, 50, 0},
        {{1, 0, 50}, 50, 49},
        {{1, 0, 50}, 51, 51},
        {{25, 1, 0}, 60, 0}, /* no plan */
        {{0, INT64_MAX / 2, 1000}, 2000, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (ckpt_plan_newest(&row[i].plan, row[i].done) != row[i].newest)
            fail_msg("row %zu: %lld, want %lld", i,
                     (long long)ckpt_plan_newest(&row[i].plan, row[i].done),
                     (long long)row[i].newest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_newest)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
