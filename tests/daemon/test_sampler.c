/* Tests of sampler: what it measures of this process, and a counter of energy in a made-up folder.
 */
#include "../test.h"

#include <sched.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "base/clock.h"
#include "base/rapl.h"
#include "daemon/sampler.h"

enum { EACH_MS = 5, PATIENCE_S = 30 };

static struct sampler *open_sampler(const char *powercap)
{
    struct sampler *s;
    struct err err;

    if (sampler_new(&(struct sampler_options){.powercap = powercap, .each_ms = EACH_MS}, &s, &err) <
        0)
        fail_msg("%s", err.msg);
    return s;
}

/* The first measurement that has at least so many millijoules, and the processor's time. */
static struct usage wait_for(struct sampler *s, int64_t mj)
{
    const int64_t begun = clock_mono_ns();
    struct usage u;

    do {
        sched_yield();
        sampler_read(s, &u);
        if (clock_since_s(begun) > PATIENCE_S)
            fail_msg("%lld mJ, and %lld of 1000 of a processor", (long long)u.mj[ENERGY_PACKAGE],
                     (long long)u.cpu_permille);
    } while (u.mj[ENERGY_PACKAGE] < mj || u.cpu_permille == 0);
    return u;
}

static void energy_of_a_machine(void **state)
{
    char root[] = "/tmp/dptrain-sampler-XXXXXX", *next, *counter;
    struct sampler *s;

    (void)state;
    assert_non_null(mkdtemp(root));
    write_file(root, "intel-rapl:0/name", "package-0\n");
    write_file(root, "intel-rapl:0/energy_uj", "5000000\n");
    write_file(root, "intel-rapl:0/max_energy_range_uj", "262143328850\n");
    s = open_sampler(root);
    assert_null(sampler_no_energy(s));
    assert_int_equal(wait_for(s, 1).mj[ENERGY_PACKAGE], 1);
    write_file(root, "next", "7500000\n"); /* a reader sees the old number or the new one */
    next = xasprintf("%s/next", root);
    counter = xasprintf("%s/intel-rapl:0/energy_uj", root);
    assert_int_equal(rename(next, counter), 0);
    assert_int_equal(wait_for(s, 2).mj[ENERGY_PACKAGE], 2501);
    sampler_free(s);
    free(next);
    free(counter);
    remove_tree(root);
}

/* The test itself keeps a processor busy. */
static void memory_and_processor(void **state)
{
    struct sampler *s = open_sampler("/nowhere");
    struct usage u;

    (void)state;
    u = wait_for(s, 0);
    assert_in_range(u.resident_kib, 500, 64 << 20);
    assert_in_range(u.cpu_permille, 1, 1000 * 1024);
    assert_int_equal(u.mj[ENERGY_PACKAGE], 0);
    assert_int_equal(u.mj[ENERGY_GPU], 0);
    assert_int_equal(u.gpu_memory_kib, 0);
    assert_non_null(strstr(sampler_no_energy(s), "/nowhere has no counter"));
    sampler_free(s);
    sampler_free(NULL);
}

/* The folder from the environment. */
static void another_folder(void **state)
{
    struct sampler *s;

    (void)state;
    setenv(SAMPLER_VARIABLE, "/somewhere", 1);
    s = open_sampler(NULL);
    assert_non_null(strstr(sampler_no_energy(s), "/somewhere has no counter"));
    sampler_free(s);
    setenv(SAMPLER_VARIABLE, "", 1);
    s = open_sampler(NULL);
    assert_true(!sampler_no_energy(s) || strstr(sampler_no_energy(s), RAPL_ROOT));
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(energy_of_a_machine),
        cmocka_unit_test(memory_and_processor),
        cmocka_unit_test(another_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
