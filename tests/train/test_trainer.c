/* trainer: what a step leaves alone, which is memory, and the state when something goes wrong; and
 * where training ends. */
#include "../remove_tree.h"
#include "../test.h"
#include "../write_file.h"

#include <math.h>

#include "base/alloc.h"
#include "ranks.h"
#include "train/trainer_impl.h"

#define DATA "data: {format: digits, samples: 640, validation_samples: 50}\n"

static void test_a_step_allocates_nothing(void **state)
{
    static const char *const jobs[] = {
        "model: {arch: lenet}\n" DATA "train: {global_batch: 10}\n",
        "model: {arch: mlp, batch_norm: true, dropout: 0.1}\n" DATA
        "train: {global_batch: 10, accumulate: 3}\noptimizer: {lr: 0.01, momentum: 0.9}\n",
    };
    static struct run_result r;

    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(jobs); j++) {
        run_job_ok(&(struct run_plan){.job = jobs[j], .n_ranks = 1, .n_epochs = 1}, &r);
        assert_int_equal(r.n_steps, 64);
        for (int i = 2; i + 1 < 63; i++) {
            /* A report to the loop is a heap object.  There are a few a second, however long steps
             * take, and one for each row of metrics.csv. */
            const int n_reports = r.reports[i + 1] - r.reports[i];
            const int n_allocs = (int)(r.allocs[i + 1] - r.allocs[i]);

            if (n_allocs != n_reports)
                fail_msg("job %d, step %d: %d allocations, %d reports", (int)j, i, n_allocs,
                         n_reports);
        }
    }
}

static void test_max_steps(void **state)
{
    static const char job[] =
        "model: {arch: mlp}\n" DATA "train: {global_batch: 64, max_steps: 13}\n";
    struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 5}, &r);
    assert_int_equal(r.step[0], 13);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_WHOLE);
    assert_int_equal(r.epoch[1].epoch.end, EPOCH_MAX_STEPS);
    assert_int_equal(r.epoch[1].epoch.n_samples, 3 * 64);
}

/* A limit beyond the job's epochs changes nothing, not even the schedule, which ends with the
 * job. */
static void test_max_steps_beyond_the_epochs(void **state)
{
    static const char *const jobs[] = {
        "model: {arch: mlp}\n" DATA "train: {global_batch: 64, epochs: 1}\n"
        "schedule: {name: cosine}\n",
        "model: {arch: mlp}\n" DATA "train: {global_batch: 64, epochs: 1, max_steps: 1000}\n"
        "schedule: {name: cosine}\n"};
    static struct run_result r[2];

    (void)state;
    for (int i = 0; i < 2; i++)
        run_job_ok(&(struct run_plan){.job = jobs[i], .n_ranks = 1, .n_epochs = 1}, &r[i]);
    assert_int_equal(r[1].step[0], 10);
    assert_true(hash_equal(r[0].replica[0], r[1].replica[0]));
}

/* In backward a rank is shown at the bucket that it fills, not at the one before. */
static void test_the_bucket_that_is_filled_is_shown(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [1200, 1200]}\n" DATA
                              "train: {global_batch: 8, max_steps: 1}\n";
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 1, .n_epochs = 1}, &r);
    assert_int_equal(r.n_shown[0], 2); /* while it is filled, and when it is full */
    assert_int_equal(r.n_shown[1], 2);
}

/* A stop that is requested in an epoch's last step ends a whole epoch. */
static void test_stop_at_the_end(void **state)
{
    static const char job[] = "model: {arch: mlp}\n" DATA "train: {global_batch: 64}\n";
    struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1, .stop_at = 9}, &r);
    assert_int_equal(r.step[0], 10);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_WHOLE);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1, .stop_at = 8}, &r);
    assert_int_equal(r.step[0], 9);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_STOPPED);
}

/* Ranks that hold the step of train.stop_after make no other: they formed again, because one was
 * lost in that step before it had said so. */
static void test_no_step_beyond_the_stop(void **state)
{
    static const char job[] =
        "model: {arch: mlp}\n" DATA "train: {global_batch: 64, stop_after: 3}\n";
    struct run_result r;
    char folder[] = "/tmp/dptrain-trainer-XXXXXX";
    struct run_plan plan = {.job = job, .n_ranks = 2, .n_epochs = 1, .run_dir = folder};

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (plan.resume = 0; plan.resume <= 1; plan.resume++) {
        run_job_ok(&plan, &r);
        assert_int_equal(r.step[0], 3);
        assert_int_equal(r.epoch[0].epoch.end, EPOCH_STOPPED);
        assert_int_equal(r.n_steps, plan.resume ? 0 : 3);
    }
    remove_tree(folder);
}

/* A rate so high that the loss overflows: training stops before the bad step is applied. */
static void test_nonfinite_stops(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [64, 64]}\n" DATA
                              "train: {global_batch: 64, epochs: 5}\noptimizer: {lr: 1.0e+6}\n";
    struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 5}, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_NONFINITE);
    assert_true(r.step[0] >= 1 && r.step[0] < 10);
    if (!strstr(r.note, "fc"))
        fail_msg("the note names no layer: %s", r.note);
}

static void test_nonfinite_skips(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [64, 64]}\n" DATA
        "train: {global_batch: 64, epochs: 2, on_nonfinite: skip}\noptimizer: {lr: 1.0e+6}\n";
    struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 2}, &r);
    assert_int_equal(r.step[0], 20);                  /* the samples are used up all the same */
    assert_false(isnan(r.epoch[0].epoch.train_loss)); /* skipped steps are left out of it */
    for (int e = 0; e < 2; e++) {                     /* each epoch has its own count */
        assert_int_equal(r.epoch[e].epoch.end, EPOCH_WHOLE);
        assert_true(r.epoch[e].epoch.n_skipped >= 1);
        assert_int_equal(r.epoch[e].epoch.n_samples, 64 * (10 - r.epoch[e].epoch.n_skipped));
    }
    assert_non_null(strstr(r.warning, "was not applied"));
}

/* Adam with an eps of 0 makes 0 / 0 of weights without a gradient.  They keep their values,
 * whichever rank updates them, and the user is told; training stops, if it is to, before the next
 * step. */
static void test_updates_that_are_not_finite(void **state)
{
#define ADAM_0 "optimizer: {name: adam, lr: 0.001, eps: 0}\n"
    static const struct {
        const char *more, *told;
        int stops, is_of_input;
    } cases[] = {
        {ADAM_0, "optimizer.eps is 0, want more than 0, such as 1e-8", 1, 1},
        {ADAM_0 "strategy: {zero: 1}\n", "optimizer.eps is 0, want", 1, 1},
        {ADAM_0 "strategy: {zero: 3}\n", "optimizer.eps is 0, want", 1, 1},
        {"optimizer: {name: lamb, eps: 0, lr: 0.001}\n", "optimizer.eps is 0, want", 1, 1},
        {ADAM_0, "optimizer.eps is 0, want", 0, 0},
    };
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char job[512];

        snprintf(job, sizeof job,
                 "model: {arch: mlp, hidden: [64, 64]}\n" DATA
                 "train: {global_batch: 64, on_nonfinite: %s}\n%s",
                 cases[i].stops ? "stop" : "skip", cases[i].more);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &r);
        if (!strstr(r.warning, "the update of step 0 gave ") || !strstr(r.warning, cases[i].told) ||
            !strstr(r.warning, "first fc"))
            fail_msg("case %d: %s", (int)i, r.warning);
        assert_int_equal(r.step[0], cases[i].stops ? 1 : 10);
        assert_int_equal(r.epoch[0].epoch.end, cases[i].stops ? EPOCH_NONFINITE : EPOCH_WHOLE);
        assert_int_equal(r.epoch[0].epoch.is_of_input, cases[i].is_of_input);
        assert_int_equal(strstr(r.note, cases[i].told) != NULL, cases[i].stops);
        assert_true(isfinite(r.validation_loss));
        assert_true(hash_equal(r.replica[0], r.replica[1]));
    }
}

/* One value per channel has no variance, so nothing could be learned.  A last batch of one sample
 * only leaves the running statistics alone. */
static void test_batch_norm_of_one_value(void **state)
{
#define NORMED "model: {arch: mlp, hidden: [8], batch_norm: true"
#define FEW    "}\ndata: {format: digits, samples: %d, validation_samples: 10}\ntrain: {%s}\n"
    static const struct {
        const char *model, *train;
        int n_ranks, n_samples, refused;
    } cases[] = {
        {NORMED FEW, "global_batch: 1", 1, 8, 1},
        {NORMED FEW, "global_batch: 4, accumulate: 4", 1, 8, 1},
        {NORMED ", sync_batch_norm: false" FEW, "global_batch: 2", 2, 8, 1},
        {NORMED FEW, "global_batch: 2", 2, 8, 0}, /* the ranks have two values together */
        {NORMED FEW, "global_batch: 4", 1, 9, 0}, /* the last batch has one sample */
        {"model: {arch: layers, layers: [{conv: {channels: 2, kernel: 3}}, batch_norm, flatten, "
         "{linear: {units: 10}}]" FEW,
         "global_batch: 1", 1, 8, 0},
    };
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char job[512];

        snprintf(job, sizeof job, cases[i].model, cases[i].n_samples, cases[i].train);
        run_job(&(struct run_plan){.job = job, .n_ranks = cases[i].n_ranks, .n_epochs = 1}, &r);
        assert_int_equal(r.rc[0], cases[i].refused ? ERR_CONFIG : 0);
        if (cases[i].refused && !strstr(r.err[0].msg, "batch norm has 1 value per channel"))
            fail_msg("case %d: %s", (int)i, r.err[0].msg);
    }
}

static void note_row(void *arg, struct trainer *t, int64_t step)
{
    const struct ckpt_state *at = &t->state->at;

    if (step == 5)
        *(double *)arg = control_mean_loss(at->row_loss, at->row_weight);
}

/* A row of metrics.csv has the rate by which its last step was taken.  The linear schedule takes
 * step s of 20, counted from 0, by 1 - s / 20 of the rate; a warm-up of 4 steps takes it by (s + 1)
 * / 4. */
static void test_rows_have_their_steps_rate(void **state)
{
    static const struct {
        const char *schedule;
        double rate[10]; /* of the steps 1, 3, ... */
    } cases[] = {
        {"linear", {0.095, 0.085, 0.075, 0.065, 0.055, 0.045, 0.035, 0.025, 0.015, 0.005}},
        {"constant, warmup_steps: 4", {0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}},
    };
    static struct run_result r;

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        char job[512];

        snprintf(job, sizeof job,
                 "model: {arch: mlp}\n" DATA "train: {global_batch: 64, epochs: 2}\n"
                 "optimizer: {lr: 0.1}\nreport: {every_steps: 2}\nschedule: {name: %s}\n",
                 cases[c].schedule);
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 2}, &r);
        assert_int_equal(r.n_rows, 11);
        for (int i = 0; i < r.n_rows; i++) {
            const int row = i < 5 ? i : i - 1; /* an epoch begins with the last row again */

            assert_int_equal(r.row[i].step, 2 * row + 2);
            assert_int_equal(r.row[i].epoch, row < 5 ? 1 : 2);
            assert_float_equal(r.row[i].learning_rate, cases[c].rate[row], 1e-6);
        }
    }
}

/* A network that holds each class for as likely as any other, and learns nothing: the mean loss is
 * ln 10 in each figure, however targets are weighted or ignored.  It answers with one class, which
 * a tenth of the samples have: more than there are in a step. */
static void test_figures_of_no_knowledge(void **state)
{
    static const char *const jobs[] = {"", ", label_smoothing: 0.1",
                                       ", class_weights: [1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5]",
                                       ", ignore_index: 3", ", accumulate: 3"};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(jobs); i++) {
        double row = 0;
        char job[512];
        struct run_result r;

        snprintf(job, sizeof job,
                 "model: {arch: mlp, init: {name: normal, std: 1.0e-6}}\n" DATA
                 "train: {global_batch: 10%s}\noptimizer: {lr: 1.0e-30}\n",
                 jobs[i / 2]);
        run_job_ok(&(struct run_plan){.job = job,
                                      .n_ranks = i % 2 ? 3 : 1,
                                      .n_epochs = 1,
                                      .on_step = note_row,
                                      .arg = &row},
                   &r);
        assert_float_equal(r.epoch[0].epoch.train_loss, log(10), 1e-4);
        assert_float_equal(row, log(10), 1e-4);
        assert_float_equal(r.validation_loss, log(10), 1e-4);
        assert_in_range(llrint(640 * r.epoch[0].epoch.train_accuracy), 30, 130);
    }
}

/* All ranks' metrics decide which model is the best. */
static void test_the_best_of_all_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (int by_loss = 0; by_loss < 2; by_loss++) {
            char job[256];
            struct run_result r;

            snprintf(job, sizeof job,
                     "model: {arch: mlp}\n" DATA "train: {global_batch: 64, best: {metric: %s}}\n",
                     by_loss ? "validation_loss" : "validation_accuracy");
            run_job_ok(&(struct run_plan){.job = job, .n_ranks = n, .n_epochs = 1}, &r);
            assert_float_equal(r.best_score, by_loss ? r.validation_loss : -r.validation_accuracy,
                               1e-9);
        }
}

static void note_norm(void *arg, struct trainer *t, int64_t step)
{
    if (step == 1)
        *(double *)arg = t->state->at.grad_norm;
}

/* Only the ratios of class weights matter, to the gradient of the mean loss, too; and targets that
 * are ignored weigh nothing. */
static void test_norm_of_the_mean_loss(void **state)
{
    static const char *const jobs[] = {"", ", class_weights: [4, 4, 4, 4, 4, 4, 4, 4, 4, 4]",
                                       ", ignore_index: 3",
                                       ", class_weights: [4, 4, 4, 0, 4, 4, 4, 4, 4, 4]"};
    double norm[ARRAY_LEN(jobs)] = {0};
    struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        char job[256];

        snprintf(job, sizeof job,
                 "model: {arch: mlp}\n" DATA "train: {global_batch: 64, max_steps: 2%s}\n",
                 jobs[i]);
        run_job_ok(
            &(struct run_plan){
                .job = job, .n_ranks = 2, .n_epochs = 1, .on_step = note_norm, .arg = &norm[i]},
            &r);
    }
    assert_true(norm[0] > 0 && fabs(norm[1] / norm[0] - 1) < 1e-5);
    assert_true(fabs(norm[2] / norm[0] - 1) > 1e-3 && fabs(norm[3] / norm[2] - 1) < 1e-5);
}

/* Losses are so large, though finite, that two steps' sums leave the range.  The epoch's sum
 * then is infinite, and does not become negative. */
static void test_loss_sum_is_cut(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [128, 128, 128], init: {name: normal, std: 100}}\n" DATA
        "train: {global_batch: 64}\noptimizer: {lr: 1.0e-30}\n";
    struct run_result r;

    (void)state;
    for (int n = 1; n <= 3; n += 2) {
        run_job_ok(&(struct run_plan){.job = job, .n_ranks = n, .n_epochs = 1}, &r);
        assert_int_equal(r.epoch[0].epoch.end, EPOCH_WHOLE);
        assert_int_equal(r.epoch[0].epoch.n_skipped, 0);
        assert_int_equal(r.epoch[0].epoch.n_samples, 640);
        assert_true(isinf(r.epoch[0].epoch.train_loss));
    }
}

/* A rank that fails in its n-th collective: the others hold the last applied step. */
static void test_lost_rank(void **state)
{
    static const char job[] = "model: {arch: lenet}\n" DATA "train: {global_batch: 64}\n";
    struct run_result r;

    (void)state;
    run_job(
        &(struct run_plan){
            .job = job, .n_ranks = 3, .n_epochs = 1, .fault = {.at_ticket = 8, .fail = ERR_DEVICE}},
        &r);
    for (int i = 0; i < 3; i++)
        assert_true(r.rc[i] < 0);
    assert_int_equal(r.rc[2], ERR_DEVICE);
    assert_int_equal(r.rc[0], ERR_PEER);
    assert_int_equal(r.step[0], r.step[1]);
    assert_true(r.step[0] >= 1 && r.step[0] < 8);
    for (int i = 0; i < 3; i++)
        assert_string_equal(collective_state(&r.ring[i].newest[r.ring[i].n_newest - 1]), "failed");
}

static void test_initial_weights(void **state)
{
    static const char normal[] = "model: {arch: lenet, init: {name: normal, std: 0.01}}\n" DATA
                                 "train: {global_batch: 64, max_steps: 1}\n";
    static const char other_seed[] = "model: {arch: lenet, init: {name: normal, std: 0.01}}\n" DATA
                                     "train: {global_batch: 64, max_steps: 1, seed: 2}\n";
    struct run_result a, b;

    (void)state;
    run_job_ok(&(struct run_plan){.job = normal, .n_ranks = 1, .n_epochs = 1}, &a);
    assert_true(fabs(a.step_loss[0] - log(10)) < 1e-3); /* near-zero logits */
    run_job_ok(&(struct run_plan){.job = other_seed, .n_ranks = 1, .n_epochs = 1}, &b);
    assert_false(hash_equal(a.replica[0], b.replica[0]));
}

/* Each rank has statistics of its own samples; the replicas are still equal at an epoch's end. */
static void test_batch_norm_not_synchronised(void **state)
{
    static const char job[] = "model: {arch: mlp, batch_norm: true, sync_batch_norm: false}\n" DATA
                              "train: {global_batch: 65}\noptimizer: {lr: 0.05}\n";
    struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 2}, &r);
    assert_true(r.epoch[1].epoch.train_loss < r.epoch[0].epoch.train_loss);
    assert_int_equal(r.n_validated, 50);
}

/* The record has the sharing of the state; then in each step two sums of statistics in forward, two
 * in backward, and one bucket. */
static void test_the_ring_has_all_collectives(void **state)
{
    static const char job[] = "model: {arch: mlp, batch_norm: true, hidden: [16, 16]}\n" DATA
                              "train: {global_batch: 64}\n";
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &r);
    for (int k = 0; k < 2; k++) {
        const struct collective *c = r.ring[k].newest;

        assert_int_equal(r.ring[k].n_newest, 1 + 10 * 5);
        assert_int_equal(r.ring[k].head.n_handed, 1 + 10 * 5);
        assert_int_equal(r.ring[k].head.n_ended, 1 + 10 * 5);
        assert_int_equal(c[0].bucket, RING_STATE);
        for (int i = 1; i < r.ring[k].n_newest; i++) {
            int is_bucket = i % 5 == 0;

            assert_int_equal(c[i].number, i + 1);
            assert_int_equal(c[i].step, (i - 1) / 5);
            assert_int_equal(c[i].bucket, is_bucket ? 0 : RING_SYNC);
            assert_int_equal(c[i].n_bytes, r.ring[1 - k].newest[i].n_bytes);
            assert_true(c[i].n_bytes > 0);
            assert_string_equal(collective_state(&c[i]), "done");
            assert_true(c[i].handed_ns <= c[i].began_ns && c[i].began_ns <= c[i].ended_ns);
        }
        assert_int_equal(r.ring[k].n_timed, 10);
        assert_true(r.ring[k].busy_ns > 0 && r.ring[k].busy_ns <= r.ring[k].wall_ns);
    }
}

struct seen_memory {
    int64_t validation_batch;
    size_t arena_bytes;
};

static void look_at_memory(void *arg, struct trainer *t, int64_t step)
{
    (void)step;
    *(struct seen_memory *)arg = (struct seen_memory){programs_validation_batch(t->step.programs),
                                                      t->step.buffers->arena_bytes};
}

/* The larger one sample's values are, the fewer samples are validated at once.  Here one has 4000
 * channels of 28x28 pixels, 12,544,000 bytes, of which 256 MiB hold 21; 64 samples would need
 * 800 MB. */
static void test_validation_is_bounded(void **state)
{
    static const struct {
        const char *job;
        int64_t batch;
        size_t most_bytes;
    } cases[] = {
        {"model: {arch: mlp}\n" DATA "train: {global_batch: 1, max_steps: 1}\n", 64, 4 << 20},
        {"model: {arch: layers, layers: [{conv: {channels: 4000, kernel: 1}}, global_avg_pool, "
         "flatten, {linear: {units: 10}}]}\n" DATA "train: {global_batch: 1, max_steps: 1}\n",
         21, 300 << 20},
    };
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct seen_memory seen = {0};

        run_job_ok(&(struct run_plan){.job = cases[i].job,
                                      .n_ranks = 1,
                                      .n_epochs = 1,
                                      .on_step = look_at_memory,
                                      .arg = &seen},
                   &r);
        assert_int_equal(seen.validation_batch, cases[i].batch);
        assert_in_range(seen.arena_bytes, 1, cases[i].most_bytes);
    }
}

/* ---- files of a step ---- */

/* Ranks form again after a fault in their fourth step, which rank 1 counts and rank 0 does not.  In
 * step 1 the ranks gather what is due then, so that the fault comes earlier. */
static void lose_a_step(int64_t due, const char *run_dir, struct run_result *r)
{
    static struct run_lives lives;
    char *job = xasprintf("model: {arch: mlp, hidden: [16]}\n" DATA "train: {global_batch: 64}\n"
                          "report: {gradients: %lld, operators: %lld}\n",
                          (long long)due, (long long)due);

    lives = (struct run_lives){.n_back = -1};
    run_job(&(struct run_plan){.job = job,
                               .n_ranks = 3,
                               .n_epochs = 1,
                               .run_dir = run_dir,
                               .fault = {.channel = COLL_BULK, .at_ticket = 6, .fail = ERR_DEVICE},
                               .lives = &lives},
            r);
    for (int k = 0; k < 3; k++)
        assert_int_equal(lives.step[k], due == 1 ? 2 : 4);
    free(job);
}

static int count_of(const char *part, const char *text)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* Rank 0 writes the files of report.gradients and report.operators.  If the ranks go on from a
 * state in which that step is done, and rank 0 did not end it, rank 0 says so; but not if there is
 * a file already. */
static void test_a_step_that_is_not_written(void **state)
{
    static struct run_result r;
    char folder[] = "/tmp/dptrain-trainer-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    lose_a_step(4, folder, &r);
    assert_int_equal(count_of("could not be written: rank 0 did not end that step", r.warning), 2);
    assert_non_null(strstr(r.warning, "the gradients of step 4 could not be written: "));
    assert_non_null(strstr(r.warning, "the tensors of step 4 could not be written: "));
    write_file(folder, "operators-00000004.jsonl", "");
    lose_a_step(4, folder, &r);
    assert_int_equal(count_of("did not end that step", r.warning), 1);
    assert_non_null(strstr(r.warning, "the gradients of step 4 could not be written: "));
    for (int64_t due = 1; due <= 5; due += 4) { /* rank 0 ended it; it is still to come */
        lose_a_step(due, folder, &r);
        assert_null(strstr(r.warning, "could not be written"));
    }
    lose_a_step(4, NULL, &r); /* nothing is ever written */
    assert_null(strstr(r.warning, "could not be written"));
    remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_max_steps),
        cmocka_unit_test(test_stop_at_the_end),
        cmocka_unit_test(test_no_step_beyond_the_stop),
        cmocka_unit_test(test_nonfinite_stops),
        cmocka_unit_test(test_nonfinite_skips),
        cmocka_unit_test(test_batch_norm_of_one_value),
        cmocka_unit_test(test_updates_that_are_not_finite),
        cmocka_unit_test(test_rows_have_their_steps_rate),
        cmocka_unit_test(test_figures_of_no_knowledge),
        cmocka_unit_test(test_the_best_of_all_ranks),
        cmocka_unit_test(test_norm_of_the_mean_loss),
        cmocka_unit_test(test_loss_sum_is_cut),
        cmocka_unit_test(test_lost_rank),
        cmocka_unit_test(test_batch_norm_not_synchronised),
        cmocka_unit_test(test_initial_weights),
        cmocka_unit_test(test_the_ring_has_all_collectives),
        cmocka_unit_test(test_validation_is_bounded),
        cmocka_unit_test(test_max_steps_beyond_the_epochs),
        cmocka_unit_test(test_the_bucket_that_is_filled_is_shown),
        cmocka_unit_test(test_a_step_that_is_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
