/* timing: why a rank waited for its data, and so which advice helps. */
#include "../test.h"

#include <stdlib.h>

#include "base/clock.h"

#include "step/timing.h"

/* Of 8 steps so many waited; the readers' times are in ms. */
static const struct {
    const char *name;
    int64_t n_late, wall, cpu, queued;
    int n_readers, n_processors;
    enum wait_cause want;
    int64_t waited_ns; /* in the epoch; 0: a second */
} rows[] = {
    {"the first batch alone", 1, 100, 100, 0, 1, 8, WAIT_FEW},
    {"fewer than half of the steps", 3, 100, 100, 0, 1, 8, WAIT_FEW},
    {"half of the steps", 4, 100, 100, 0, 1, 8, WAIT_READING},
    {"decoding, and processors are free", 8, 100, 97, 2, 1, 8, WAIT_READING},
    {"several readers, and room for more", 8, 400, 390, 5, 4, 8, WAIT_READING},
    {"a slow disk", 8, 100, 10, 1, 1, 8, WAIT_DISK},
    {"a slow disk, and no processor is free", 8, 100, 5, 30, 2, 2, WAIT_DISK},
    {"some of it the disk", 8, 100, 60, 1, 1, 8, WAIT_READING},
    {"all processors are busy", 8, 100, 40, 58, 1, 8, WAIT_CORES},
    {"as many readers as processors", 8, 200, 190, 5, 2, 2, WAIT_CORES},
    {"nothing was measured", 8, 0, 0, 0, 1, 8, WAIT_UNKNOWN},
    {"some ms", 8, 100, 100, 0, 1, 8, WAIT_FEW, .waited_ns = 9999999},
};

static void test_cause(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct timing m = {.n = 8,
                                 .n_late = rows[i].n_late,
                                 .n_data_ns = rows[i].waited_ns ? rows[i].waited_ns : 1000000000};
        const struct effort e = {rows[i].wall, rows[i].cpu, rows[i].queued};
        const enum wait_cause seen =
            timing_wait_cause(&m, &e, rows[i].n_readers, rows[i].n_processors);

        if (seen != rows[i].want)
            fail_msg("%s: %d, want %d", rows[i].name, (int)seen, (int)rows[i].want);
    }
}

/* A step counts as late if a tenth of it or more was a wait for data. */
static void test_late_steps(void **state)
{
    struct timing m;
    struct err err;
    int64_t data_ns = 0;

    (void)state;
    assert_int_equal(timing_start(&m, 4, &err), 0);
    (void)timing_step(&m, 0, 0, data_ns, 1); /* no wait */
    assert_int_equal(m.n_late, 0);
    data_ns += INT64_C(1000000000000); /* longer than the step */
    (void)timing_step(&m, 0, 0, data_ns, 1);
    (void)timing_step(&m, 0, 0, data_ns, 1);
    assert_int_equal(m.n_late, 1);
    free(m.step_ms);
}

/* Of 100 ns in collectives 25 were waited for; what the coll did before the epoch does not count.
 */
static void test_hidden_share(void **state)
{
    struct timing m;
    struct err err;

    (void)state;
    assert_int_equal(timing_start(&m, 4, &err), 0);
    assert_true(timing_hidden_share(&m) == NOT_MEASURED);
    m.wait_ns = 1000;
    m.sum_ns = 7000;
    (void)timing_step(&m, 1020, 7060, 0, 1);
    (void)timing_step(&m, 1025, 7100, 0, 1);
    assert_true(timing_hidden_share(&m) == 0.75);
    (void)timing_step(&m, 2000, 7100, 0, 1); /* waits that are longer than the collectives */
    assert_true(timing_hidden_share(&m) == 0);
    free(m.step_ms);
    assert_int_equal(timing_start(&m, 4, &err), 0);
    m.sum_ns = -1; /* a device */
    (void)timing_step(&m, 5, -1, 0, 1);
    assert_true(timing_hidden_share(&m) == NOT_MEASURED);
    free(m.step_ms);
}

/* Work that computes is no wait for the disk. */
static void test_effort(void **state)
{
    struct effort_sums sums = {0};
    struct effort since = effort_begin(), now;

    (void)state;
    do {
        for (int i = 0; i < 100000; i++)
            (void)clock_mono_ns();
        effort_end(&sums, &since);
        now = effort_read(&sums);
    } while (now.cpu_ns < 5000000);
    assert_true(now.wall_ns >= now.cpu_ns && now.queued_ns >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cause),
        cmocka_unit_test(test_late_steps),
        cmocka_unit_test(test_hidden_share),
        cmocka_unit_test(test_effort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
