/* Tests of next: a finished run is told a command that trains on, whichever limit ended it, and
 * that raises no limit needlessly. */
#include "../test.h"

#include "driver/next.h"

static void test_limits(void **state)
{
    static const struct {
        int64_t epochs, max_steps, step, steps_per_epoch;
        struct next want;
    } cases[] = {
        {3, 0, 96, 32, {6, 0}},         /* its epochs are done */
        {1, 0, 128, 32, {8, 0}},        /* four epochs were done with another job */
        {1, 0, 130, 32, {8, 0}},        /* and a part of the fifth */
        {10, 40, 40, 32, {0, 80}},      /* its steps are done; ten epochs are enough */
        {2, 40, 40, 32, {3, 80}},       /* two would end it at 64 */
        {1, 8, 40, 32, {3, 80}},        /* more was done than either allows */
        {2, 100, 64, 32, {4, 128}},     /* its epochs are done, and 100 steps would end the next */
        {2, 500, 64, 32, {4, 0}},       /* 500 would not */
        {600000, 0, 1, 0, {1000000, 0}} /* the largest value */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job_train t = {.epochs = cases[i].epochs, .max_steps = cases[i].max_steps};
        struct next n = next_limits(&t, cases[i].step, cases[i].steps_per_epoch);

        if (n.epochs != cases[i].want.epochs || n.max_steps != cases[i].want.max_steps)
            fail_msg("case %d: epochs %d, steps %d", (int)i, (int)n.epochs, (int)n.max_steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
