/* shares: with fixed shares of the global batch every number of ranks gives the same bits: weights,
 * losses, running statistics, and the sums of validation. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "ranks.h"
#include "train/trainer_impl.h"

/* The last step of an epoch has 14 samples. */
#define DATA  "data: {format: digits, samples: 110, validation_samples: 700}\n"
#define RATE  "optimizer: {lr: 0.1, momentum: 0.9}\n"
#define TRAIN "train: {global_batch: 32, clip_norm: 0.5}\n"
#define LENET "model: {arch: lenet}\n" DATA TRAIN RATE
#define NORMED                                                                        \
    "model:\n  arch: layers\n  sync_batch_norm: false\n  layers:\n"                   \
    "    - conv: {channels: 6, kernel: 5, stride: 2}\n    - batch_norm\n    - relu\n" \
    "    - max_pool: {kernel: 2}\n    - flatten\n    - dropout: {p: 0.25}\n"          \
    "    - linear: {units: 10}\n" DATA
#define SHARES(n) "strategy: {shards: " #n "}\n"

enum { N_STEPS = 4 };

static void run(const char *job, int n_ranks, struct run_result *r)
{
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = n_ranks, .n_epochs = 1}, r);
    assert_int_equal(r->n_steps, N_STEPS);
}

static void want_same(const struct run_result *want, const struct run_result *got, int n_ranks)
{
    if (!hash_equal(want->replica[0], got->replica[0]))
        fail_msg("%d ranks: other weights", n_ranks);
    assert_memory_equal(want->step_loss, got->step_loss, sizeof want->step_loss);
    assert_memory_equal(&want->validation_loss, &got->validation_loss, sizeof(double));
    assert_memory_equal(&want->validation_accuracy, &got->validation_accuracy, sizeof(double));
}

static void test_any_number_of_ranks(void **state)
{
    static const struct {
        const char *job;
        int most_ranks;
    } cases[] = {
        {LENET SHARES(4), 4},
        {LENET SHARES(5), 5},
        {NORMED TRAIN RATE SHARES(4), 4},
        {NORMED RATE "train: {global_batch: 32, accumulate: 3, average: {name: ema}}\n" SHARES(3),
         3},
        {"model: {arch: mlp, hidden: [24]}\n" DATA
         "train: {global_batch: 32, ignore_index: 3, label_smoothing: 0.1, "
         "class_weights: [2, 1, 0.5, 0, 1, 0.3, 1, 0.25, 1, 1.7]}\n"
         "optimizer: {name: adamw, lr: 0.01}\n" SHARES(7),
         5},
        {"precision: bfloat16\n" LENET SHARES(2), 2},
    };
    static struct run_result want, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        run(cases[i].job, 1, &want);
        for (int n = 2; n <= cases[i].most_ranks; n++) {
            run(cases[i].job, n, &got);
            want_same(&want, &got, n);
        }
    }
}

/* The machine's threads are not asked. */
static void test_threads(void **state)
{
    static struct run_result want, got;
    static const char two[] = LENET "strategy: {shards: 2, share_threads: 2}\n";

    (void)state;
    run(LENET SHARES(2), 1, &want);
    run_job_ok(
        &(struct run_plan){.job = LENET SHARES(2), .n_ranks = 1, .n_epochs = 1, .n_threads = 2},
        &got);
    want_same(&want, &got, 1);
    run(two, 1, &want);
    run(two, 2, &got);
    want_same(&want, &got, 2);
}

/* One share is the whole batch. */
static void test_one_share_is_plain(void **state)
{
    static const char job[] = NORMED TRAIN RATE, one[] = NORMED TRAIN RATE SHARES(1);
    static struct run_result want, got;

    (void)state;
    run(job, 1, &want);
    run(one, 1, &got);
    assert_true(hash_equal(want.replica[0], got.replica[0]));
    assert_memory_equal(want.step_loss, got.step_loss, sizeof want.step_loss);
}

static void test_equal_to_plain_but_for_rounding(void **state)
{
    static struct run_result want, got;

    (void)state;
    run(LENET, 1, &want);
    run(LENET SHARES(5), 3, &got);
    for (int i = 0; i < N_STEPS; i++)
        assert_true(fabs(got.step_loss[i] / want.step_loss[i] - 1) < 1e-5);
    assert_true(fabs(got.validation_loss / want.validation_loss - 1) < 1e-5);
}

/* ---- running statistics ---- */

enum { CHANNELS = 6 };

struct statistics {
    float value[2 * CHANNELS + 64]; /* after the first step */
};

static void copy_statistics(void *arg, struct trainer *t, int64_t step)
{
    struct statistics *s = arg;
    const size_t n = (size_t)t->layout->n_state_total;

    assert_true(n <= ARRAY_LEN(s->value));
    if (step == 1)
        memcpy(s->value, state_data(t->state, &slot_statistics), n * sizeof *s->value);
}

/* Shares are equally large, so the mean of their means is that of the whole batch. */
static void test_running_statistics(void **state)
{
    static const char *const jobs[] = {NORMED TRAIN RATE SHARES(1), NORMED TRAIN RATE SHARES(4)};
    static struct run_result r;
    struct statistics s[ARRAY_LEN(jobs)] = {{{0}}};
    int n_moved = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++)
        run_job_ok(&(struct run_plan){.job = jobs[i],
                                      .n_ranks = (int)i + 1,
                                      .n_epochs = 1,
                                      .on_step = copy_statistics,
                                      .arg = &s[i]},
                   &r);
    for (size_t i = 0; i < ARRAY_LEN(s[0].value); i++) {
        n_moved += s[0].value[i] != 0;
        assert_true(fabsf(s[0].value[i] - s[1].value[i]) < 5e-3f);
    }
    assert_true(n_moved >= 2 * CHANNELS);
}

/* ---- resuming, refusals ---- */

static void test_resumed_on_other_ranks(void **state)
{
    static struct run_result want, got;
    static const char job[] = NORMED TRAIN RATE SHARES(4);
    char dir[] = "shares-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 1, .n_epochs = 2}, &want);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1, .run_dir = dir}, &got);
    run_job_ok(
        &(struct run_plan){.job = job, .n_ranks = 4, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &got);
    assert_true(hash_equal(want.replica[0], got.replica[0]));
    remove_tree(dir);
}

static void want_refused(const char *job, int n_ranks, const char *text)
{
    static struct run_result r;

    run_job(&(struct run_plan){.job = job, .n_ranks = n_ranks, .n_epochs = 1}, &r);
    for (int i = 0; i < n_ranks; i++) {
        assert_int_equal(r.rc[i], ERR_CONFIG);
        assert_non_null(strstr(r.err[i].msg, text));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    want_refused(LENET SHARES(2), 3, "strategy.shards is 2, want at least 3, the number of ranks");
    want_refused("model: {arch: resnet18, stem: cifar}\n" DATA TRAIN SHARES(2), 1,
                 "with strategy.shards each share has its own batch statistics; want "
                 "model.sync_batch_norm: false");
    want_refused(
        "model: {arch: lenet}\n" DATA "train: {global_batch: 128, accumulate: 29}\n" SHARES(4), 2,
        "train.accumulate is 29 with strategy.shards 4, but of the 110 training samples a "
        "share has at most 28, want at most 28");
}

/* ---- what it takes ---- */

/* Rank 0 of 2 holds the leaves 0 to 2 of 5, and so two pieces; rank 1 likewise. */
static void test_the_record(void **state)
{
    static struct run_result r;

    (void)state;
    run(NORMED TRAIN RATE SHARES(5), 2, &r);
    for (int k = 0; k < 2; k++) {
        int n = 0;

        for (int i = 0; i < r.ring[k].n_newest; i++)
            n += r.ring[k].newest[i].step == N_STEPS - 1 && r.ring[k].newest[i].bucket == 0;
        assert_int_equal(n, 2 * 2 + 2); /* of the only bucket, and of the running statistics */
    }
}

static void test_a_step_allocates_nothing(void **state)
{
    static struct run_result r;

    (void)state;
    run(LENET SHARES(5), 1, &r);
    assert_int_equal(r.allocs[3] - r.allocs[2], r.reports[3] - r.reports[2]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_one_share_is_plain),
        cmocka_unit_test(test_equal_to_plain_but_for_rounding),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_resumed_on_other_ranks),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_the_record),
        cmocka_unit_test(test_a_step_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
