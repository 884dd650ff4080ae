/* Tests of rapl: the packages that count, in made-up folders, and how their counters go on: round,
 * away, with text in them. */
#include "../test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "../write_file.h"
#include "base/rapl.h"

static char root[] = "/tmp/dptrain-rapl-XXXXXX";

static int setup(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree(root);
}

static void put_zone(const char *zone, const char *name, const char *energy, const char *range)
{
    char *path = xasprintf("%s/name", zone);

    write_file(root, path, name);
    free(path);
    path = xasprintf("%s/energy_uj", zone);
    if (energy)
        write_file(root, path, energy);
    free(path);
    path = xasprintf("%s/max_energy_range_uj", zone);
    if (range)
        write_file(root, path, range);
    free(path);
}

static void set_energy(const char *zone, const char *energy)
{
    put_zone(zone, "package-0\n", energy, NULL);
}

static void open_of(struct rapl *r, int n)
{
    rapl_open(r, root);
    assert_string_equal(r->why, "");
    assert_int_equal(r->n, n);
}

/* Parts of a package, the board, and the same counter once more would count energy twice. */
static void packages_alone_count(void **state)
{
    struct rapl r;

    (void)state;
    put_zone("intel-rapl:0", "package-0\n", "1000000\n", "262143328850\n");
    put_zone("intel-rapl:0:0", "core\n", "500\n", "262143328850\n");
    put_zone("intel-rapl:0:1", "package-0\n", "500\n", "262143328850\n");
    put_zone("intel-rapl:1", "package-1-die-0\n", "7\n", "262143328850\n");
    put_zone("intel-rapl:2", "psys\n", "9\n", "262143328850\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "1\n", "262143328850\n");
    put_zone("dtpm", "package-0\n", "1\n", "262143328850\n");
    open_of(&r, 2);
    assert_int_equal(rapl_read_mj(&r), 1); /* known, and nothing yet */
    set_energy("intel-rapl:0", "3500000\n");
    set_energy("intel-rapl:0:0", "999999999\n");
    put_zone("intel-rapl:1", "package-1-die-0\n", "250007\n", NULL);
    set_energy("intel-rapl-mmio:0", "888888888\n");
    assert_int_equal(rapl_read_mj(&r), 2751);
    assert_int_equal(rapl_read_mj(&r), 2751);
}

static void a_counter_that_goes_round(void **state)
{
    struct rapl r;

    (void)state;
    put_zone("intel-rapl:0", "package-0\n", "900000\n", "1000000\n");
    open_of(&r, 1);
    set_energy("intel-rapl:0", "300000\n");
    assert_int_equal(rapl_read_mj(&r), 401);
    set_energy("intel-rapl:0", "100000\n");
    assert_int_equal(rapl_read_mj(&r), 1201);
}

/* Without a range, what is sure counts: the part behind 0. */
static void a_counter_without_range(void **state)
{
    struct rapl r;

    (void)state;
    put_zone("intel-rapl:0", "package-0\n", "900000\n", "much\n");
    open_of(&r, 1);
    set_energy("intel-rapl:0", "300000\n");
    assert_int_equal(rapl_read_mj(&r), 301);
}

/* A counter that cannot be read is not known; its energy counts once it can be read again. */
static void a_counter_that_is_away(void **state)
{
    static const char *const texts[] = {
        NULL, "", "\n", "12 34\n", "-5\n", "1e6\n", "99999999999999999999\n", "words"};
    struct rapl r;

    (void)state;
    put_zone("intel-rapl:0", "package-0\n", "1000000\n", "262143328850\n");
    put_zone("intel-rapl:1", "package-1\n", "1000000\n", "262143328850\n");
    open_of(&r, 2);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char *path = xasprintf("%s/intel-rapl:1/energy_uj", root);

        unlink(path);
        free(path);
        set_energy("intel-rapl:0", "2000000\n");
        if (texts[i])
            put_zone("intel-rapl:1", "package-1\n", texts[i], NULL);
        assert_int_equal(rapl_read_mj(&r), 0);
    }
    put_zone("intel-rapl:1", "package-1\n", "4000000\n", NULL);
    assert_int_equal(rapl_read_mj(&r), 4001);
}

static void assert_none(const char *want)
{
    struct rapl r;

    rapl_open(&r, root);
    assert_int_equal(r.n, 0);
    assert_int_equal(rapl_read_mj(&r), 0);
    if (!strstr(r.why, want))
        fail_msg("\"%s\" lacks \"%s\"", r.why, want);
    assert_null(strchr(r.why, '\n'));
}

static void no_counter(void **state)
{
    struct rapl r;

    (void)state;
    assert_none("has no counter of a processor's package");
    put_zone("intel-rapl:0", "psys\n", "5\n", "10\n");
    put_zone("intel-rapl:x", "package-0\n", "5\n", "10\n");
    put_zone("intel-rapl:", "package-0\n", "5\n", "10\n");
    assert_none("has no counter of a processor's package");
    put_zone("intel-rapl:1", "package-0\n", "5\n", "10\n");
    put_zone("intel-rapl:2", "package-1\n", "words\n", "10\n"); /* one alone would be a part */
    assert_none("intel-rapl:2/energy_uj: it has no number of microjoules");
    put_zone("intel-rapl:3", "package-2\n", NULL, "10\n");
    put_zone("intel-rapl:2", "package-1\n", "5\n", "10\n");
    assert_none("intel-rapl:3/energy_uj: No such file or directory");
    rapl_open(&r, "/nowhere/at/all");
    assert_string_equal(r.why, "/nowhere/at/all has no counter of a processor's package (No such "
                               "file or directory)");
}

/* As in a container, whose engine hides what the link names. */
static void a_link_that_leads_nowhere(void **state)
{
    char *path = xasprintf("%s/intel-rapl:0", root);

    (void)state;
    assert_int_equal(symlink("../../devices/virtual/powercap/intel-rapl/intel-rapl:0", path), 0);
    free(path);
    assert_none("intel-rapl:0/name: No such file or directory (in a container, ");
}

/* As it is on most machines since 2020. */
static void a_counter_for_root_alone(void **state)
{
    char *path = xasprintf("%s/intel-rapl:0/energy_uj", root);

    (void)state;
    put_zone("intel-rapl:0", "package-0\n", "5\n", "10\n");
    assert_int_equal(chmod(path, 0), 0);
    if (access(path, R_OK) == 0) {
        free(path);
        print_message("root reads every file: skipped\n");
        skip();
    }
    assert_none("energy_uj: Permission denied (the kernel lets root alone read it; ");
    free(path);
}

static void more_packages_than_there_are_places(void **state)
{
    (void)state;
    for (int i = 0; i <= RAPL_PACKAGES; i++) {
        char *zone = xasprintf("intel-rapl:%d", i);

        put_zone(zone, "package-0\n", "5\n", "10\n");
        free(zone);
    }
    assert_none("more than 32 packages");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(packages_alone_count),
        CASE(a_counter_that_goes_round),
        CASE(a_counter_without_range),
        CASE(a_counter_that_is_away),
        CASE(no_counter),
        CASE(a_link_that_leads_nowhere),
        CASE(a_counter_for_root_alone),
        CASE(more_packages_than_there_are_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
