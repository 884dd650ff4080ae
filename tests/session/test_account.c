/* account: where time goes, what a loss or a wait for data moves, and a run that goes on under
 * another driver.  Pure functions on made-up times. */
#include "../test.h"

#include "session/account.h"

static const struct account_past nothing = {.n_marks = 0};

static void want(const struct account *a, enum account_kind kind, int64_t ns)
{
    account_check(a);
    if (a->times.ns[kind] != ns)
        fail_msg("%s: %lld ns, want %lld", account_key(kind), (long long)a->times.ns[kind],
                 (long long)ns);
}

/* A run that has trained steps 1 to n of 100 ns each, after a start of 50 ns. */
static struct account trained(int n)
{
    struct account a;
    account_init(&a, &nothing, 1000);
    account_turn(&a, 1050, ACCOUNT_PRODUCTIVE);
    account_begin_share(&a, 1050);
    for (int i = 1; i <= n; i++)
        account_step(&a, 1050 + 100 * i, i);
    return a;
}

static void time_goes_to_the_present_kind(void **state)
{
    struct account a = trained(3);
    (void)state;
    account_turn(&a, 1400, ACCOUNT_VALIDATION);
    account_turn(&a, 1390, ACCOUNT_CHECKPOINT); /* a time in the past changes nothing */
    want(&a, ACCOUNT_START, 50);
    want(&a, ACCOUNT_PRODUCTIVE, 350);
    want(&a, ACCOUNT_VALIDATION, 0);
    struct account_times t = account_at(&a, 1500);
    assert_int_equal(t.ns[ACCOUNT_CHECKPOINT], 100);
    assert_int_equal(account_wall_ns(&t), 500);
    assert_float_equal(account_goodput(&t), 0.7, 1e-12);
    want(&a, ACCOUNT_CHECKPOINT, 0);
}

static void undone_steps_are_repeated(void **state)
{
    static const struct {
        int64_t end, step, n_lost, repeated;
    } rows[] = {
        {1630, 5, 1, 80}, /* a step was under way: all of its time */
        {1630, 5, 0, 0},  /* none was, as when ranks form anew in order */
        {1630, 6, 1, 40}, /* a step without a mark counted, the next did not: half of the time */
        {1550, 3, 2, 200}, {1630, 0, 6, 580}, /* back to the begin */
        {1630, 9, 0, 0},   {1630, 9, -2, 0},  /* all of it counted */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct account a = trained(5);
        account_turn(&a, rows[i].end, ACCOUNT_LOST);
        account_turn(&a, rows[i].end + 1000, ACCOUNT_LOST);
        account_back(&a, rows[i].step, rows[i].n_lost);
        want(&a, ACCOUNT_REPEATED, rows[i].repeated);
        want(&a, ACCOUNT_LOST, 1000);
        want(&a, ACCOUNT_PRODUCTIVE, rows[i].end - 1050 - rows[i].repeated);
    }
}

/* Ranks that form anew in order have lost nothing, and a later loss undoes only what came then. */
static void a_loss_after_forming_in_order(void **state)
{
    struct account a = trained(5);
    (void)state;
    account_turn(&a, 1630, ACCOUNT_LOST);
    account_back(&a, 5, 0);
    account_turn(&a, 2000, ACCOUNT_PRODUCTIVE);
    account_turn(&a, 2070, ACCOUNT_LOST);
    account_back(&a, 5, 1);
    want(&a, ACCOUNT_REPEATED, 70);
    want(&a, ACCOUNT_PRODUCTIVE, 580);
}

/* Marks are thinned, so the time of a step is found between two of them. */
static void a_long_run_keeps_few_marks(void **state)
{
    struct account a = trained(100000);
    (void)state;
    assert_in_range(a.n_marks, ACCOUNT_MARKS / 2, ACCOUNT_MARKS);
    account_back(&a, 54321, 0);
    want(&a, ACCOUNT_PRODUCTIVE, 5432100);
    account_back(&a, 54320, 0); /* once more */
    want(&a, ACCOUNT_REPEATED, 10000000 - 5432000);
}

static void waits_for_data(void **state)
{
    struct account a = trained(4);
    (void)state;
    account_wait(&a, 1450, 0.5);
    want(&a, ACCOUNT_DATA, 200);
    account_wait(&a, 1550, 0.1); /* the share of all since the epoch began is lower now */
    want(&a, ACCOUNT_DATA, 50);
    want(&a, ACCOUNT_PRODUCTIVE, 450);
    account_begin_share(&a, 1550);
    account_wait(&a, 1650, 7); /* a foreign number is bounded */
    want(&a, ACCOUNT_DATA, 150);
    account_wait(&a, 1650, -1);
    want(&a, ACCOUNT_DATA, 50);
    account_back(&a, 0, 0); /* undone, waits included */
    want(&a, ACCOUNT_DATA, 0);
    want(&a, ACCOUNT_REPEATED, 600);
}

static void a_halt_for_a_checkpoint(void **state)
{
    struct account a = trained(4);
    (void)state;
    account_halt(&a, 1450, 150);
    want(&a, ACCOUNT_CHECKPOINT, 150);
    want(&a, ACCOUNT_PRODUCTIVE, 250);
    account_back(&a, 4, 1); /* the marks know of it */
    want(&a, ACCOUNT_REPEATED, 0);
    account_halt(&a, 1450, 1 << 30);
    want(&a, ACCOUNT_PRODUCTIVE, 0);
}

static void another_driver_goes_on(void **state)
{
    struct account_past past = {.times.ns = {[ACCOUNT_START] = 50, [ACCOUNT_PRODUCTIVE] = 1000},
                                .mark = {{5, 500}, {10, 1000}},
                                .n_marks = 2};
    struct account a;
    (void)state;
    account_init(&a, &past, 70000);
    account_turn(&a, 70100, ACCOUNT_PRODUCTIVE);
    account_back(&a, 7, 0); /* from a checkpoint between the two marks */
    want(&a, ACCOUNT_START, 150);
    want(&a, ACCOUNT_PRODUCTIVE, 700);
    want(&a, ACCOUNT_REPEATED, 300);
    assert_int_equal(account_wall_ns(&a.times), 1150);
}

static void ranks_cost_while_they_are_here(void **state)
{
    const int64_t hour = INT64_C(3600000000000);
    struct account_past past = {
        .times = {.ns = {[ACCOUNT_PRODUCTIVE] = hour}, .rank_us = 3 * hour / 1000}};
    struct account a;
    (void)state;
    account_init(&a, &past, 0);
    account_ranks(&a, hour, 4); /* none before */
    account_turn(&a, hour, ACCOUNT_PRODUCTIVE);
    account_ranks(&a, 2 * hour, 2);
    struct account_times t = account_at(&a, 3 * hour);
    assert_float_equal(account_rank_hours(&t), 3 + 4 + 2, 1e-9);
    assert_float_equal(account_forecast(&t, 30, 0), 9, 1e-9);
    assert_true(account_forecast(&t, 0, 30) < 0);
    /* 4 h of wall time, of which 1 h was the start: the same steps again take 3/4 of the ranks */
    assert_float_equal(account_forecast(&t, 30, 30), 9 * 1.75, 1e-9);
}

static void nothing_is_known(void **state)
{
    struct account_times t = {{0}};
    (void)state;
    assert_float_equal(account_goodput(&t), 0, 0);
    assert_string_equal(account_key(ACCOUNT_START), "start");
    assert_string_equal(account_key(ACCOUNT_WAITING), "waiting");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_to_the_present_kind),
        cmocka_unit_test(undone_steps_are_repeated),
        cmocka_unit_test(a_loss_after_forming_in_order),
        cmocka_unit_test(a_long_run_keeps_few_marks),
        cmocka_unit_test(waits_for_data),
        cmocka_unit_test(a_halt_for_a_checkpoint),
        cmocka_unit_test(another_driver_goes_on),
        cmocka_unit_test(ranks_cost_while_they_are_here),
        cmocka_unit_test(nothing_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
