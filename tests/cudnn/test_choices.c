/* Tests of the engine and algorithm that a kernel gets over the fakes: the first of the heuristics,
 * or with autotune the fastest.  The next start takes the choice that was kept on disk, and does
 * not ask the library. */
#include "../test.h"

#include <unistd.h>

#include "../cudasim/sim.h"
#include "../remove_tree.h"
#include "fakes.h"
#include "layers.h"

enum {
    N_CHOICES = 2,
    MIB = 1 << 20
}; /* those of layers.h: a plan with its tail, a product with its bias */

static const struct plugin_choices plain = {.max_workspace = 64 * MIB},
                                   kept = {.max_workspace = 64 * MIB, .keep_plans = 1},
                                   tuned = {.max_workspace = 64 * MIB, .autotune = 1},
                                   tuned_and_kept = {
                                       .max_workspace = 64 * MIB, .keep_plans = 1, .autotune = 1};

static char root[] = "/tmp/dptrain-choices-XXXXXX";
static char folder[64];

static int shell(const char *format)
{
    char command[256];

    snprintf(command, sizeof command, format, folder);
    return system(command);
}

static int fresh(void **state)
{
    (void)state;
    fakes_refuse_tails(0);
    return remove_tree(folder);
}

/* One start of a program with one forward pass; afterwards the fakes hold its counts of queries and
 * of each algorithm's runs. */
static void start(const struct plugin_choices *c, float y[LAYERS_Y])
{
    struct backend *b = layers_open(c);
    struct err err;

    fakes_forget_runs();
    if (layers_use(b, y, &err) < 0)
        fail_msg("%s", err.msg);
    layers_close(b);
}

/* Both kernels ran once by algorithm i, and nothing else ran. */
static void expect_only(int i)
{
    for (int k = 0; k < FAKE_ENGINES; k++)
        assert_int_equal(fakes_runs(k), k == i ? N_CHOICES : 0);
}

static void first_is_taken(void **state)
{
    (void)state;
    start(&plain, NULL);
    assert_int_equal(fakes_queries(), N_CHOICES);
    expect_only(FAKE_FIRST);
    assert_int_equal(shell("! test -e '%s'"), 0); /* nothing is kept */
}

/* Where the heuristics' first mode names no engine, their fallback mode is asked. */
static void fallback_is_asked(void **state)
{
    (void)state;
    fakes_only_fall_back(1);
    start(&plain, NULL);
    fakes_only_fall_back(0);
    assert_int_equal(fakes_queries(), N_CHOICES + 1);
    expect_only(FAKE_FIRST);
}

/* Algorithms that do not tell how they round are taken all the same: the compute type decides. */
static void silence_is_no_refusal(void **state)
{
    (void)state;
    fakes_keep_silent(1);
    start(&kept, NULL);
    start(&kept, NULL);
    fakes_keep_silent(0);
    assert_int_equal(fakes_queries(), 0); /* such an algorithm is kept, too */
    start(&plain, NULL);
    expect_only(FAKE_FIRST);
}

static void next_start_asks_nothing(void **state)
{
    float y[3][LAYERS_Y];

    (void)state;
    start(&plain, y[0]);
    start(&kept, y[1]);
    assert_int_equal(fakes_queries(), N_CHOICES);
    start(&kept, y[2]);
    assert_int_equal(fakes_queries(), 0);
    expect_only(FAKE_FIRST);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(y[0], y[2], sizeof y[0]);
}

/* Timing runs every candidate; afterwards the fastest one alone runs.  A kept choice is not timed
 * again, and a job that did not ask for autotune does not take it. */
static void fastest_is_taken(void **state)
{
    int first, quick;

    (void)state;
    start(&tuned_and_kept, NULL);
    first = fakes_runs(FAKE_FIRST), quick = fakes_runs(FAKE_QUICK);
    assert_true(first > 0 && quick == first + N_CHOICES);
    start(&tuned_and_kept, NULL);
    assert_int_equal(fakes_queries(), 0);
    expect_only(FAKE_QUICK);
    start(&kept, NULL);
    assert_int_equal(fakes_queries(), N_CHOICES);
    expect_only(FAKE_FIRST);
}

/* If no candidate could be timed, the first one is taken, but it is not kept as the fastest. */
static void untimed_is_not_kept(void **state)
{
    (void)state;
    sim_stop_clock(1);
    start(&tuned_and_kept, NULL);
    sim_stop_clock(0);
    assert_true(fakes_runs(FAKE_FIRST) > fakes_runs(FAKE_QUICK));
    start(&tuned_and_kept, NULL);
    assert_int_equal(fakes_queries(), N_CHOICES);
    assert_true(fakes_runs(FAKE_QUICK) > fakes_runs(FAKE_FIRST));
    start(&tuned_and_kept, NULL);
    assert_int_equal(fakes_queries(), 0);
    expect_only(FAKE_QUICK);
}

static void other_rules_choose_anew(void **state)
{
    struct plugin_choices other = kept;

    (void)state;
    start(&kept, NULL);
    other.max_workspace = 16 * MIB;
    start(&other, NULL);
    assert_int_equal(fakes_queries(), N_CHOICES);
    start(&other, NULL);
    assert_int_equal(fakes_queries(), 0);
}

/* The files of the cache are exchanged, overwritten or emptied: both choices are made anew, and the
 * next start finds them kept. */
static void damage_is_mended(void **state)
{
    static const char *const harm[] = {
        "cd '%s' && set -- * && mv \"$1\" x && mv \"$2\" \"$1\" && mv x \"$2\"",
        "cd '%s' && for f in *; do echo nonsense >\"$f\"; done",
        "cd '%s' && for f in *; do : >\"$f\"; done",
    };

    (void)state;
    start(&kept, NULL);
    for (size_t i = 0; i < ARRAY_LEN(harm); i++) {
        assert_int_equal(shell(harm[i]), 0);
        start(&kept, NULL);
        assert_int_equal(fakes_queries(), N_CHOICES);
        start(&kept, NULL);
        assert_int_equal(fakes_queries(), 0);
        expect_only(FAKE_FIRST);
    }
}

/* An undamaged entry of the right key that the library, or a rule, refuses. */
static void refused_entries_count_as_none(void **state)
{
    (void)state;
    start(&kept, NULL);
    fakes_disown(FAKE_FIRST);
    start(&kept, NULL);
    assert_int_equal(fakes_queries(), N_CHOICES);
    expect_only(FAKE_QUICK); /* the first that is still allowed */
    fakes_disown(-1);
}

/* The n-th call of a library fails, for every n: the result is a choice without the cache or
 * without timing, or an error, and never a leak.  Whatever the next start keeps is undamaged. */
static void failures(void **state)
{
    int n_errors = 0, left = 0;

    (void)state;
    for (int n = 1; left == 0; n++) {
        struct backend *b = layers_open(&tuned_and_kept);
        struct err err = {0};

        assert_int_equal(remove_tree(folder), 0);
        fakes_fail_at(n);
        n_errors += layers_use(b, NULL, &err) < 0;
        left = fakes_fail_at(0);
        layers_close(b);
    }
    assert_true(n_errors > 0);
    start(&tuned_and_kept, NULL);
    expect_only(FAKE_QUICK);
}

static void runtime_failures(void **state)
{
    uint64_t n_calls = sim_calls();
    int n_errors = 0;

    (void)state;
    start(&tuned, NULL);
    n_calls = sim_calls() - n_calls;
    assert_true(n_calls > 100);
    for (uint64_t n = 1; n <= n_calls; n++) {
        struct backend *b = layers_open(&tuned);
        struct err err = {0};

        sim_fail_at(n);
        n_errors += layers_use(b, NULL, &err) < 0;
        sim_fail_at(0);
        layers_close(b);
    }
    assert_true(n_errors > 10 && n_errors < (int)n_calls); /* timing alone is done without */
}

static int make_root(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/dptrain/plans", root);
    unsetenv("CACHE_DIRECTORY");
    return setenv("XDG_CACHE_HOME", root, 1);
}

static int remove_root(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", root);
    return remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(first_is_taken, fresh),
        cmocka_unit_test_setup(fallback_is_asked, fresh),
        cmocka_unit_test_setup(silence_is_no_refusal, fresh),
        cmocka_unit_test_setup(next_start_asks_nothing, fresh),
        cmocka_unit_test_setup(fastest_is_taken, fresh),
        cmocka_unit_test_setup(untimed_is_not_kept, fresh),
        cmocka_unit_test_setup(other_rules_choose_anew, fresh),
        cmocka_unit_test_setup(damage_is_mended, fresh),
        cmocka_unit_test_setup(refused_entries_count_as_none, fresh),
        cmocka_unit_test_setup(failures, fresh),
        cmocka_unit_test_setup(runtime_failures, fresh),
    };

    return cmocka_run_group_tests(tests, make_root, remove_root);
}
