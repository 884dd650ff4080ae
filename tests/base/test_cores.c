/* Tests of cores: a cgroup is a folder of the files that Linux shows; the quota that is read from
 * it, and the threads of ranks under a quota. */
#include "../test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "base/cores.h"

enum { MAX_FILES = 6 };

struct file {
    const char *path, *text;
};

#define OWN "proc/self/cgroup"
#define TOP "sys/fs/cgroup/"

static const struct {
    struct file file[MAX_FILES];
    double quota;
    const char *from;
} cases[] = {
    {{{0}}, 0, ""},
    {{{OWN, "0::/\n"}}, 0, ""},
    {{{OWN, "0::/\n"}, {TOP "cpu.max", "max 100000\n"}}, 0, ""},
    {{{OWN, "0::/\n"}, {TOP "cpu.max", "250000 100000\n"}}, 2.5, "/sys/fs/cgroup/cpu.max"},
    /* A Kubernetes pod's is above its container's. */
    {{{OWN, "0::/pod/box\n"},
      {TOP "pod/box/cpu.max", "max 100000\n"},
      {TOP "pod/cpu.max", "50000 100000\n"}},
     0.5,
     "/sys/fs/cgroup/pod/cpu.max"},
    {{{OWN, "0::/a/b\n"},
      {TOP "a/b/cpu.max", "300000 100000\n"},
      {TOP "a/cpu.max", "400000 100000\n"}},
     3,
     "/sys/fs/cgroup/a/b/cpu.max"},
    {{{OWN, "0::/a/b\n"},
      {TOP "a/b/cpu.max", "300000 100000\n"},
      {TOP "a/cpu.max", "400000 200000\n"},
      {TOP "b/cpu.max", "100000 100000\n"}},
     2,
     "/sys/fs/cgroup/a/cpu.max"},
    /* The path is the host's, and what is mounted is the container's own cgroup. */
    {{{OWN, "0::/../../docker/1234\n"}, {TOP "cpu.max", "150000 100000\n"}},
     1.5,
     "/sys/fs/cgroup/cpu.max"},
    {{{OWN, "5:memory:/m\n4:cpu,cpuacct:/docker/12\n0::/x\n"},
      {TOP "cpu/cpu.cfs_quota_us", "400000\n"},
      {TOP "cpu/cpu.cfs_period_us", "100000\n"}},
     4,
     "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"},
    {{{OWN, "4:cpuacct,cpu:/a\n"},
      {TOP "cpu,cpuacct/a/cpu.cfs_quota_us", "20000\n"},
      {TOP "cpu,cpuacct/a/cpu.cfs_period_us", "10000\n"},
      {TOP "cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {TOP "cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     2,
     "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"},
    {{{OWN, "4:cpuacct:/a\n3:cpuset:/a\n"},
      {TOP "cpu/a/cpu.cfs_quota_us", "100000\n"},
      {TOP "cpu/a/cpu.cfs_period_us", "100000\n"}},
     0,
     ""},
    /* Files that say nothing. */
    {{{OWN, "0::/\n"}, {TOP "cpu.max", ""}}, 0, ""},
    {{{OWN, "0::/\n"}, {TOP "cpu.max", "100000\n"}}, 0, ""},
    {{{OWN, "0::/\n"}, {TOP "cpu.max", "100000 0\n"}}, 0, ""},
    {{{OWN, "0::/\n"}, {TOP "cpu.max", "-5 100000\n"}}, 0, ""},
    {{{OWN, "no colon\n::\n1:\n"}, {TOP "cpu.max", "100000 100000\n"}}, 1, NULL},
    {{{OWN, "4:cpu:/\n"}, {TOP "cpu/cpu.cfs_quota_us", "100000\n"}}, 0, ""},
};

static void test_quota(void **state)
{
    cpu_set_t set;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char folder[] = "/tmp/dptrain-cores-XXXXXX";
        struct cores c;

        assert_non_null(mkdtemp(folder));
        for (int k = 0; k < MAX_FILES && cases[i].file[k].path; k++)
            write_file(folder, cases[i].file[k].path, cases[i].file[k].text);
        cores_read(folder, &c);
        remove_tree(folder);
        assert_int_equal(c.n, CPU_COUNT(&set));
        if (c.quota < cases[i].quota || c.quota > cases[i].quota)
            fail_msg("case %zu: a quota of %g, want %g", i, c.quota, cases[i].quota);
        if (cases[i].from)
            assert_string_equal(c.from, cases[i].from);
    }
}

static void test_limit(void **state)
{
    static const struct {
        double quota;
        int n_threads, n_ranks, want;
    } rows[] = {
        {0, 16, 1, 16},  {0, 16, 4, 16}, {2.5, 16, 1, 3}, {2, 16, 1, 2},   {0.5, 16, 1, 1},
        {0.5, 16, 4, 1}, {4, 16, 2, 2},  {4, 16, 3, 1},   {4, 16, 5, 1},   {64, 16, 1, 16},
        {32, 16, 2, 16}, {20, 4, 2, 4},  {4, 0, 2, 0},    {1e12, 8, 1, 8}, {3, 8, 0, 3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct cores c = {.n = 16, .quota = rows[i].quota};
        const int got = cores_limit(&c, rows[i].n_threads, rows[i].n_ranks);

        if (got != rows[i].want)
            fail_msg("row %zu: %d threads, want %d", i, got, rows[i].want);
    }
}

static void test_describe(void **state)
{
    struct cores c = {.n = 4, .quota = 2.5, .from = "/f"};
    char text[CORES_TEXT];

    (void)state;
    cores_describe(&c, text);
    assert_string_equal(text, "the cgroup's quota is 2.5 CPUs (/f)");
    c.quota = 1;
    cores_describe(&c, text);
    assert_string_equal(text, "the cgroup's quota is 1 CPU (/f)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quota),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_describe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
