/* balance: plans of shares by speed, and a job whose slow rank computes less and less, with the
 * numbers of the job whose ranks are equal. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "ranks.h"
#include "train/trainer_impl.h"

/* ---- plans ---- */

static void test_plans(void **state)
{
    static const struct {
        int n;
        int64_t batch, most;
        double rate[4];
        int64_t before[4], after[4]; /* after[0] -1: not changed */
    } cases[] = {
        {2, 32, 32, {300, 100}, {16, 16}, {24, 8}},
        {2, 33, 34, {300, 100}, {17, 16}, {25, 8}},
        {2, 100, 100, {108, 100}, {50, 50}, {-1}},   /* 4 % faster */
        {2, 32, 32, {100, 99}, {16, 16}, {-1}},      /* nothing to gain */
        {2, 32, 32, {100, 100}, {24, 8}, {16, 16}},  /* back again */
        {2, 32, 32, {1e9, 1e-9}, {16, 16}, {31, 1}}, /* every rank keeps a sample */
        {4, 64, 32, {1000, 1, 1, 1}, {16, 16, 16, 16}, {32, 11, 11, 10}}, /* the largest share */
        {4, 64, 32, {300, 300, 100, 100}, {16, 16, 16, 16}, {24, 24, 8, 8}},
        {4, 64, 20, {300, 300, 100, 100}, {16, 16, 16, 16}, {20, 20, 12, 12}},
        {4, 3, 2, {1, 1, 1, 9}, {0, 3, 0, 0}, {1, 0, 0, 2}}, /* fewer samples than ranks */
        {3, 7, 6, {1, 5, 1}, {3, 2, 2}, {1, 5, 1}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t share[4];
        int is_changed;

        memcpy(share, cases[i].before, sizeof share);
        is_changed = balance_plan(cases[i].rate, cases[i].n, cases[i].batch, cases[i].most, share);
        assert_int_equal(is_changed, cases[i].after[0] >= 0);
        for (int r = 0; r < cases[i].n; r++)
            if (share[r] != (is_changed ? cases[i].after : cases[i].before)[r])
                fail_msg("plan %d: rank %d gets %d", (int)i, r, (int)share[r]);
    }
}

/* Whatever the speeds, all samples are shared out, within the limits. */
static void test_any_plan_is_whole(void **state)
{
    uint64_t random = 88172645463325252;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        const int n = 2 + i % 7;
        const int64_t batch = 1 + (int64_t)(random >> 20) % 300, most = 2 * ceil_div_i64(batch, n);
        double rate[8];
        int64_t share[8] = {0}, sum = 0;

        for (int r = 0; r < n; r++) {
            random ^= random << 13; /* Marsaglia's xorshift */
            random ^= random >> 7;
            random ^= random << 17;
            rate[r] = exp((double)(random % 1000) / 100);
        }
        share[0] = batch << 30; /* any plan is better */
        assert_int_equal(balance_plan(rate, n, batch, most, share), 1);
        for (int r = 0; r < n; r++) {
            assert_in_range(share[r], batch >= n, most);
            sum += share[r];
        }
        assert_int_equal(sum, batch);
    }
}

/* ---- decisions ---- */

static void test_a_rate_is_a_median(void **state)
{
    static const int64_t n[6] = {4, 4, 0, 4, 2, 4};
    static const int64_t ns[6] = {1000, 9000000, 77, 1000, 1000, 2000};

    (void)state;
    assert_true(balance_rate(n, ns, 6) == 2e6); /* of 4e6, 4e2, none, 4e6, 2e6, 2e6 */
    assert_true(balance_rate(n, ns, 2) == (4e6 + 4e9 / 9000000) / 2);
    assert_true(balance_rate(n + 2, ns + 2, 1) == 0);
}

static void test_a_move_is_half_way(void **state)
{
    static const struct {
        int n;
        int64_t batch;
        double rate[4];
        int64_t before[4], after[4];
    } cases[] = {
        {2, 64, {100, 300}, {32, 32}, {24, 40}},
        {2, 10, {2, 3}, {5, 5}, {4, 6}}, /* all of a change by one */
        {3, 96, {1, 1, 4}, {32, 32, 32}, {24, 24, 48}},
        {3, 99, {1, 1, 4}, {33, 33, 33}, {25, 24, 50}}, /* of changes by -17, -17, 34 */
        {4, 64, {100, 100, 100, 100}, {40, 8, 8, 8}, {28, 12, 12, 12}},
        {2, 64, {100, 100}, {34, 30}, {32, 32}}, /* equal ones are no slower: at once */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct balance_course c = {0};
        int64_t share[4];

        memcpy(share, cases[i].before, sizeof share);
        assert_int_equal(balance_follow(&c, cases[i].rate, cases[i].n, cases[i].batch, share), 1);
        assert_int_equal(c.wait, BALANCE_STEPS);
        for (int r = 0; r < cases[i].n; r++)
            if (share[r] != cases[i].after[r])
                fail_msg("move %d: rank %d has %d", (int)i, r, (int)share[r]);
    }
}

/* Trials by turns: the first two fail, the third succeeds, the fourth fails. */
static void test_pauses(void **state)
{
    static const double slow[2] = {1, 3}, as_slow[2] = {0.5, 2}, helped[2] = {1, 2};
    static const int64_t wait[4] = {32, 64, 16, 32};
    struct balance_course c = {0};
    int64_t share[2] = {32, 32};

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(balance_follow(&c, slow, 2, 64, share), 1);
        assert_int_equal(c.wait, BALANCE_STEPS);
        assert_int_equal(share[0], 24);
        balance_follow(&c, i == 2 ? helped : as_slow, 2, 64, share);
        assert_int_equal(c.wait, wait[i]);
        if (i != 2)
            assert_int_equal(share[0], 32);
        share[0] = share[1] = 32;
        c.most_seconds = 0;
    }
}

/* Two ranks, of which rank r needs fixed[r] seconds for a step, and per_sample[r] for a sample. */
struct model {
    double fixed[2], per_sample[2], noise; /* noise: relative, at most */
    uint64_t random;
    struct balance_course course;
    int64_t share[2], step;
    int n_changes;
};

static double seconds_of(const struct model *m, int r)
{
    return m->fixed[r] + m->per_sample[r] * (double)m->share[r];
}

static void run_model(struct model *m, int64_t n_steps)
{
    for (const int64_t end = m->step + n_steps; m->step < end;) {
        double rate[2];

        for (int r = 0; r < 2; r++) {
            m->random ^= m->random << 13;
            m->random ^= m->random >> 7;
            m->random ^= m->random << 17;
            rate[r] = (double)m->share[r] /
                      (seconds_of(m, r) * (1 + m->noise * ((double)(m->random % 2001) / 1000 - 1)));
        }
        m->n_changes += balance_follow(&m->course, rate, 2, 64, m->share);
        assert_int_equal(m->share[0] + m->share[1], 64);
        m->step += m->course.wait;
    }
}

static double step_seconds(const struct model *m)
{
    return fmax(seconds_of(m, 0), seconds_of(m, 1));
}

/* Equal ranks, one of which is 20 times slower for one measurement or for some. */
static void test_a_slow_time_is_got_over(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct model m = {
            .per_sample = {1, 1}, .noise = 0.08, .random = seed * 2654435761, .share = {32, 32}};

        run_model(&m, 3 * BALANCE_STEPS);
        m.per_sample[1] = 20;
        run_model(&m, (int64_t)(1 + seed % 5) * BALANCE_STEPS);
        m.per_sample[1] = 1;
        run_model(&m, 3000);
        if (step_seconds(&m) > 32 * 1.1)
            fail_msg("seed %d: %d and %d", (int)seed, (int)m.share[0], (int)m.share[1]);
    }
}

/* Rank 1 gets three times slower in the end: 48 and 16 are best. */
static void test_a_rank_that_gets_slow_late_is_helped(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct model m = {
            .per_sample = {1, 1}, .noise = 0.05, .random = seed * 2654435761, .share = {32, 32}};

        run_model(&m, 3000);
        m.per_sample[1] = 3;
        run_model(&m, 1000);
        if (step_seconds(&m) > 48 * 1.2)
            fail_msg("seed %d: %d and %d", (int)seed, (int)m.share[0], (int)m.share[1]);
    }
}

/* Rank 1 is slow whatever its share: trials fail, and become rare. */
static void test_trials_that_fail_become_rare(void **state)
{
    struct model m = {.fixed = {0, 1000}, .per_sample = {1, 1}, .random = 1, .share = {32, 32}};
    int n;

    (void)state;
    run_model(&m, 2 * BALANCE_STEPS);
    assert_int_equal(m.n_changes, 2);
    run_model(&m, 4096);
    n = m.n_changes;
    assert_in_range(n, 10, 20);
    run_model(&m, 10 * BALANCE_MOST_PAUSE);
    assert_in_range(m.n_changes - n, 16, 20); /* not never */
    assert_in_range(m.share[0], 32, 48);
}

/* ---- a job ---- */

/* The last step of an epoch has 16 samples. */
#define JOB                                                          \
    "model: {arch: mlp, hidden: [24]}\n"                             \
    "data: {format: digits, samples: 976, validation_samples: 40}\n" \
    "train: {global_batch: 32}\noptimizer: {lr: 0.1}\n"

enum { N_STEPS = 31 };

static const int64_t hour_ns = (int64_t)3600 * 1000000000;

/* Rank 0 believes that its first 16 steps took an hour more, each. */
static void feel_slow(void *arg, struct trainer *t, int64_t step)
{
    (void)arg;
    if (step > 0 && step < BALANCE_STEPS)
        t->balance.busy_ns[step - 1] += hour_ns;
}

/* A smaller share does not help it at all.  Counts the steps before which the newest step's own
 * time did not replace the time that was put there BALANCE_STEPS ago. */
static void feel_slower(void *arg, struct trainer *t, int64_t step)
{
    int64_t *newest;
    int *n_stale = arg;

    if (step == 0)
        return;
    newest = &t->balance.busy_ns[(step - 1) % BALANCE_STEPS];
    *n_stale += *newest <= 0 || *newest >= hour_ns;
    *newest += hour_ns;
}

/* Equal shares again.  After a pause of 32 steps smaller ones are tried again, for 16. */
static void test_what_does_not_help_is_taken_back(void **state)
{
    static struct run_result r;
    int n_stale = 0;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB "cluster: {rebalance: true}\n",
                                  .n_ranks = 3,
                                  .n_epochs = 3,
                                  .on_step = feel_slower,
                                  .arg = &n_stale},
               &r);
    assert_int_equal(n_stale, 0);
    assert_int_equal(r.n_rebalanced, 4);
    assert_int_equal(r.share[0], 11);
    assert_int_equal(r.share[1], 11);
    assert_int_equal(r.share[2], 10);
}

static void test_a_slow_rank_gets_less(void **state)
{
    static struct run_result want, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 3, .n_epochs = 1}, &want);
    run_job_ok(&(struct run_plan){.job = JOB "cluster: {rebalance: true}\n",
                                  .n_ranks = 3,
                                  .n_epochs = 1,
                                  .on_step = feel_slow},
               &got);
    assert_int_equal(want.n_rebalanced, 0);
    assert_int_equal(got.n_rebalanced, 1);
    assert_int_equal(got.share[0], 6); /* half way from 11 to 1, of 32 */
    assert_int_equal(got.share[1] + got.share[2], 26);
    assert_int_equal(got.n_steps, N_STEPS);
    for (int i = 0; i < N_STEPS; i++) {
        assert_int_equal(got.step_samples[i], want.step_samples[i]);
        if (!(fabs(got.step_loss[i] / want.step_loss[i] - 1) < 1e-4))
            fail_msg("step %d: loss %.9g, want %.9g", i, got.step_loss[i], want.step_loss[i]);
    }
    assert_true(fabs(got.validation_loss / want.validation_loss - 1) < 1e-4);
}

static void want_refused(const char *job, const char *text)
{
    static struct run_result r;

    run_job(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r.rc[i], ERR_CONFIG);
        assert_non_null(strstr(r.err[i].msg, text));
    }
}

/* Shares would change what batch norm computes. */
static void test_batch_statistics_of_shares(void **state)
{
#define NORMED(more)                                                    \
    "data: {format: digits, samples: 64}\ncluster: {rebalance: true}\n" \
    "model: {arch: resnet18, stem: cifar" more "}\ntrain: {global_batch: 8"

    (void)state;
    want_refused(NORMED(", sync_batch_norm: false") "}\n", "want model.sync_batch_norm: true");
    want_refused(NORMED("") ", accumulate: 2}\n", "want train.accumulate 1");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_any_plan_is_whole),
        cmocka_unit_test(test_a_rate_is_a_median),
        cmocka_unit_test(test_a_move_is_half_way),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_a_slow_time_is_got_over),
        cmocka_unit_test(test_a_rank_that_gets_slow_late_is_helped),
        cmocka_unit_test(test_trials_that_fail_become_rare),
        cmocka_unit_test(test_a_slow_rank_gets_less),
        cmocka_unit_test(test_what_does_not_help_is_taken_back),
        cmocka_unit_test(test_batch_statistics_of_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
