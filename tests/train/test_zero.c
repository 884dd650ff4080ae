/* zero: training with the optimizer's state divided among the ranks gives the same bits as the
 * plain all-reduce, in the memory that it may use.  A wrong copy of a part is found.
 *
 * test_zero_lost.c has the ranks that are lost. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "ranks.h"
#include "saved.h"
#include "state/shards.h"
#include "strategy/cut.h"
#include "text.h"
#include "train/engine.h"
#include "train/trainer_impl.h"
#include "zero_jobs.h"

#define MLP_OF(samples)                                    \
    "model: {arch: mlp, hidden: [23], batch_norm: true}\n" \
    "data: {format: digits, samples: " samples ", validation_samples: 20}\n"
#define MLP  MLP_OF("240")
#define JOB  MLP "train: {global_batch: 24}\n"
#define EMA  MLP "train: {global_batch: 24, average: {name: ema, decay: 0.5}}\n"
#define SWA  MLP "train: {global_batch: 24, average: {name: swa, start: 0, every: 2}}\n"
#define ADAM "optimizer: {name: adamw, lr: 0.01, groups: [{match: fc2.bias, lr_scale: 2}]}\n"

#define ADAMW "optimizer: {name: adamw, lr: 0.01}\n"
#define SGD   "optimizer: {lr: 0.1, momentum: 0.9, weight_decay: 0.01}\n"

static void train_watched(const char *job, int n_ranks, struct dir *d,
                          void (*on_step)(void *arg, struct trainer *t, int64_t step), void *arg)
{
    static struct run_result r;

    make_dir(d);
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = n_ranks,
                                  .n_epochs = 1,
                                  .run_dir = d->path,
                                  .bucket_bytes = SMALL_BUCKET,
                                  .on_step = on_step,
                                  .arg = arg},
               &r);
}

static void train(const char *job, int n_ranks, struct dir *d)
{
    train_watched(job, n_ranks, d, NULL, NULL);
}

/* Both jobs end with the same checkpoint on n ranks. */
static void compare(const char *plain, const char *divided, int n, size_t bucket_bytes)
{
    static struct run_result r;
    struct dir d[2];
    char what[600];

    for (int i = 0; i < 2; i++) {
        make_dir(&d[i]);
        run_job_ok(&(struct run_plan){.job = i ? divided : plain,
                                      .n_ranks = n,
                                      .n_epochs = 1,
                                      .run_dir = d[i].path,
                                      .bucket_bytes = bucket_bytes},
                   &r);
    }
    snprintf(what, sizeof what, "%d ranks, %s", n, divided);
    assert_same_checkpoints(&d[0], &d[1], what);
    remove_tree(d[0].path);
    remove_tree(d[1].path);
}

/* Ranges of any size, buckets smaller than the number of ranks included; also where micro-batches
 * are added up, and where the sums are rounded to bfloat16. */
static void test_the_bits_of_the_all_reduce(void **state)
{
    static const struct {
        const char *plain, *zero;
    } jobs[] = {
        {JOB ADAM, JOB ADAM ZERO},
        {JOB ADAM, JOB ADAM "strategy: {zero: 1, buddy: false}\n"},
        {JOB SGD, JOB SGD ZERO},
        {JOB SGD, JOB SGD ZERO_2},
        {JOB SGD, JOB SGD ZERO_3},
        {JOB ADAM, JOB ADAM "strategy: {zero: 3, buddy: false}\n"},
        {JOB ADAM, JOB ADAM "strategy: {zero: 2, buddy: false}\n"},
        {JOB "optimizer: {lr: 0.1}\n", JOB "optimizer: {lr: 0.1}\n" ZERO},
        {JOB "optimizer: {name: lion, lr: 0.001}\n",
         JOB "optimizer: {name: lion, lr: 0.001}\n" ZERO},
        {MLP "train: {global_batch: 24, accumulate: 3}\n" ADAM,
         MLP "train: {global_batch: 24, accumulate: 3}\n" ADAM ZERO},
        {MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM,
         MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM ZERO},
        {MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM,
         MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM ZERO_2},
        {EMA ADAM, EMA ADAM ZERO},
        {EMA ADAM, EMA ADAM ZERO_3},
        {EMA SGD HALF, EMA SGD HALF ZERO_2},
        {EMA SGD HALF, EMA SGD HALF ZERO_3},
        {JOB ADAM HALF, JOB ADAM HALF ZERO_3},
        {MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM,
         MLP "train: {global_batch: 24, grad_dtype: bfloat16}\nprecision: bfloat16\n" ADAM ZERO_3},
        {SWA "optimizer: {lr: 0.1}\n", SWA "optimizer: {lr: 0.1}\n" ZERO},
        {SWA SGD, SWA SGD "strategy: {zero: 2, buddy: false}\n"},
    };

    (void)state;
    for (size_t j = 0; j < ARRAY_LEN(jobs); j++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            struct dir plain, zero;
            char what[32];

            if (!is_run((int)j + n))
                continue;
            snprintf(what, sizeof what, "job %d, %d ranks", (int)j, n);
            train(jobs[j].plain, n, &plain);
            train(jobs[j].zero, n, &zero);
            assert_same_checkpoints(&plain, &zero, what);
            remove_tree(plain.path);
            remove_tree(zero.path);
        }
}

/* Ranks that do not see rank 0's disk pass their parts in windows of any size; checkpoints inside
 * the epoch, too. */
static void test_parts_are_passed(void **state)
{
    static const char *const zero[] = {ZERO, ZERO_2, ZERO_3};
    static const size_t window[] = {333, 4096, 1 << 20};
    static struct run_result r;
    struct dir plain, got;

    (void)state;
    for (int i = 0; i < 3; i++) {
        char *job = xasprintf("%s%s%s", JOB ADAM, zero[i], "checkpoint: {every_steps: 1}\n");

        train(JOB ADAM, 3, &plain);
        make_dir(&got);
        run_job_ok(&(struct run_plan){.job = job,
                                      .n_ranks = 3,
                                      .n_epochs = 1,
                                      .run_dir = got.path,
                                      .bucket_bytes = SMALL_BUCKET,
                                      .window_bytes = window[i]},
                   &r);
        assert_same_checkpoints(&plain, &got, zero[i]);
        assert_true(r.n_saved > 0);
        assert_string_equal(r.unsaved, "");
        free(job);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

/* The norm is added up in another order, so the gradients may be clipped by another last bit. */
static void test_clipped_for_100_steps(void **state)
{
    static const char job[] = MLP_OF("2400") "train: {global_batch: 24, clip_norm: 0.1}\n" SGD;
    static const char *const zero[] = {ZERO, ZERO_2, ZERO_3};
    struct dir plain, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(zero); i++) {
        char *divided;

        if (!is_run((int)i))
            continue;
        divided = xasprintf("%s%s", job, zero[i]);
        train(job, 3, &plain);
        train(divided, 3, &got);
        assert_close_checkpoints(&plain, &got, 1e-6, zero[i]);
        free(divided);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

/* With zero 2 each micro-batch is summed over the ranks, and then micro-batches are added. */
static void test_micro_batches_of_zero_2(void **state)
{
    static const char job[] = MLP "train: {global_batch: 24, accumulate: 3}\n" SGD;
    struct dir plain, got;

    (void)state;
    for (int n = 1; n <= MOST_RANKS; n++) {
        if (!is_run(n + 1))
            continue;
        train(job, n, &plain);
        train(MLP "train: {global_batch: 24, accumulate: 3}\n" SGD ZERO_2, n, &got);
        if (n == 1)
            assert_same_checkpoints(&plain, &got, "one rank");
        else
            assert_close_checkpoints(&plain, &got, 1e-6, "several ranks");
        remove_tree(plain.path);
        remove_tree(got.path);
    }
}

/* Models that read parameters in several ways: the token embedding at both ends; statistics that
 * are summed over ranks between two layers.  Ranks without samples gather, too. */
static void test_parameters_are_gathered(void **state)
{
#define GPT  "model: {arch: gpt, layers: 3, heads: 2, width: 48, context: 16}\n"
#define TEXT "data: {format: text, path: %s/text}\n"
    static const char *const job[] = {
        GPT TEXT "train: {global_batch: 12, max_steps: 4}\n" ADAMW,
        GPT TEXT "train: {global_batch: 3, max_steps: 4}\n" ADAMW,
        GPT TEXT "train: {global_batch: 12, max_steps: 4}\nprecision: bfloat16\n" ADAMW,
        "model: {arch: mlp, hidden: [110, 110, 110], batch_norm: true}\n# %s\n"
        "data: {format: digits, samples: 8, validation_samples: 2}\n"
        "train: {global_batch: 4}\noptimizer: {lr: 0.1}\n",
    };
    struct dir plain, got, text;

    (void)state;
    write_text(text.path);
    for (size_t i = 0; i < ARRAY_LEN(job); i++) {
        char *whole = xasprintf(job[i], text.path), *divided = xasprintf("%s%s", whole, ZERO_3);

        train(whole, 5, &plain);
        train(divided, 5, &got);
        assert_same_checkpoints(&plain, &got, divided);
        free(whole);
        free(divided);
        remove_tree(plain.path);
        remove_tree(got.path);
    }
    remove_tree(text.path);
}

/* Six layers in six buckets, and norms between them; and the groups that are frozen. */
#define DEEP                                                                    \
    "model: {arch: mlp, hidden: [110, 110, 110, 110, 110], batch_norm: true}\n" \
    "data: {format: digits, samples: 72, validation_samples: 20}\n"             \
    "train: {global_batch: 24, average: {name: ema, decay: 0.5}}\n"
#define FROZEN(match)  "optimizer: {name: adamw, lr: 0.01, groups: [" match "]}\n"
#define GROUP(pattern) "{match: \"" pattern "\", frozen: true}"

/* The first layers; layers in the middle; all but the head; all weights, but not the biases and
 * norms between them; all layers, so that norms are read in turns with them. */
static const char *const frozen[] = {
    DEEP FROZEN(GROUP("fc[123].*")),
    DEEP FROZEN(GROUP("fc[34].*")),
    DEEP FROZEN(GROUP("fc[1-5].*") ", " GROUP("bn*")),
    DEEP FROZEN(GROUP("fc*.weight")),
    DEEP FROZEN(GROUP("fc*")),
};

/* Frozen parameters are divided and gathered, too. */
static void test_frozen_parameters(void **state)
{
    static const char *const more[] = {"", HALF};
    static const char *const zero[] = {ZERO, ZERO_2, ZERO_3, "strategy: {zero: 3, buddy: false}\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(frozen); i++)
        for (int h = 0; h < 2; h++)
            for (int n = 1; n <= MOST_RANKS; n++) {
                char *plain, *divided;

                if (!is_run((int)i + 2 * h + n))
                    continue;
                plain = xasprintf("%s%s", frozen[i], more[h]);
                divided = xasprintf("%s%s", plain, zero[n == 3 ? (int)i % 4 : 2]);
                compare(plain, divided, n, SMALL_BUCKET);
                free(plain);
                free(divided);
            }
}

/* The ranks' memory: each holds its part of all parameters, and a few buckets. */
static void note_frozen_room(void *arg, struct trainer *t, int64_t step)
{
    const struct layout *l = t->layout;
    const size_t slots = 3 * (size_t)l->n_trained; /* two moments and the average */
    const size_t each = sizeof(float) * ((size_t)l->n_total + slots) / 4;
    int64_t most = 0;

    (void)step;
    for (int b = 0; b < l->n_param_buckets; b++)
        most = max_i64(most, cut_bucket(l, b));
    assert_true(l->n_total > 4 * l->n_trained && l->n_param_buckets >= l->n_buckets + 5);
    assert_true(shards_bytes(t->state) <= each + 1024);
    assert_true(t->step.buffers->params.n_bytes <= sizeof(float) * (size_t)(most + most / 2));
    *(int *)arg = 1;
}

static void test_frozen_parameters_are_divided(void **state)
{
    static struct run_result r;
    int is_noted = 0;
    char *job = xasprintf("%s%s", frozen[2], "strategy: {zero: 3, buddy: false}\n");

    (void)state;
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = 4,
                                  .n_epochs = 1,
                                  .bucket_bytes = SMALL_BUCKET,
                                  .on_step = note_frozen_room,
                                  .arg = &is_noted},
               &r);
    assert_true(is_noted);
    free(job);
}

/* Train an epoch on three ranks, and another one on two. */
static void train_twice(const char *first, const char *second, struct dir *d)
{
    static struct run_result r;

    make_dir(d);
    for (int i = 0; i < 2; i++)
        run_job_ok(&(struct run_plan){.job = i ? second : first,
                                      .n_ranks = 3 - i,
                                      .n_epochs = 1,
                                      .run_dir = d->path,
                                      .resume = i,
                                      .bucket_bytes = SMALL_BUCKET},
                   &r);
}

static void test_frozen_parameters_are_resumed(void **state)
{
    char *zero = xasprintf("%s%s", frozen[2], ZERO_3);
    struct dir plain, from, to;

    (void)state;
    train_twice(frozen[2], frozen[2], &plain);
    train_twice(zero, frozen[2], &from);
    train_twice(frozen[2], zero, &to);
    assert_same_checkpoints(&plain, &from, "from zero 3");
    assert_same_checkpoints(&plain, &to, "to zero 3");
    free(zero);
    remove_tree(plain.path);
    remove_tree(from.path);
    remove_tree(to.path);
}

/* Blocks that are computed again gather their parameters again, as often on all ranks, whatever
 * their numbers of samples.  With 5 x 5 pixels the statistics of a norm are small beside three
 * samples, but not beside two. */
static void test_blocks_are_computed_again(void **state)
{
#define AGAIN(batch) "train: {global_batch: " batch ", max_steps: 3, recompute: blocks}\n"
#define SOME(batch)  "train: {global_batch: " batch ", max_steps: 3, recompute: selective}\n"
#define RESIDUALS                                                                                \
    "data: {format: digits, samples: 24, validation_samples: 4}\n# %s\n"                         \
    "optimizer: {lr: 0.1, momentum: 0.9}\nmodel:\n"                                              \
    "  arch: layers\n"                                                                           \
    "  layers: [max_pool: {kernel: 5}, conv: {channels: 8, kernel: 3, padding: 1}, batch_norm, " \
    "relu, " BLOCK BLOCK BLOCK "flatten, linear: {units: 10}]\n"
#define BLOCK                                                                    \
    "{residual: [conv: {channels: 8, kernel: 3, padding: 1}, batch_norm, relu, " \
    "dropout: {p: 0.25}, conv: {channels: 8, kernel: 3, padding: 1}, batch_norm]}, relu, "
    static const struct {
        const char *job;
        size_t bucket_bytes;
    } cases[] = {
        {GPT TEXT ADAMW AGAIN("12"), SMALL_BUCKET},
        {GPT TEXT ADAMW AGAIN("3") HALF, SMALL_BUCKET},
        {GPT TEXT AGAIN("12") FROZEN(GROUP("*.mlp.*") ", " GROUP("*.h.1.*")), SMALL_BUCKET},
        {RESIDUALS AGAIN("8"), 64},
        {GPT TEXT ADAMW SOME("3") HALF, SMALL_BUCKET},
        {RESIDUALS SOME("8"), 64},
    };
    static const char *const zero[] = {ZERO_3, ZERO_3, ZERO, ZERO_3, ZERO_2};
    struct dir text;

    (void)state;
    write_text(text.path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            char *plain, *divided;

            if (!is_run((int)i + n))
                continue;
            plain = xasprintf(cases[i].job, text.path);
            divided = xasprintf("%s%s", plain, zero[((size_t)n + i) % 5]);
            compare(plain, divided, n, cases[i].bucket_bytes);
            free(plain);
            free(divided);
        }
    remove_tree(text.path);
}

/* Stages 2 and 3 add up micro-batches in the same order.  Five samples are two micro-batches, so
 * that with four ranks one has no sample in the second of them. */
static void test_blocks_of_micro_batches(void **state)
{
    static const char job[] = GPT TEXT AGAIN("5, accumulate: 2") FROZEN(GROUP("*.mlp.*")) "%s";
    struct dir text;

    (void)state;
    write_text(text.path);
    for (int n = 1; n <= MOST_RANKS; n++) {
        char *plain, *divided;

        if (!is_run(n))
            continue;
        plain = xasprintf(job, text.path, ZERO_2);
        divided = xasprintf(job, text.path, ZERO_3);
        compare(plain, divided, n, SMALL_BUCKET);
        free(plain);
        free(divided);
    }
    remove_tree(text.path);
}

/* Rank 0 has two batches of the validation set, and the others have one. */
static void test_ranks_gather_as_often(void **state)
{
    static const char job[] = "model: {arch: mlp, hidden: [23]}\n"
                              "data: {format: digits, samples: 24, validation_samples: 193}\n"
                              "train: {global_batch: 24, accumulate: 2}\n" SGD;
    static struct run_result plain, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 3, .n_epochs = 1}, &plain);
    for (int zero = 2; zero <= 3; zero++) {
        char *divided = xasprintf("%sstrategy: {zero: %d}\n", job, zero);

        run_job_ok(&(struct run_plan){.job = divided, .n_ranks = 3, .n_epochs = 2}, &got);
        assert_int_equal(got.n_validated, 193);
        free(divided);
        if (zero == 2)
            plain = got;
    }
    assert_true(got.validation_loss == plain.validation_loss);
    assert_true(got.validation_accuracy == plain.validation_accuracy);
}

/* Rank 0's memory for gradients, in bytes. */
struct room {
    size_t pool, params, copies, all, largest, sums;
};

static void note_room(void *arg, struct trainer *t, int64_t step)
{
    const struct layout *l = t->layout;
    const float *param = state_data(t->state, &slot_parameters);
    struct room *r = arg;
    struct err err;

    (void)step;
    for (int b = 0; param && b < l->n_buckets; b++) /* the step before may still gather them */
        assert_int_equal(reducer_gathered(t->step.reducer, b, &err), 0);
    *r = (struct room){.pool = t->step.buffers->pool.n_bytes,
                       .params = t->step.buffers->params.n_bytes,
                       .copies = t->step.buffers->copies.n_bytes,
                       .all = sizeof(float) * (size_t)l->n_trained,
                       .sums = cut_sums_at(l, l->n_buckets, 4, 0)};
    for (int b = 0; b + 1 < l->n_buckets; b++) {
        const int64_t n = cut_bucket(l, b) + cut_bucket(l, b + 1);

        r->largest = max_i64((int64_t)r->largest, n * (int64_t)sizeof(float));
    }
    assert_true(l->n_buckets >= 8);
    for (int b = 0; b + 1 < l->n_buckets; b++)
        assert_false(buffers_overlap(t->step.buffers, l, b, b + 1));
    for (int i = 0; i + 1 < l->n_params; i++)
        for (int64_t e = l->param[i].offset + l->param[i].length;
             param && e < l->param[i + 1].offset; e++)
            assert_true(param[e] == 0); /* what lay in the gradients' padding before was cleared */
    assert_null(t->step.buffers->grad);
    assert_null(t->step.buffers->sum);
    assert_true(param || !t->step.buffers->copy);
}

/* Buckets lie where others have lain.  All the memory that gradients have is the sums of the shards
 * and two neighbouring buckets. */
static void test_memory_of_buckets_is_used_again(void **state)
{
    static const char plain_job[] = LARGE "train: {global_batch: 24}\n",
                      job[] = LARGE "train: {global_batch: 24}\n" ZERO_2,
                      plain_micro[] = LARGE "train: {global_batch: 24, accumulate: 2}\n",
                      micro[] = LARGE "train: {global_batch: 24, accumulate: 2}\n" ZERO_2;
    struct room room;
    struct dir plain, got;

    (void)state;
    train(plain_job, 4, &plain);
    train_watched(job, 4, &got, note_room, &room);
    assert_same_checkpoints(&plain, &got, "buckets");
    assert_true(room.pool <= room.largest + 64 && room.pool < room.all * 3 / 4);
    assert_true(room.sums <= room.all / 4 + 64);
    remove_tree(got.path);
    train_watched(LARGE "train: {global_batch: 24}\n" ZERO_3, 4, &got, note_room, &room);
    assert_same_checkpoints(&plain, &got, "buckets of parameters");
    assert_true(room.params <= room.largest + 64 && room.params > 64 && room.copies == 0);
    remove_tree(plain.path);
    remove_tree(got.path);
    train(LARGE HALF "train: {global_batch: 24}\n", 4, &plain);
    train_watched(LARGE HALF "train: {global_batch: 24}\n" ZERO_3, 4, &got, note_room, &room);
    assert_same_checkpoints(&plain, &got, "buckets of working copies");
    assert_true(room.copies <= room.largest / 2 + 64 && room.copies > 64);
    remove_tree(plain.path);
    remove_tree(got.path);
    train(plain_micro, 2, &plain);
    train(micro, 2, &got);
    assert_close_checkpoints(&plain, &got, 1e-6, "buckets, micro-batches");
    remove_tree(plain.path);
    remove_tree(got.path);
}

/* A copy that differs from its original is found at the end of the epoch. */
static void spoil(void *arg, struct trainer *t, int64_t step)
{
    struct shard_set *set = &t->state->shards->now;

    (void)arg;
    for (int k = 0; k < t->state->n_slots; k++)
        if (step == 3 && set->data[k][SHARD_COPY])
            ((float *)set->data[k][SHARD_COPY])[0] += 1;
}

static void test_copies_are_proven(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(&(struct run_plan){.job = SHORT ZERO, .n_ranks = 3, .n_epochs = 1, .on_step = spoil},
            &r);
    assert_int_equal(r.rc[0], ERR_NUMERIC);
    assert_non_null(strstr(r.err[0].msg, "rank 0's copy of rank 2's part of the state differs"));
}

/* The fault is of a rank's own sums, which its buddy has got before. */
static void test_a_flipped_sum_is_found(void **state)
{
    static const char *const job[] = {SHORT ZERO, SHORT ZERO_2};
    static struct run_result r;

    (void)state;
    for (int i = 0; i < 2; i++) {
        run_job(
            &(struct run_plan){
                .job = job[i], .n_ranks = 3, .n_epochs = 1, .inject = "flip:rank1@step2:reduced0"},
            &r);
        assert_non_null(strstr(r.injected, "flips after bucket 0 of step 2 is summed"));
        assert_int_equal(r.rc[2], ERR_NUMERIC);
        assert_non_null(
            strstr(r.err[2].msg, "rank 2's copy of rank 1's part of the state differs"));
    }
}

/* The sums of step 0 are wrong on one rank, and a checkpoint inside the epoch is due after step 2:
 * it is not written. */
static void test_a_wrong_state_is_not_saved(void **state)
{
    static struct run_result r;
    struct dir d;
    char path[160];

    (void)state;
    make_dir(&d);
    run_job(&(struct run_plan){.job = SHORT ZERO "checkpoint: {every_steps: 2}\n",
                               .n_ranks = 3,
                               .n_epochs = 1,
                               .run_dir = d.path,
                               .inject = "flip:rank1@step0:reduced0"},
            &r);
    assert_int_equal(r.rc[2], ERR_NUMERIC);
    assert_int_equal(r.step[2], 2);
    snprintf(path, sizeof path, "%s/checkpoints/latest", d.path);
    assert_int_equal(access(path, F_OK), -1);
    remove_tree(d.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bits_of_the_all_reduce),
        cmocka_unit_test(test_clipped_for_100_steps),
        cmocka_unit_test(test_micro_batches_of_zero_2),
        cmocka_unit_test(test_memory_of_buckets_is_used_again),
        cmocka_unit_test(test_parts_are_passed),
        cmocka_unit_test(test_parameters_are_gathered),
        cmocka_unit_test(test_frozen_parameters),
        cmocka_unit_test(test_frozen_parameters_are_divided),
        cmocka_unit_test(test_frozen_parameters_are_resumed),
        cmocka_unit_test(test_blocks_are_computed_again),
        cmocka_unit_test(test_blocks_of_micro_batches),
        cmocka_unit_test(test_ranks_gather_as_often),
        cmocka_unit_test(test_copies_are_proven),
        cmocka_unit_test(test_a_flipped_sum_is_found),
        cmocka_unit_test(test_a_wrong_state_is_not_saved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
