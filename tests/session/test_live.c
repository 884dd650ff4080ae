/* live: the starting points of the fuzzer, which are a job that works and a job that recovers. Both
 * must reach their end when nothing is disturbed. */
#include "../test.h"

#include "base/alloc.h"
#include "live.h"

static struct live_result run(const char *text, size_t len)
{
    struct live_result r;

    live_run((const uint8_t *)text, len, &r);
    return r;
}

#define RUN(text) run(text, sizeof(text) - 1)

static void whole_jobs(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        char text[] = "?\0r\x1fr\x1fr\x1fr\x1f";
        struct live_result r;

        text[0] = (char)(0x30 + n);
        r = run(text, sizeof text - 1);
        assert_int_equal(r.status, 0);
        assert_int_equal(r.n_epochs, 3);
        assert_int_equal(r.n_recovered, 0);
    }
}

/* Of four ranks one ends in the middle of the job.  The others go on. */
static void recovered_jobs(void **state)
{
    struct live_result r = RUN("\x33\x01r\x09\x0d\x01r\x1fr\x1fr\x1f");

    (void)state;
    assert_int_equal(r.n_recovered, 1);
    assert_int_equal(r.status, 0);
}

static void changed_messages(void **state)
{
    struct live_result r = RUN("\x32\0r\x09\x06\x10\x05\x01\x06\x01\x0e\x01\x05\x12r\x1f");

    (void)state;
    assert_true(r.n_changed >= 2);
    assert_true(r.status > 0);
}

/* The n-th allocation for a message fails, for each n of a whole job: one connection is lost and
 * the others go on, or no rank can and all end. */
static void memory_runs_out(void **state)
{
    int n = 0, n_lost = 0, n_recovered = 0, has_failed = 1;

    (void)state;
    while (has_failed) {
        struct live_result r;

        alloc_fail_at((uint64_t)++n);
        r = RUN("\x33\x01r\x1fr\x1fr\x1fr\x1f");
        has_failed = alloc_fail_at(0) == 0;
        assert_true(r.n_refused <= 1);
        if (!r.n_refused)
            assert_true(r.status == 0 && r.n_recovered == 0);
        n_lost += r.n_refused;
        n_recovered += r.n_recovered;
    }
    assert_true(n_recovered > 10);
    assert_true(n_lost > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_jobs),
        cmocka_unit_test(recovered_jobs),
        cmocka_unit_test(changed_messages),
        cmocka_unit_test(memory_runs_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
