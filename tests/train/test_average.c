/* train.average: the mean of weights gets batch norm's statistics from a pass of the training data,
 * the same on all ranks, and near each other for any number of ranks.  A batch norm of the images
 * themselves shows what the pass has read. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ranks.h"
#include "tensor/half.h"
#include "train/statistics.h"
#include "train/trainer_impl.h"

enum { STEPS_AN_EPOCH = 5, CHANNELS = 2, MOST = 64 };

#define JOB(swa)                                                                                   \
    "model: {arch: layers, layers: [{conv: {channels: 2, kernel: 3}}, batch_norm, relu, flatten, " \
    "{dropout: {p: 0.1}}, {linear: {units: 10}}]}\n"                                               \
    "data: {format: digits, samples: 75, validation_samples: 20}\n"                                \
    "train: {global_batch: 16, epochs: 2, average: {name: swa, " swa "}}\noptimizer: {lr: 0.1}\n"

struct seen {
    float trained[MOST], average[MOST];
    int64_t n;
};

/* As the second epoch begins. */
static void look(void *arg, struct trainer *t, int64_t step)
{
    const size_t n_bytes = sizeof(float) * (size_t)t->layout->n_state_total;
    struct seen *s = arg;

    if (step != STEPS_AN_EPOCH)
        return;
    assert_in_range(t->layout->n_state_total, 1, MOST);
    s->n = t->layout->n_state_total;
    memcpy(s->trained, state_data(t->state, &slot_statistics), n_bytes);
    memcpy(s->average, state_data(t->state, &slot_average_statistics), n_bytes);
}

static void train(const char *job, int n_ranks, struct seen *s)
{
    static struct run_result r;

    *s = (struct seen){.n = 0};
    run_job_ok(
        &(struct run_plan){
            .job = job, .n_ranks = n_ranks, .n_epochs = 2, .on_step = look, .arg = s},
        &r);
    assert_int_equal(r.n_steps, 2 * STEPS_AN_EPOCH);
    assert_true(s->n > 0);
}

static int n_other_statistics(const struct seen *s)
{
    int n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += fabsf(s->average[i] - s->trained[i]) > 1e-3f;
    return n;
}

static void statistics_do_not_depend_on_ranks(void **state)
{
    static struct seen one, more;

    (void)state;
    train(JOB("start: 0, every: 1"), 1, &one);
    for (int n = 2; n <= MOST_RANKS; n += 3) { /* 5 ranks have fewer batches than ranks */
        train(JOB("start: 0, every: 1"), n, &more);
        for (int64_t i = 0; i < one.n; i++)
            assert_float_equal(more.average[i], one.average[i], 1e-5);
    }
    assert_true(n_other_statistics(&one) >= CHANNELS);
}

/* The mean takes the weights after each epoch.  There is a pass after the first epoch, at whose end
 * the mean begins, and none if it begins an epoch later. */
static void the_first_mean_has_a_pass(void **state)
{
    static struct seen s;

    (void)state;
    train(JOB("start: 0"), 1, &s);
    assert_true(n_other_statistics(&s) >= CHANNELS);
    train(JOB("start: 1"), 1, &s);
    assert_int_equal(n_other_statistics(&s), 0);
}

/* ---- the pass itself ---- */

enum { BATCH = 16, PIXELS = 28 * 28, MOST_SAMPLES = 4 * BATCH };

struct pass {
    int64_t n; /* samples that it should read */
    int is_seen;
};

/* The mean of all pixels of the first n samples in the order of the first epoch. */
static double pixel_mean(struct trainer *t, int64_t n)
{
    static float x[MOST_SAMPLES * PIXELS];
    static int32_t label[MOST_SAMPLES];
    void *const to[SAMPLE_MAX_FIELDS] = {x, label};
    const struct sampler_step at = sampler_at(&t->sampler, 0);
    int64_t index[MOST_SAMPLES];
    double sum = 0;
    struct err err;

    assert_int_equal(shape_elements(&t->spec->field[0].shape), PIXELS);
    sampler_list(&t->sampler, &at, (struct span){0, n}, index);
    assert_int_equal(dataset_gather(t->train_set, index, n, to, &err), 0);
    for (int64_t i = 0; i < n * PIXELS; i++)
        sum += (double)x[i];
    return sum / (double)(n * PIXELS);
}

/* The network begins with a batch norm of one channel, so the pass measures the images. */
static void look_at_the_mean(void *arg, struct trainer *t, int64_t step)
{
    const struct segment *mean = &t->layout->state[0];
    const float *average = state_data(t->state, &slot_average_statistics);
    struct pass *p = arg;

    if (step != STEPS_AN_EPOCH)
        return;
    assert_string_equal(mean->name, "0.running_mean");
    assert_float_equal(average[mean->offset], pixel_mean(t, p->n), 1e-5);
    p->is_seen = 1;
}

/* Whole batches alone are read: all of them, or as many as have statistics_samples. */
static void the_pass_reads_what_was_asked_for(void **state)
{
    static const struct {
        const char *samples;
        int64_t want;
    } cases[] = {{"0", 4 * BATCH}, {"20", 2 * BATCH}, {"32", 2 * BATCH}, {"1000", 4 * BATCH}};
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int n = 1; n <= 3; n += 2) {
            struct pass p = {.n = cases[i].want};
            char text[512];

            snprintf(text, sizeof text,
                     "model: {arch: layers, layers: [batch_norm, flatten, {linear: {units: 10}}]}\n"
                     "data: {format: digits, samples: 75, validation_samples: 20}\n"
                     "train: {global_batch: 16, epochs: 2, average: {name: swa, start: 0, "
                     "statistics_samples: %s}}\noptimizer: {lr: 0.1}\n",
                     cases[i].samples);
            run_job_ok(&(struct run_plan){.job = text,
                                          .n_ranks = n,
                                          .n_epochs = 2,
                                          .on_step = look_at_the_mean,
                                          .arg = &p},
                       &r);
            assert_true(p.is_seen);
        }
}

/* ---- in the parameters' place ---- */

static void assert_copies(struct trainer *t)
{
    const float *param = state_data(t->state, &slot_parameters);
    const uint16_t *copy = t->step.buffers->copy;

    for (int64_t i = 0; i < t->layout->n_trained; i++)
        assert_int_equal(copy[i], bf16_from_float(param[i]));
}

static int look_at_the_average(struct trainer *t, void *arg, struct err *err)
{
    const size_t n_bytes = sizeof(float) * (size_t)t->layout->n_trained;

    (void)err;
    assert_memory_equal(state_data(t->state, &slot_parameters), state_data(t->state, &slot_average),
                        n_bytes);
    assert_copies(t);
    ++*(int *)arg;
    return 0;
}

/* Programs in bfloat16 read the averaged weights while these are there, and then the trained ones
 * again. */
static void look_at_both(void *arg, struct trainer *t, int64_t step)
{
    const size_t n_bytes = sizeof(float) * (size_t)t->layout->n_trained;
    const void *param = state_data(t->state, &slot_parameters);
    void *trained = xcalloc(1, n_bytes);
    struct err err;

    memcpy(trained, param, n_bytes);
    if (step > 1) /* the average begins with the first update */
        assert_memory_not_equal(param, state_data(t->state, &slot_average), n_bytes);
    assert_int_equal(trainer_with_average(t, 1, look_at_the_average, arg, &err), 0);
    assert_memory_equal(param, trained, n_bytes);
    assert_copies(t);
    free(trained);
}

static void working_copies_follow(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [12]}\nprecision: bfloat16\n"
        "data: {format: digits, samples: 75, validation_samples: 20}\n"
        "train: {global_batch: 16, average: {name: ema, decay: 0.9}}\noptimizer: {lr: 0.1}\n";
    static struct run_result r;
    int n_looks = 0;

    (void)state;
    run_job_ok(
        &(struct run_plan){
            .job = job, .n_ranks = 1, .n_epochs = 1, .on_step = look_at_both, .arg = &n_looks},
        &r);
    assert_int_equal(n_looks, STEPS_AN_EPOCH);
}

static int validate(struct trainer *t, void *out, struct err *err)
{
    struct report *r = report_new(REPORT_VALIDATED, 1);
    const int rc = trainer_validate(t, 1, r, err);

    *(struct report *)out = *r;
    report_free(r);
    return rc;
}

/* The figures of the averaged weights are those that these have when they are the only ones. */
static void look_at_the_figures(void *arg, struct trainer *t, int64_t step)
{
    const size_t n_bytes = sizeof(float) * (size_t)t->layout->n_trained;
    void *param = state_data(t->state, &slot_parameters), *trained = xcalloc(1, n_bytes);
    struct report seen, alone;
    struct err err;

    if (step == STEPS_AN_EPOCH - 1) {
        memcpy(trained, param, n_bytes);
        assert_int_equal(validate(t, &seen, &err), 0);
        assert_int_equal(trainer_with_average(t, 1, validate, &alone, &err), 0);
        memcpy(param, trained, n_bytes); /* the inner of two averages did not know them */
        assert_true(seen.validated.loss_sum != seen.validated.average_loss_sum);
        assert_int_not_equal(seen.validated.n_correct, seen.validated.average_n_correct);
        assert_int_not_equal(seen.validated.n_top5, seen.validated.average_n_top5);
        assert_true(seen.validated.average_loss_sum == alone.validated.loss_sum);
        assert_int_equal(seen.validated.average_n_correct, alone.validated.n_correct);
        assert_int_equal(seen.validated.average_n_top5, alone.validated.n_top5);
        ++*(int *)arg;
    }
    free(trained);
}

static void figures_are_those_of_the_average(void **state)
{
    static const char job[] =
        "model: {arch: mlp, hidden: [32]}\n"
        "data: {format: digits, samples: 75, validation_samples: 400}\n"
        "train: {global_batch: 16, average: {name: ema, decay: 0.9}}\noptimizer: {lr: 0.3}\n";
    static struct run_result r;
    int n_looks = 0;

    (void)state;
    run_job_ok(&(struct run_plan){.job = job,
                                  .n_ranks = 1,
                                  .n_epochs = 1,
                                  .on_step = look_at_the_figures,
                                  .arg = &n_looks},
               &r);
    assert_int_equal(n_looks, 1);
}

/* ---- steps that are not applied ---- */

enum { HIDDEN = 4, MOST_WEIGHTS = 28 * 28 * HIDDEN + 512 };

/* A weight that is not finite keeps one step from being applied. */
struct spoilt {
    int64_t step; /* the step, from 0 */
    float kept;   /* the weight */
    int64_t end;  /* the step at whose begin the average is seen */
    int64_t n;
    float weights[4 * STEPS_AN_EPOCH][MOST_WEIGHTS]; /* as each step begins */
    float average[MOST_WEIGHTS];
};

static void spoil(void *arg, struct trainer *t, int64_t step)
{
    float *param = state_data(t->state, &slot_parameters);
    struct spoilt *s = arg;

    s->n = t->layout->n_trained;
    assert_in_range(s->n, 1, MOST_WEIGHTS);
    if (step == s->step + 1)
        param[0] = s->kept;
    memcpy(s->weights[step], param, sizeof *param * (size_t)s->n);
    if (step == s->end)
        memcpy(s->average, state_data(t->state, &slot_average), sizeof *param * (size_t)s->n);
    if (step == s->step) {
        s->kept = param[0];
        param[0] = NAN;
    }
}

static void train_spoilt(const char *average, struct spoilt *s)
{
    static struct run_result r;
    char job[512];

    snprintf(job, sizeof job,
             "model: {arch: mlp, hidden: [%d]}\n"
             "data: {format: digits, samples: 75, validation_samples: 20}\n"
             "train: {global_batch: 16, epochs: 4, on_nonfinite: skip, average: {%s}}\n"
             "optimizer: {lr: 0.1}\n",
             HIDDEN, average);
    run_job_ok(
        &(struct run_plan){.job = job, .n_ranks = 1, .n_epochs = 4, .on_step = spoil, .arg = s},
        &r);
    assert_int_equal(r.epoch[0].epoch.n_skipped, 1);
}

/* The mean is of the weights at the ends of epochs 2 and 3, though a step was skipped before. */
static void a_skipped_step_moves_no_epoch(void **state)
{
    static struct spoilt s = {.step = 2, .end = 3 * STEPS_AN_EPOCH};

    (void)state;
    train_spoilt("name: swa, start: 1", &s);
    for (int64_t i = 0; i < s.n; i++)
        assert_float_equal(
            s.average[i], (s.weights[2 * STEPS_AN_EPOCH][i] + s.weights[3 * STEPS_AN_EPOCH][i]) / 2,
            1e-6);
}

/* With nothing before it, the first update is the average, though the first step was skipped. */
static void the_average_begins_with_an_update(void **state)
{
    static struct spoilt s = {.step = 0, .end = 2};

    (void)state;
    train_spoilt("name: ema, decay: 0.9", &s);
    assert_memory_not_equal(s.weights[2], s.weights[1], sizeof(float) * (size_t)s.n);
    assert_memory_equal(s.average, s.weights[2], sizeof(float) * (size_t)s.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(statistics_do_not_depend_on_ranks),
                                       cmocka_unit_test(the_first_mean_has_a_pass),
                                       cmocka_unit_test(the_pass_reads_what_was_asked_for),
                                       cmocka_unit_test(working_copies_follow),
                                       cmocka_unit_test(figures_are_those_of_the_average),
                                       cmocka_unit_test(a_skipped_step_moves_no_epoch),
                                       cmocka_unit_test(the_average_begins_with_an_update)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
