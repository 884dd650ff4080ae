/* train.average: the mean of weights gets batch norm's statistics from a pass of the training data,
 * the same on all ranks, and near each other for any number of ranks. */
#include "../test.h"

#include <math.h>

#include "ranks.h"
#include "train/trainer_impl.h"

enum { STEPS_AN_EPOCH = 5, CHANNELS = 2, MOST = 64 };

static const char job[] =
    "model: {arch: layers, layers: [{conv: {channels: 2, kernel: 3}}, batch_norm, relu, flatten, "
    "{dropout: {p: 0.1}}, {linear: {units: 10}}]}\n"
    "data: {format: digits, samples: 75, validation_samples: 20}\n"
    "train: {global_batch: 16, epochs: 2, average: {name: swa, start: 0, every: 1}}\n"
    "optimizer: {lr: 0.1}\n";

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

static void train(int n_ranks, struct seen *s)
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

static void statistics_do_not_depend_on_ranks(void **state)
{
    static struct seen one, more;
    int n_differ = 0;

    (void)state;
    train(1, &one);
    for (int n = 2; n <= MOST_RANKS; n += 3) { /* 5 ranks have fewer batches than ranks */
        train(n, &more);
        for (int64_t i = 0; i < one.n; i++)
            assert_float_equal(more.average[i], one.average[i], 1e-5);
    }
    for (int64_t i = 0; i < one.n; i++)
        n_differ += fabsf(one.average[i] - one.trained[i]) > 1e-3f;
    assert_true(n_differ >= CHANNELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(statistics_do_not_depend_on_ranks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
