/* The learning rate of every schedule, against its formula, at the steps where it changes its
 * course. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "optim/schedule.h"
#include "optim/sgd.h"

enum { MOST_POINTS = 6 };

static const struct sgd_options sgd = {.lr = 0.5};

struct point {
    int64_t step;
    double rate;
};

static const struct schedule_case {
    const char *name;
    const struct schedule *kind;
    struct schedule_options common;
    union {
        struct schedule_step_options step;
        struct schedule_anneal_options anneal;
        struct schedule_multistep_options multistep;
        struct schedule_onecycle_options onecycle;
        struct schedule_range_options range;
        struct schedule_wsd_options wsd;
    } own;
    struct schedule_span span;
    int is_scaled; /* optimizer.scale_lr_by_ranks */
    struct point want[MOST_POINTS];
} cases[] = {
    {"constant",
     &schedule_constant,
     {0},
     {{0}},
     {10, 100, 4},
     .want = {{0, 0.5}, {99, 0.5}, {1000, 0.5}}},
    {"warm-up",
     &schedule_constant,
     {.warmup_steps = 4, .warmup_start = 0.2},
     {{0}},
     {10, 100, 1},
     .want = {{0, 0.2}, {1, 0.3}, {2, 0.4}, {3, 0.5}, {4, 0.5}}},
    {"step by steps",
     &schedule_step,
     {0},
     {.step = {.every_steps = 3, .gamma = 0.1}},
     {10, 100, 1},
     .want = {{0, 0.5}, {2, 0.5}, {3, 0.05}, {5, 0.05}, {6, 0.005}}},
    {"step by epochs",
     &schedule_step,
     {0},
     {.step = {.every_epochs = 2, .gamma = 0.5}},
     {10, 100, 1},
     .want = {{19, 0.5}, {20, 0.25}, {40, 0.125}}},
    {"cosine",
     &schedule_cosine,
     {0},
     {.anneal = {.min_lr = 0.1}},
     {10, 100, 1},
     .want = {{0, 0.5}, {25, 0.3 + 0.2 * 0.70710678118654752}, {50, 0.3}, {100, 0.1}, {200, 0.1}}},
    {"linear after a warm-up",
     &schedule_linear,
     {.warmup_steps = 20},
     {.anneal = {.min_lr = 0.1}},
     {10, 100, 1},
     .want = {{19, 0.5}, {20, 0.5}, {60, 0.3}, {100, 0.1}}},
    {"laid out over fewer steps than the job's",
     &schedule_linear,
     {.total_steps = 50, .warmup_steps = 10},
     {.anneal = {.min_lr = 0.1}},
     {10, 100, 1},
     .want = {{9, 0.5}, {10, 0.5}, {30, 0.3}, {50, 0.1}, {99, 0.1}}},
    {"laid out over more steps than the job's",
     &schedule_wsd,
     {.total_steps = 400},
     {.wsd = {.decay = 0.5}},
     {10, 100, 1},
     .want = {{99, 0.5}, {200, 0.5}, {300, 0.25}, {400, 0}}},
    {"a warm-up along a logarithm",
     &schedule_constant,
     {.warmup_steps = 3, .warmup_shape = SCHEDULE_WARMUP_LOG, .warmup_start = 0.5},
     {{0}},
     {10, 100, 1},
     .want = {{0, 0.375}, {1, 0.25 + 0.25 * 0.79248125036057808}, {2, 0.5}, {3, 0.5}}},
    /* DeepSpeed 0.19.8's WarmupDecayLR(total_num_steps=4, warmup_num_steps=4, max_lr=0.5), linear,
     * and WarmupCosineLR(total_num_steps=4, warmup_num_steps=4); more in
     * deepspeed/test_deepspeed.c. */
    {"DeepSpeed's decay without steps",
     &schedule_linear,
     {.total_steps = 4, .warmup_steps = 4, .timing = SCHEDULE_TIMING_DEEPSPEED},
     {{0}},
     {10, 100, 1},
     .want = {{0, 0}, {1, 0}, {2, 0.125}, {4, 0.375}, {5, 0}, {6, 0}}},
    {"DeepSpeed's cosine without steps",
     &schedule_cosine,
     {.total_steps = 4, .warmup_steps = 4, .timing = SCHEDULE_TIMING_DEEPSPEED},
     {.anneal = {.min_lr = 0.005}},
     {10, 100, 1},
     .want = {{0, 0}, {2, 0.125}, {4, 0.375}, {5, 0.005}, {6, 0.005}}},
    {"a warm-up longer than the job",
     &schedule_cosine,
     {.warmup_steps = 200},
     {{0}},
     {10, 100, 1},
     .want = {{0, 0.0025}, {99, 0.25}}},
    {"by one rank",
     &schedule_constant,
     {0},
     {{0}},
     {10, 100, 1},
     .is_scaled = 1,
     .want = {{0, 0.5}}},
    {"by three ranks: the peak, and so the warm-up, but not the least rate",
     &schedule_linear,
     {.warmup_steps = 2, .warmup_start = 0.5},
     {.anneal = {.min_lr = 0.1}},
     {10, 12, 3},
     .is_scaled = 1,
     .want = {{0, 1.125}, {1, 1.5}, {2, 1.5}, {7, 0.8}, {12, 0.1}}},
    /* these are PyTorch's numbers: MultiStepLR, ExponentialLR, OneCycleLR */
    {"multistep by epochs",
     &schedule_multistep,
     {0},
     {.multistep = {.epochs = {3, {3, 5, 8}}, .gamma = 0.5}},
     {10, 200, 1},
     .want = {{0, 0.5}, {29, 0.5}, {30, 0.25}, {50, 0.125}, {80, 0.0625}, {199, 0.0625}}},
    {"multistep by steps",
     &schedule_multistep,
     {0},
     {.multistep = {.steps = {3, {3, 5, 8}}, .gamma = 0.5}},
     {10, 20, 1},
     .want = {{0, 0.5}, {2, 0.5}, {3, 0.25}, {5, 0.125}, {8, 0.0625}, {19, 0.0625}}},
    {"exponential",
     &schedule_exponential,
     {0},
     {.step = {.gamma = 0.9}},
     {10, 200, 1},
     .want = {{9, 0.5}, {10, 0.45}, {20, 0.405}, {50, 0.295245}, {199, 0.06754258588364964}}},
    {"exponential by steps",
     &schedule_exponential,
     {0},
     {.step = {.every_steps = 2, .gamma = 0.9}},
     {10, 200, 1},
     .want = {{1, 0.5}, {2, 0.45}, {4, 0.405}, {17, 0.215233605}, {39, 0.06754258588364964}}},
    {"onecycle",
     &schedule_onecycle,
     {0},
     {.onecycle = {0.3, 25, 1e4, SCHEDULE_COSINE, 0}},
     {10, 100, 1},
     .want = {{0, 0.02},
              {10, 0.14758197423205038},
              {29, 0.5},
              {30, 0.49974826764226216},
              {60, 0.2946400451427644},
              {99, 2e-06}}},
    {"onecycle along lines",
     &schedule_onecycle,
     {0},
     {.onecycle = {0.25, 10, 100, SCHEDULE_LINEAR, 0}},
     {10, 100, 1},
     .want = {{0, 0.05}, {10, 0.2375}, {29, 0.4667}, {30, 0.46004}, {60, 0.26024}, {99, 0.0005}}},
    {"onecycle in three phases, after a warm-up",
     &schedule_onecycle,
     {.warmup_steps = 7, .warmup_start = 0.1},
     {.onecycle = {0.37, 10, 100, SCHEDULE_COSINE, 1}},
     {10, 107, 1},
     .want =
         {{7, 0.05}, {27, 0.3140708399750593}, {43, 0.5}, {67, 0.1625}, {79, 0.05}, {106, 0.0005}}},
    {"onecycle of one step",
     &schedule_onecycle,
     {0},
     {.onecycle = {0.3, 25, 1e4, SCHEDULE_COSINE, 0}},
     {1, 1, 1},
     .want = {{0, 2e-06}, {5, 2e-06}}},
    {"range",
     &schedule_range,
     {0},
     {.range = {1e-6, 10}},
     {10, 8, 1},
     .want = {{0, 1e-6}, {1, 1e-5}, {4, 1e-2}, {7, 10}, {8, 10}}},
    {"range of one step",
     &schedule_range,
     {0},
     {.range = {1e-6, 10}},
     {1, 1, 1},
     .want = {{0, 1e-6}, {1, 10}}},
    {"wsd along a line",
     &schedule_wsd,
     {.warmup_steps = 10},
     {.wsd = {0.2, SCHEDULE_LINEAR, 0.1}},
     {10, 110, 1},
     .want = {{10, 0.5}, {90, 0.5}, {91, 0.48}, {100, 0.3}, {105, 0.2}, {110, 0.1}}},
    {"wsd along a cosine",
     &schedule_wsd,
     {0},
     {.wsd = {0.4, SCHEDULE_COSINE, 0.1}},
     {10, 100, 1},
     .want = {{60, 0.5}, {70, 0.3 + 0.2 * 0.70710678118654752}, {80, 0.3}, {100, 0.1}}},
    {"wsd along a root",
     &schedule_wsd,
     {0},
     {.wsd = {0.36, SCHEDULE_SQRT, 0}},
     {10, 100, 1},
     .want = {{64, 0.5},
              {65, 0.5 * 5 / 6},
              {68, 0.5 * 4 / 6},
              {80, 0.5 / 3},
              {91, 0.5 * (1 - 0.8660254037844386)}}},
};

static void rates(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct schedule_case *c = &cases[i];
        const struct optimizer_options optimizer = {
            .kind = &optimizer_sgd, .options = &sgd, .scale_lr_by_ranks = c->is_scaled};
        struct schedule_options schedule = c->common;

        schedule.kind = c->kind;
        schedule.options = &c->own;

        for (int k = 0; k < MOST_POINTS && c->want[k].rate > 0; k++) {
            const double got = schedule_rate(&schedule, &optimizer, &c->span, c->want[k].step);

            if (!(fabs(got - c->want[k].rate) <= 1e-12))
                fail_msg("%s: %.17g at step %d, want %.17g", c->name, got, (int)c->want[k].step,
                         c->want[k].rate);
        }
    }
}

/* The rates that torch.optim.lr_scheduler.ReduceLROnPlateau gives after each of these losses; the
 * accuracy is 3 minus the loss.  The first rate is 0.5. */
static const double metrics[] = {2.3, 2.0, 1.9, 1.9, 1.95, NAN, 1.89995, 1.5, 1.6,
                                 1.6, 1.6, 1.6, 1.6, 1.6,  1.6, 1.4999,  1.6, 1.6};

static const struct {
    struct schedule_plateau_options own;
    double want[ARRAY_LEN(metrics)];
} plateaus[] = {
    {{GOAL_LOSS, .factor = 0.1, .threshold = 1e-4, .patience = 2},
     {0.5, 0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005, 0.0005, 0.0005,
      0.0005, 5e-5, 5e-5}},
    {{GOAL_LOSS, .factor = 0.5, .threshold = 0.01, .min_lr = 0.1, .patience = 1, .cooldown = 2},
     {0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.1, 0.1, 0.1,
      0.1, 0.1}},
    {{GOAL_ACCURACY, .factor = 0.5, .threshold = 0.1, .patience = 1, .cooldown = 1},
     {0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625,
      0.0625, 0.03125, 0.03125, 0.03125}},
};

static void plateau(void **state)
{
    const struct optimizer_options optimizer = {.kind = &optimizer_sgd, .options = &sgd};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(plateaus); i++) {
        const struct schedule_options schedule = {.kind = &schedule_plateau,
                                                  .options = &plateaus[i].own};
        double numbers[SCHEDULE_STATE] = {0};
        const struct schedule_span span = {10, 100, 1, numbers};

        schedule_plateau.begin(numbers);
        assert_true(schedule_rate(&schedule, &optimizer, &span, 0) == 0.5);
        for (size_t k = 0; k < ARRAY_LEN(metrics); k++) {
            const struct validated v = {.loss = metrics[k], .accuracy = 3 - metrics[k]};
            double got;

            schedule_plateau.validated(&plateaus[i].own, &v, numbers);
            got = schedule_rate(&schedule, &optimizer, &span, 10);
            if (!(fabs(got - plateaus[i].want[k]) <= 1e-12))
                fail_msg("case %d: %.17g after metric %d, want %.17g", (int)i, got, (int)k,
                         plateaus[i].want[k]);
        }
    }
}

/* A drop of less than 1e-8 is left out. */
static void plateau_ends(void **state)
{
    const struct schedule_plateau_options own = {GOAL_LOSS, .factor = 0.1};
    const struct schedule_options schedule = {.kind = &schedule_plateau, .options = &own};
    const struct optimizer_options optimizer = {.kind = &optimizer_sgd, .options = &sgd};
    double numbers[SCHEDULE_STATE] = {0};
    const struct schedule_span span = {10, 100, 1, numbers};

    (void)state;
    schedule_plateau.begin(numbers);
    for (int k = 0; k < 20; k++)
        schedule_plateau.validated(&own, &(struct validated){1, 0}, numbers);
    assert_true(fabs(schedule_rate(&schedule, &optimizer, &span, 10) - 5e-9) < 1e-15);
}

/* Horovod's LearningRateWarmupCallback: the user sets lr = base * size, and each batch has
 *   lr * (1 / size * (epoch * (size - 1) / warmup_epochs + 1)), epoch = e + batch / steps + 1 /
 * steps
 */
static void gradual_warmup(void **state)
{
    const struct sgd_options slow = {.lr = 0.1};
    const struct optimizer_options optimizer = {
        .kind = &optimizer_sgd, .options = &slow, .scale_lr_by_ranks = 1};
    const struct schedule_options schedule = {
        .kind = &schedule_constant, .warmup_epochs = 5, .warmup_from_one_rank = 1};

    (void)state;
    for (int size = 1; size <= 5; size++) {
        const struct schedule_span span = {7, 70, size, NULL};

        for (int step = 0; step < 70; step++) {
            const double epoch = step / 7 + step % 7 / 7.0 + 1 / 7.0;
            const double factor = epoch <= 5 ? (epoch * (size - 1) / 5 + 1) / size : 1;
            const double want = 0.1 * size * factor;
            const double got = schedule_rate(&schedule, &optimizer, &span, step);

            if (!(fabs(got - want) <= 1e-12))
                fail_msg("%d ranks: %.17g at step %d, want %.17g", size, got, step, want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates),
        cmocka_unit_test(gradual_warmup),
        cmocka_unit_test(plateau),
        cmocka_unit_test(plateau_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
