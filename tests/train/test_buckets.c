/* test_buckets - train.bucket_bytes: auto: the model that chooses a size, and jobs whose gradients
 * are cut anew in mid-run: no bit changes, and a resumed run has the size from its checkpoint. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "../remove_tree.h"
#include "ckpt/ckpt.h"
#include "op/control.h"
#include "ranks.h"
#include "train/buckets.h"

/* ---- the model ---- */

enum { MOST_PARAMS = 64, MIB = 1 << 20 };

struct made {
    struct layout l;
    struct segment param[MOST_PARAMS];
    struct bucket bucket[MOST_PARAMS + 2];
    double ready_s[MOST_PARAMS + 2], sum_s[MOST_PARAMS + 2];
};

/* n parameters of `each` bytes, of which backward completes one every `pace_s` seconds; a sum takes
 * `latency_s`, and a second for each `rate` bytes. */
static void make(struct made *m, int n, int64_t each, double pace_s, double latency_s, double rate)
{
    const int64_t length = each / (int64_t)sizeof(float);

    *m = (struct made){.l = {.param = m->param,
                             .n_params = n,
                             .n_trained = n * length,
                             .n_total = n * length,
                             .n_grad = n * length + CONTROL_LEN,
                             .grad_dtype = DTYPE_F32,
                             .bucket = m->bucket,
                             .bucket_bytes = 4 * MIB}};
    for (int i = 0; i < n; i++)
        m->param[i] = (struct segment){.offset = i * length, .length = length};
    m->l.n_buckets = layout_plan(&m->l, m->l.bucket_bytes, m->bucket);
    for (int b = 0; b < m->l.n_buckets; b++) {
        m->ready_s[b] = pace_s * (m->bucket[b].last_segment + 1);
        m->sum_s[b] = latency_s + (double)m->bucket[b].length * sizeof(float) / rate;
    }
}

static size_t choice(const struct made *m) { return buckets_choose(&m->l, m->ready_s, m->sum_s); }

/* 64 MiB of parameters. */
static void test_sizes(void **state)
{
    struct made m;

    (void)state;
    /* The sums keep pace with backward: the last one alone is not hidden, so it is to be short. */
    make(&m, 64, MIB, 1e-2, 1e-5, 110e6);
    assert_int_equal(choice(&m), MIB);
    /* Nothing is hidden, and each collective costs as much as the transfer of 10 MB. */
    make(&m, 64, MIB, 1e-5, 1e-2, 1e9);
    assert_int_equal(choice(&m), 25 * MIB);
    /* Backward takes 0.64 s, 64 sums of 1 MiB 0.69 s and 32 of 2 MiB 0.62 s.  So the first are too
     * many, and of the others the last one is the shortest. */
    make(&m, 64, MIB, 1e-2, 2e-3, 120e6);
    assert_int_equal(choice(&m), 2 * MIB);
    /* A rank that saw no sum of a bucket has no say in it. */
    m.sum_s[3] = INFINITY;
    assert_int_equal(choice(&m), 2 * MIB);
    /* Backward takes so long that 3 MiB less in the last sum gain less than 2 %. */
    make(&m, 64, MIB, 1, 1e-5, 200e6);
    assert_int_equal(choice(&m), 4 * MIB);
}

/* The times tell nothing of latency and rate. */
static void test_no_figures(void **state)
{
    struct made m;

    (void)state;
    make(&m, 1, 64 << 10, 1e-3, 1e-2, 1e9); /* one bucket */
    assert_int_equal(choice(&m), 4 * MIB);
    make(&m, 8, 8 * MIB, 1e-3, 1e-2, 1e9); /* a bucket for each parameter */
    assert_int_equal(choice(&m), 4 * MIB);
    make(&m, 64, MIB, 1e-5, 1e-2, 1e9);
    for (int b = 0; b < m.l.n_buckets; b++)
        m.sum_s[b] = INFINITY;
    assert_int_equal(choice(&m), 4 * MIB);
}

/* Sums that took less time the larger they were: the latency is all, or noise. */
static void test_times_of_noise(void **state)
{
    struct made m;

    (void)state;
    make(&m, 64, MIB, 1e-5, 1e-2, 1e9);
    for (int b = 0; b < m.l.n_buckets; b++)
        m.sum_s[b] = 2e-2 - (double)m.bucket[b].length * 1e-8;
    assert_int_equal(choice(&m), 25 * MIB);
    /* More than in proportion to their size: there is no latency. */
    make(&m, 64, MIB, 1.2e-2, 0, 110e6);
    for (int b = 0; b < m.l.n_buckets; b++)
        m.sum_s[b] *= m.bucket[b].length > 300000 ? 1.1 : 1;
    assert_int_equal(choice(&m), MIB);
}

/* ---- a job ---- */

/* 12 steps, of which the last one has 16 samples; 1 MiB of gradients. */
#define JOB(more)                                                    \
    "model: {arch: mlp, hidden: [256, 256]}\n"                       \
    "data: {format: digits, samples: 368, validation_samples: 40}\n" \
    "train: {global_batch: 32, bucket_bytes: " more "}\n"            \
    "optimizer: {lr: 0.1, momentum: 0.9}\n"

enum { N_STEPS = 12, AT_FIRST = 64 << 10, CHOSEN = 8 << 10 };

static void want_same(const struct run_result *got, const struct run_result *want)
{
    assert_true(hash_equal(got->replica[0], want->replica[0]));
    assert_int_equal(got->n_steps, want->n_steps);
    for (int i = 0; i < want->n_steps; i++)
        assert_true(got->step_loss[i] == want->step_loss[i]);
    assert_true(got->validation_loss == want->validation_loss);
}

static void want_told(const struct run_result *r, int64_t step, int64_t bucket_bytes)
{
    assert_int_equal(r->n_cut, 1);
    assert_int_equal(r->cut_step, step);
    assert_int_equal(r->cut_bytes, bucket_bytes);
}

/* Rank 0's buckets, as the last step's collectives tell. */
static int n_buckets(const struct run_result *r)
{
    int64_t most = 0;

    for (int i = 0; i < r->ring[0].n_newest; i++)
        if (r->ring[0].newest[i].step == r->step[0] - 1 && r->ring[0].newest[i].bucket > most)
            most = r->ring[0].newest[i].bucket;
    return (int)most + 1;
}

static void train_alike(const char *fixed, const char *automatic, int n_ranks)
{
    static struct run_result want, got;

    run_job_ok(&(struct run_plan){.job = fixed, .n_ranks = n_ranks, .n_epochs = 1}, &want);
    run_job_ok(&(struct run_plan){.job = automatic,
                                  .n_ranks = n_ranks,
                                  .n_epochs = 1,
                                  .bucket_bytes = AT_FIRST,
                                  .bucket_choice = CHOSEN},
               &got);
    assert_int_equal(want.n_cut, 0);
    assert_int_equal(want.n_steps, N_STEPS);
    want_told(&got, BUCKETS_STEPS, CHOSEN);
    assert_true(n_buckets(&got) > n_buckets(&want));
    assert_int_equal(n_buckets(&got), got.n_buckets);
    want_same(&got, &want);
}

static void test_no_bit_changes(void **state)
{
    (void)state;
    train_alike(JOB("65536"), JOB("auto"), 3);
    train_alike(JOB("65536") "strategy: {compress: float16}\n",
                JOB("auto") "strategy: {compress: float16}\n", 3);
    train_alike(JOB("65536, accumulate: 2"), JOB("auto, accumulate: 2"), 2);
}

/* By its own measurements: any of the sizes, or the one that it has. */
static void test_measured(void **state)
{
    static struct run_result want, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB("65536"), .n_ranks = 2, .n_epochs = 1}, &want);
    run_job_ok(
        &(struct run_plan){
            .job = JOB("auto"), .n_ranks = 2, .n_epochs = 1, .bucket_bytes = AT_FIRST},
        &got);
    assert_int_equal(got.n_cut, 1);
    assert_int_equal(got.cut_step, BUCKETS_STEPS);
    assert_true(got.cut_bytes == AT_FIRST || (got.cut_bytes >= MIB && got.cut_bytes <= 25 * MIB));
    want_same(&got, &want);
}

/* A fault of a bucket that is gone once the gradients are cut anew cannot happen, and the rank says
 * so.  Before that step the bucket was there. */
static void test_fault_of_a_bucket_that_is_gone(void **state)
{
    static struct run_result r;
    const struct run_plan plan = {.job = JOB("auto"),
                                  .n_ranks = 2,
                                  .n_epochs = 1,
                                  .bucket_bytes = CHOSEN,
                                  .bucket_choice = 25 * MIB,
                                  .inject = "skip:rank1@step9:bucket3,flip:rank1@step10:bucket0"};

    (void)state;
    run_job(&plan, &r);
    assert_int_equal(r.rc[1], 0);
    want_told(&r, BUCKETS_STEPS, 25 * MIB);
    assert_int_equal(r.n_buckets, 1);
    assert_string_equal(r.warning,
                        "--inject skip:rank1@step9:bucket3 cannot happen: train.bucket_bytes: auto "
                        "has cut the gradients anew, and step 9 has no bucket 3; it has 1 bucket, "
                        "numbered from 0");
    assert_non_null(strstr(r.injected, "flips before bucket 0 of step 10 is summed"));
}

/* With one rank there is nothing to measure. */
static void test_alone(void **state)
{
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB("auto"), .n_ranks = 1, .n_epochs = 1}, &r);
    assert_int_equal(r.n_cut, 0);
}

static void test_resume(void **state)
{
    static struct run_result whole, first, second;
    char folder[] = "buckets-XXXXXX";
    struct ckpt *c = NULL;
    struct err err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    run_job_ok(&(struct run_plan){.job = JOB("65536"), .n_ranks = 2, .n_epochs = 2}, &whole);
    run_job_ok(&(struct run_plan){.job = JOB("auto"),
                                  .n_ranks = 2,
                                  .n_epochs = 1,
                                  .run_dir = folder,
                                  .bucket_bytes = AT_FIRST,
                                  .bucket_choice = CHOSEN},
               &first);
    want_told(&first, BUCKETS_STEPS, CHOSEN);
    assert_int_equal(ckpt_load_latest(folder, NULL, NULL, &c, &err), 0);
    assert_int_equal(c->state.bucket_bytes, CHOSEN);
    ckpt_close(c);
    run_job_ok(&(struct run_plan){.job = JOB("auto"),
                                  .n_ranks = 2,
                                  .n_epochs = 1,
                                  .run_dir = folder,
                                  .resume = 1,
                                  .bucket_bytes = AT_FIRST,
                                  .bucket_choice = 2 * CHOSEN},
               &second);
    want_told(&second, N_STEPS, CHOSEN);
    assert_true(hash_equal(second.replica[0], whole.replica[0]));
    remove_tree(folder);
}

/* A rank that takes the place of one that was lost has the size with the state. */
static void test_a_rank_is_replaced(void **state)
{
    static struct run_result r;
    static struct run_lives lives;
    const struct run_plan plan = {
        .job = "model: {arch: mlp, hidden: [64]}\n"
               "data: {format: digits, samples: 368, validation_samples: 40}\n"
               "train: {global_batch: 32, bucket_bytes: auto}\n",
        .n_ranks = 3,
        .n_epochs = 1,
        .bucket_bytes = AT_FIRST,
        .bucket_choice = 2 << 10,
        .fault = {.channel = COLL_BULK, .at_ticket = 18, .fail = ERR_DEVICE},
        .lives = &lives,
    };

    (void)state;
    run_job(&plan, &r);
    want_told(&r, BUCKETS_STEPS, 2 << 10);
    assert_int_equal(r.n_buckets, 2);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(r.rc[k], 0);
        assert_in_range(lives.step[k], BUCKETS_STEPS, N_STEPS - 1);
        assert_int_equal(lives.bucket_bytes[k], 2 << 10);
        assert_memory_equal(lives.after[k], lives.after[0], sizeof(float) * (size_t)lives.n);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_figures),
        cmocka_unit_test(test_times_of_noise),
        cmocka_unit_test(test_no_bit_changes),
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_a_rank_is_replaced),
        cmocka_unit_test(test_fault_of_a_bucket_that_is_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
