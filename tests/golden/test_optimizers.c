/* 200 updates of each optimizer end where torch.optim's do (make_optimizers.py): with settings of
 * single parameters, frozen ones, and clipping.  Momentum follows a rate that changes.
 *
 *     test_optimizers OPTIMIZERS.JSON */
#include "../test.h"

#include <math.h>

#include "base/alloc.h"
#include "golden_main.h"
#include "golden_update.h"
#include "optim/schedule.h"

static const double tolerance = 1e-5; /* of a tensor's largest element */

static const char *const order[] = {"fc1.weight", "fc1.bias", "bn1.weight", "bn1.bias",
                                    "fc2.weight", "fc2.bias", NULL};

static json_t *golden;

static void open_run(struct golden_update *t, const char *optimizer, double clip_norm)
{
    char *yaml = xasprintf("model: {arch: mlp, hidden: [5], batch_norm: true}\n"
                           "data: {format: digits}\n"
                           "train: {clip_norm: %.17g}\noptimizer: %s\n",
                           clip_norm, optimizer);

    golden_update_open(t, yaml, order, NULL);
    free(yaml);
}

static void test_run(void **state)
{
    json_t *run = *state;
    struct golden_update t;

    open_run(&t, json_string_value(json_object_get(run, "optimizer")),
             json_number_value(json_object_get(run, "clip_norm")));
    for (int k = 0; k < json_integer_value(json_object_get(golden, "steps")); k++)
        golden_update_step(&t, k, optimizer_lr(&t.job->optimizer));
    golden_update_get(&t, &slot_parameters);
    golden_update_compare(&t, json_object_get(run, "parameters"), tolerance, 1);
    golden_update_close(&t);
}

/* Keras' form of momentum, in which velocities contain the rate, with Horovod's momentum
 * correction:  v = momentum * new rate / old rate * v - new rate * g;  w = w + v. */
static void keras_step(const struct golden_update *t, double momentum, double rate, double old_rate,
                       double *v, double *w)
{
    for (int64_t i = 0; i < t->layout->n_trained; i++) {
        v[i] = momentum * rate / old_rate * v[i] - rate * (double)t->grad[i];
        w[i] += v[i];
    }
}

static void test_momentum_is_corrected(void **state)
{
    static const char text[] = "{momentum: 0.9, lr: 0.01, scale_lr_by_ranks: true}\n"
                               "schedule: {warmup_epochs: 2, warmup_from_one_rank: true}";
    const struct schedule_span span = {20, 60, 4, NULL};
    double *v, *w, old_rate = 1;
    struct golden_update t;

    (void)state;
    open_run(&t, text, 0);
    v = xcalloc((size_t)t.layout->n_total, sizeof *v);
    w = xcalloc((size_t)t.layout->n_total, sizeof *w);
    for (int64_t i = 0; i < t.layout->n_total; i++)
        w[i] = (double)t.values[i];
    for (int k = 0; k < 60; k++) {
        const double rate = schedule_rate(&t.job->schedule, &t.job->optimizer, &span, k);

        golden_update_step(&t, k, rate);
        keras_step(&t, 0.9, rate, old_rate, v, w);
        old_rate = rate;
    }
    golden_update_get(&t, &slot_parameters);
    for (int64_t i = 0; i < t.layout->n_total; i++)
        if (!(fabs((double)t.values[i] - w[i]) <= tolerance))
            fail_msg("element %d: %g, want %g", (int)i, (double)t.values[i], w[i]);
    free(v);
    free(w);
    golden_update_close(&t);
}

int main(int argc, char **argv)
{
    return golden_main(argc, argv, "optimizers", &golden, test_run,
                       (struct CMUnitTest)cmocka_unit_test(test_momentum_is_corrected));
}
