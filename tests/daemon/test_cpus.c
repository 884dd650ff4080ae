/* Tests of cpus: a machine is a folder of the files that Linux shows; what is read from it, and how
 * ranks share its CPUs. */
#include "../test.h"

#include <stdio.h>
#include <stdlib.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "base/alloc.h"
#include "daemon/cpus.h"

/* Two nodes of two cores with two hardware threads each, numbered as Linux does: 0-3 are the first
 * threads of the cores, 4-7 the second ones. */
static void make_machine(const char *folder)
{
    write_file(folder, "node/node0/cpulist", "0-1,4-5\n");
    write_file(folder, "node/node1/cpulist", "2-3,6-7\n");
    write_file(folder, "node/node1x/cpulist", "0-7\n"); /* no node's folder */
    for (int i = 0; i < 8; i++) {
        char name[64], list[16];

        snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(list, sizeof list, "%d,%d\n", i % 4, i % 4 + 4);
        write_file(folder, name, list);
    }
}

static cpu_set_t first(int n)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int i = 0; i < n; i++)
        CPU_SET((size_t)i, &set);
    return set;
}

struct share {
    int node, n, i;
    const char *cpus; /* "": there are too few */
};

static void assert_shares(const struct cpus *c, const struct share *s, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        cpu_set_t set;
        char text[64];
        int count = cpus_part(c, s[k].node, s[k].n, s[k].i, &set);

        cpus_text(&set, text, sizeof text);
        assert_string_equal(text, s[k].cpus);
        assert_int_equal(count, CPU_COUNT(&set));
    }
}

static void test_shares(void **state)
{
    static const struct share shares[] = {
        {-1, 1, 0, "0-7"},     {-1, 2, 0, "0-1,4-5"}, {-1, 2, 1, "2-3,6-7"}, {-1, 4, 0, "0,4"},
        {-1, 4, 1, "1,5"},     {-1, 4, 3, "3,7"},     {-1, 3, 0, "0,4"},     {-1, 3, 1, "1,5"},
        {-1, 3, 2, "2-3,6-7"}, {-1, 8, 0, "0"},       {-1, 8, 1, "4"},       {-1, 8, 7, "7"},
        {-1, 5, 0, "0"},       {-1, 9, 0, ""},        {0, 1, 0, "0-1,4-5"},  {1, 2, 1, "3,7"},
        {1, 4, 3, "7"},        {0, 5, 0, ""},         {2, 1, 0, ""}, /* there is no such node */
    };
    char folder[] = "/tmp/dptrain-cpus-XXXXXX";
    const cpu_set_t all = first(8);
    struct cpus c;

    (void)state;
    assert_non_null(mkdtemp(folder));
    make_machine(folder);
    cpus_read(folder, &all, &c);
    assert_int_equal(c.n, 8);
    assert_shares(&c, shares, ARRAY_LEN(shares));
    cpus_fini(&c);
    remove_tree(folder);
}

/* A container's cpuset leaves some CPUs out. */
static void test_cpuset(void **state)
{
    static const struct share shares[] = {{-1, 2, 0, "1,5"}, {-1, 2, 1, "6"}, {1, 1, 0, "6"}};
    char folder[] = "/tmp/dptrain-cpus-XXXXXX";
    cpu_set_t allowed;
    struct cpus c;

    (void)state;
    CPU_ZERO(&allowed);
    CPU_SET(1, &allowed);
    CPU_SET(5, &allowed);
    CPU_SET(6, &allowed);
    assert_non_null(mkdtemp(folder));
    make_machine(folder);
    cpus_read(folder, &allowed, &c);
    assert_int_equal(c.n, 3);
    assert_shares(&c, shares, ARRAY_LEN(shares));
    cpus_fini(&c);
    remove_tree(folder);
}

/* Every CPU belongs to one share, and shares of equal machines differ by one core at most. */
static void test_no_files(void **state)
{
    const cpu_set_t all = first(13);
    struct cpus c;

    (void)state;
    cpus_read("/no/such/folder", &all, &c);
    assert_int_equal(c.n, 13);
    for (int n = 1; n <= 13; n++) {
        cpu_set_t sum, set;

        CPU_ZERO(&sum);
        for (int i = 0; i < n; i++) {
            int count = cpus_part(&c, -1, n, i, &set);

            assert_true(count == 13 / n || count == 13 / n + 1);
            CPU_XOR(&sum, &sum, &set); /* a CPU given twice would vanish */
        }
        assert_true(CPU_EQUAL(&sum, &all));
    }
    cpus_fini(&c);
}

static void test_text(void **state)
{
    cpu_set_t set;
    char text[64], little[12];

    (void)state;
    CPU_ZERO(&set);
    cpus_text(&set, text, sizeof text);
    assert_string_equal(text, "");
    for (size_t i = 0; i < 40; i += 2)
        CPU_SET(i, &set);
    cpus_text(&set, little, sizeof little);
    assert_string_equal(little, "0,2,4,6...");
    CPU_ZERO(&set);
    CPU_SET(CPU_SETSIZE - 1, &set);
    cpus_text(&set, text, sizeof text);
    assert_string_equal(text, "1023");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_cpuset),
        cmocka_unit_test(test_no_files),
        cmocka_unit_test(test_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
