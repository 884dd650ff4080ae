/* Training gives the same results whatever the number of ranks, of micro-batches and of
 * interruptions. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "ranks.h"
#include "text.h"

#define DATA  "data: {format: digits, samples: 1000, validation_samples: 203}\n"
#define LENET "model: {arch: lenet}\n" DATA
#define MLP                                                                        \
    "model: {arch: mlp, hidden: [40, 24], batch_norm: true, dropout: 0.25}\n" DATA \
    "optimizer: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0005}\n"

#define ADAMW                                                                             \
    "model: {arch: mlp, hidden: [40, 24], batch_norm: true}\n" DATA                       \
    "optimizer: {name: adamw, lr: 0.01, no_decay: [bias, norm], groups: [{match: fc2.*, " \
    "lr_scale: 2}, {match: fc1.bias, frozen: true}]}\n"

static double relative(double a, double b) { return fabs(a - b) / fmax(fabs(a), 1e-30); }

static void assert_same_losses(const char *what, const struct run_result *a,
                               const struct run_result *b, double tolerance)
{
    assert_int_equal(a->n_steps, b->n_steps);
    for (int64_t i = 0; i < a->n_steps; i++) {
        assert_int_equal(a->step_samples[i], b->step_samples[i]);
        if (!(relative(a->step_loss[i], b->step_loss[i]) <= tolerance))
            fail_msg("%s, step %d: loss %.9g, want %.9g", what, (int)i, b->step_loss[i],
                     a->step_loss[i]);
    }
}

/* 60 samples a step: 17 steps, the last of 40 samples.  60 can be divided by 1, 2, 3 and 4, and not
 * by 7. */
static void test_ranks_and_micro_batches(void **state)
{
    static const char *const jobs[] = {
        LENET "train: {global_batch: 60, epochs: 2}\noptimizer: {lr: 0.1}\n",
        MLP "train: {global_batch: 61, epochs: 2, clip_norm: 0.5, label_smoothing: 0.1, "
            "ignore_index: 4, class_weights: [2, 1, 0.5, 0, 1, 3, 1, 0.25, 1, 1.5]}\n"
            "schedule: {name: cosine, warmup_steps: 5}\n",
    };

    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(jobs); j++) {
        struct run_result one, many;

        run_job_ok(&(struct run_plan){.job = jobs[j], .n_ranks = 1, .n_epochs = 1}, &one);
        assert_int_equal(one.n_steps, 17);
        assert_true(one.step_loss[16] < one.step_loss[0]);
        assert_int_equal(one.n_validated, 203);
        for (int n = 2; n <= 4; n++) {
            char what[32];

            if (!is_run((int)j + n))
                continue;
            snprintf(what, sizeof what, "job %d, %d ranks", (int)j, n);
            run_job_ok(&(struct run_plan){.job = jobs[j], .n_ranks = n, .n_epochs = 1}, &many);
            assert_same_losses(what, &one, &many, 1e-5);
            assert_true(relative(one.validation_loss, many.validation_loss) < 1e-4);
            assert_int_equal(many.n_validated, 203);
        }
    }
}

/* Dropout of tokens draws by the sample and its place in it, not by the row of a rank's batch. */
static void test_dropout_of_tokens(void **state)
{
    static const char job[] = "model: {arch: gpt, layers: 2, heads: 2, width: 48, context: 16, "
                              "dropout: 0.3}\ndata: {format: text, path: %s/text}\n"
                              "train: {global_batch: 12, max_steps: 6, accumulate: %d}\n"
                              "optimizer: {name: adamw, lr: 0.001}\n";
    struct run_result one, many;
    char folder[64];

    (void)state;
    write_text(folder);
    for (int n = 1; n <= 4; n++) {
        for (int accumulate = 1; accumulate <= 2; accumulate++) {
            char what[48], *text;

            if (n + accumulate > 2 && !is_run(n + accumulate))
                continue;
            text = xasprintf(job, folder, accumulate);
            snprintf(what, sizeof what, "%d ranks, accumulate %d", n, accumulate);
            run_job_ok(&(struct run_plan){.job = text, .n_ranks = n, .n_epochs = 1},
                       n == 1 && accumulate == 1 ? &one : &many);
            if (n > 1 || accumulate > 1)
                assert_same_losses(what, &one, &many, 1e-5);
            free(text);
        }
    }
    assert_int_equal(one.n_steps, 6);
    assert_int_equal(remove_tree(folder), 0);
}

static void test_accumulation(void **state)
{
    struct run_result one, micro;

    (void)state;
    run_job_ok(
        &(struct run_plan){.job = LENET "train: {global_batch: 60}\n", .n_ranks = 1, .n_epochs = 1},
        &one);
    for (int n = 1; n <= 2; n++) {
        if (!is_run(n + 2))
            continue;
        run_job_ok(&(struct run_plan){.job = LENET "train: {global_batch: 60, accumulate: 7}\n",
                                      .n_ranks = n,
                                      .n_epochs = 1},
                   &micro);
        assert_same_losses("accumulate 7", &one, &micro, 1e-5);
    }
}

/* More micro-batches than a rank has samples: those that would be empty on all ranks take no time,
 * and the others are the same ones. */
static void test_micro_batches_without_samples(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [16], batch_norm: %s}\n"
                              "data: {format: digits, samples: 50, validation_samples: 20}\n"
                              "train: {global_batch: 1000000, accumulate: %d, epochs: 3}\n"
                              "optimizer: {lr: 0.05, momentum: 0.9}\nstrategy: {zero: %d}\n";
    struct run_result few, many;

    (void)state;
    for (int zero = 0; zero <= 2; zero++)
        for (int n = 1; n <= 3; n++) {
            const char *norm = n > 1 ? "true" : "false"; /* not of one value */
            char what[48], *small, *large;

            if (!is_run(zero + n))
                continue;
            small = xasprintf(job, norm, (50 + n - 1) / n, zero);
            large = xasprintf(job, norm, 1000000, zero);
            snprintf(what, sizeof what, "%d ranks, zero %d", n, zero);
            run_job_ok(&(struct run_plan){.job = small, .n_ranks = n, .n_epochs = 3}, &few);
            run_job_ok(&(struct run_plan){.job = large, .n_ranks = n, .n_epochs = 3}, &many);
            assert_same_losses(what, &few, &many, 0);
            assert_true(hash_equal(few.replica[0], many.replica[0]));
            free(small);
            free(large);
        }
}

/* Running statistics follow every micro-batch: with a rate of almost zero, one step of three
 * micro-batches leaves the same statistics as three steps. */
static void test_statistics_of_micro_batches(void **state)
{
    static const char micro[] = "model: {arch: mlp, hidden: [16], batch_norm: true}\n" DATA
                                "train: {global_batch: 60, accumulate: 3, max_steps: 1}\n"
                                "optimizer: {lr: 1.0e-30}\n";
    static const char steps[] = "model: {arch: mlp, hidden: [16], batch_norm: true}\n" DATA
                                "train: {global_batch: 20, max_steps: 3}\n"
                                "optimizer: {lr: 1.0e-30}\n";
    struct run_result a, b;

    (void)state;
    run_job_ok(&(struct run_plan){.job = steps, .n_ranks = 1, .n_epochs = 1}, &a);
    run_job_ok(&(struct run_plan){.job = micro, .n_ranks = 1, .n_epochs = 1}, &b);
    assert_int_equal(a.n_steps, 3);
    assert_int_equal(b.n_steps, 1);
    assert_true(relative(a.validation_loss, b.validation_loss) < 1e-6);
}

/* More ranks than samples in a step: ranks without samples take part with weight zero. */
static void test_ranks_without_samples(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [16], batch_norm: true}\n"
                              "data: {format: digits, samples: 20, validation_samples: 3}\n"
                              "train: {global_batch: 3}\noptimizer: {lr: 0.05}\n";
    struct run_result one, four;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 1, .n_epochs = 1}, &one);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 4, .n_epochs = 1}, &four);
    assert_int_equal(one.n_steps, 7);
    assert_same_losses("4 ranks, 3 samples", &one, &four, 1e-4);
    assert_int_equal(four.n_validated, 3);
}

static void test_same_run_twice(void **state)
{
    static const char job[] = MLP "train: {global_batch: 61}\n";
    struct run_result a, b;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &a);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &b);
    assert_true(hash_equal(a.replica[0], b.replica[0]));
}

static void in_fresh_folder(char *dir)
{
    strcpy(dir, "/tmp/dptrain-train-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

/* A run is stopped in the middle of an epoch, saved and resumed.  It ends bit for bit like the run
 * that was not stopped. */
static void resume(const char *job)
{
    char dir[64];

    for (int n = 1; n <= 3; n += 2) {
        struct run_result whole, part, rest;

        in_fresh_folder(dir);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = n, .n_epochs = 2}, &whole);
        run_job_ok(
            &(struct run_plan){
                .job = job, .n_ranks = n, .n_epochs = 2, .run_dir = dir, .stop_at = 6},
            &part);
        assert_int_equal(part.step[0], 7); /* the step under way is finished, by all ranks */
        assert_int_equal(part.epoch[0].epoch.end, EPOCH_STOPPED);
        run_job_ok(
            &(struct run_plan){
                .job = job, .n_ranks = n, .n_epochs = 2, .run_dir = dir, .resume = 1},
            &rest);
        assert_int_equal(rest.step[0], whole.step[0]);
        assert_true(hash_equal(rest.replica[0], whole.replica[0]));
        assert_true(rest.epoch[0].epoch.train_loss == whole.epoch[0].epoch.train_loss);
        assert_true(rest.validation_loss == whole.validation_loss);
        assert_int_equal(remove_tree(dir), 0);
    }
}

static void test_resume(void **state)
{
    (void)state;
    resume(MLP "train: {global_batch: 61, epochs: 2}\nschedule: {name: linear}\n");
    resume(ADAMW "train: {global_batch: 61, epochs: 2}\nschedule: {name: linear}\n");
}

static void test_resume_on_other_ranks(void **state)
{
    static const char job[] = LENET "train: {global_batch: 60, epochs: 1}\n";
    struct run_result whole, part, rest;
    char dir[64];

    (void)state;
    in_fresh_folder(dir);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &whole);
    run_job_ok(
        &(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1, .run_dir = dir, .stop_at = 8},
        &part);
    run_job_ok(
        &(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &rest);
    assert_int_equal(rest.n_steps, whole.n_steps - part.n_steps);
    for (int64_t i = 0; i < rest.n_steps; i++)
        assert_true(relative(whole.step_loss[part.n_steps + i], rest.step_loss[i]) < 1e-5);
    assert_int_equal(remove_tree(dir), 0);
}

/* A rate that follows the number of ranks equals the rate of a schedule that changes at the same
 * step. */
static void test_rate_follows_the_ranks(void **state)
{
    static const char scaled[] = LENET "train: {global_batch: 60, epochs: 1}\n"
                                       "optimizer: {lr: 0.02, scale_lr_by_ranks: true}\n";
    static const char turning[] = LENET "train: {global_batch: 60, epochs: 1}\n"
                                        "optimizer: {lr: 0.06}\nschedule: {name: step, "
                                        "every_steps: 9, gamma: 0.66666666666666667}\n";
    struct run_result want, part, rest;
    char dir[64];

    (void)state;
    in_fresh_folder(dir);
    run_job_ok(&(struct run_plan){.job = turning, .n_ranks = 1, .n_epochs = 1}, &want);
    run_job_ok(
        &(struct run_plan){
            .job = scaled, .n_ranks = 3, .n_epochs = 1, .run_dir = dir, .stop_at = 8},
        &part);
    assert_int_equal(part.n_steps, 9);
    run_job_ok(
        &(struct run_plan){.job = scaled, .n_ranks = 2, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &rest);
    assert_int_equal(part.n_steps + rest.n_steps, want.n_steps);
    for (int64_t i = 0; i < want.n_steps; i++) {
        const double got = i < 9 ? part.step_loss[i] : rest.step_loss[i - 9];

        if (!(relative(want.step_loss[i], got) < 1e-5))
            fail_msg("step %d: loss %.9g, want %.9g", (int)i, got, want.step_loss[i]);
    }
    assert_int_equal(remove_tree(dir), 0);
}

/* The digits of another seed are other data, as many as before: a resumed run refuses them. */
static void test_resume_with_other_data(void **state)
{
    static const char job[] = MLP "train: {global_batch: 61, epochs: 1}\n";
    static const char other[] = MLP "train: {global_batch: 61, epochs: 1, seed: 2}\n";
    static const char fewer[] = MLP "train: {global_batch: 67, epochs: 1}\n";
    struct run_result r;
    char dir[64];

    (void)state;
    in_fresh_folder(dir);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 1, .n_epochs = 1, .run_dir = dir}, &r);
    run_job(
        &(struct run_plan){.job = other, .n_ranks = 1, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &r);
    assert_int_equal(r.rc[0], ERR_CONFIG);
    assert_non_null(strstr(r.err[0].msg, "was trained with other data"));
    assert_non_null(strstr(r.err[0].msg, "/model.safetensors"));
    run_job(
        &(struct run_plan){.job = fewer, .n_ranks = 1, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &r);
    assert_int_equal(r.rc[0], ERR_CONFIG);
    assert_non_null(strstr(r.err[0].msg, "steps an epoch, these data give"));
    assert_int_equal(remove_tree(dir), 0);
}

/* A run that ended before its first checkpoint is resumed from its beginning. */
static void test_resume_without_checkpoint(void **state)
{
    static const char job[] = MLP "train: {global_batch: 61, epochs: 1}\n";
    struct run_result whole, rest;
    char dir[64];

    (void)state;
    in_fresh_folder(dir);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &whole);
    run_job_ok(
        &(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1, .run_dir = dir, .resume = 1},
        &rest);
    assert_int_equal(rest.step[0], whole.step[0]);
    assert_true(hash_equal(rest.replica[0], whole.replica[0]));
    assert_int_equal(remove_tree(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_and_micro_batches),
        cmocka_unit_test(test_dropout_of_tokens),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_micro_batches_without_samples),
        cmocka_unit_test(test_statistics_of_micro_batches),
        cmocka_unit_test(test_ranks_without_samples),
        cmocka_unit_test(test_same_run_twice),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_on_other_ranks),
        cmocka_unit_test(test_resume_with_other_data),
        cmocka_unit_test(test_rate_follows_the_ranks),
        cmocka_unit_test(test_resume_without_checkpoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
