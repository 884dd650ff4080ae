/* The loop's decisions: which steps are the best, and when to stop.  A decision is made once for a
 * step, and the slot holds all of it. */
#include "../test.h"

#include <math.h>

#include "state/loop.h"

static const struct slot_def *const more[] = {&slot_loop};

enum { STEPS_PER_EPOCH = 10 };

struct desk {
    struct backend *b;
    struct layout layout;
    struct job *job;
    struct state *s;
    struct loop loop;
};

static void open_desk(struct desk *d, const char *train)
{
    char text[256];
    struct err err;

    *d = (struct desk){0};
    snprintf(text, sizeof text, "model: {arch: mlp}\ndata: {format: digits}\ntrain: {%s}\n", train);
    assert_int_equal(job_parse(text, strlen(text), "test", NULL, &d->job, &err), 0);
    assert_int_equal(backend_open_cpu(1, &d->b, &err), 0);
    assert_int_equal(state_new(d->b, &d->layout, more, 1, &d->s, &err), 0);
    assert_int_equal(state_init(d->s, d->job, &err), 0);
    d->s->at.steps_per_epoch = STEPS_PER_EPOCH;
    assert_int_equal(loop_read(&d->loop, d->s, &err), 0);
}

static void close_desk(struct desk *d)
{
    state_free(d->s);
    backend_close(d->b);
    job_free(d->job);
}

/* A validation at this step; what follows is read from the slot, as after a resume. */
static void validate(struct desk *d, int64_t step, double loss, double accuracy)
{
    const struct validated v = {.loss = loss,
                                .accuracy = accuracy,
                                .top5 = 1 - accuracy,
                                .average_loss = -loss,
                                .average_accuracy = -accuracy,
                                .average_top5 = accuracy - 1};
    struct err err;

    d->s->at.step = step;
    assert_int_equal(loop_decide(&d->loop, d->job, d->s, &v, &err), 0);
    d->loop = (struct loop){{0}};
    assert_int_equal(loop_read(&d->loop, d->s, &err), 0);
}

static void assert_best(const struct desk *d, int n, int64_t a, int64_t b)
{
    const int64_t want[] = {a, b};
    int64_t seen[CKPT_MOST_BEST];

    assert_int_equal(loop_best(d->loop.v, seen), n);
    for (int i = 0; i < n; i++)
        assert_int_equal(seen[i], want[i]);
}

static void test_best_loss(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, "best: {metric: validation_loss, keep: 2}");
    assert_true(loop_is_wanted(d.job));
    assert_best(&d, 0, 0, 0);
    validate(&d, 10, NAN, 0);
    assert_best(&d, 0, 0, 0);
    assert_false(loop_is_best(&d.loop, 10) || loop_keeps(&d.loop, 10));
    validate(&d, 20, 2, 0);
    assert_best(&d, 1, 20, 0);
    validate(&d, 30, 2, 0); /* the earlier one is the better one */
    assert_best(&d, 2, 20, 30);
    assert_true(loop_keeps(&d.loop, 30) && !loop_is_best(&d.loop, 30));
    validate(&d, 40, 1, 0);
    assert_best(&d, 2, 40, 20);
    assert_true(loop_is_best(&d.loop, 40) && !loop_keeps(&d.loop, 30));
    validate(&d, 50, 1.5, 0);
    assert_best(&d, 2, 40, 50);
    validate(&d, 60, 1.5, 0);
    assert_best(&d, 2, 40, 50);
    close_desk(&d);
}

static void test_best_accuracy(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, "best: {metric: validation_accuracy}");
    validate(&d, 10, 1, 0.5);
    validate(&d, 20, 0.5, 0.25);
    assert_best(&d, 1, 10, 0);
    validate(&d, 30, 9, 0.75);
    assert_best(&d, 1, 30, 0);
    close_desk(&d);
    open_desk(&d, "best: {metric: validation_top5}"); /* the lower the accuracy (validate) */
    validate(&d, 10, 1, 0.5);
    validate(&d, 20, 2, 0.25);
    assert_best(&d, 1, 20, 0);
    close_desk(&d);
}

/* Where the trained weights get worse, the averaged ones get better (validate). */
static void test_best_average(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, "average: {name: ema}, best: {metric: average_validation_loss}");
    validate(&d, 10, 1, 0.5);
    validate(&d, 20, 2, 0.5);
    assert_best(&d, 1, 20, 0);
    close_desk(&d);
    open_desk(&d, "average: {name: ema}, best: {metric: average_validation_accuracy}");
    validate(&d, 10, 1, 0.5);
    validate(&d, 20, 1, 0.75);
    assert_best(&d, 1, 10, 0);
    close_desk(&d);
    open_desk(&d, "average: {name: ema}, best: {metric: average_validation_top5}");
    validate(&d, 10, 1, 0.5);
    validate(&d, 20, 1, 0.75);
    assert_best(&d, 1, 20, 0);
    close_desk(&d);
}

static void test_early_stop(void **state)
{
    /* 1.7 is better than 2 by more than 0.25; 1.5 and 1.45 are no better than 1.7. */
    static const struct {
        double loss;
        int stops;
    } steps[] = {{2, 0}, {1.8, 0}, {1.7, 0}, {1.5, 0}, {1.45, 1}, {1, 0}, {NAN, 0}, {NAN, 1}};
    struct desk d;

    (void)state;
    open_desk(&d, "early_stop: {patience: 2, min_delta: 0.25}");
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        validate(&d, 10 * (int64_t)(i + 1), steps[i].loss, 0);
        if (loop_stops(&d.loop, d.job) != steps[i].stops)
            fail_msg("after validation %d", (int)i);
    }
    close_desk(&d);
}

/* The same step is validated again, because a rank was lost meanwhile. */
static void test_once_for_a_step(void **state)
{
    struct desk d;
    struct loop before;

    (void)state;
    open_desk(&d, "best: {metric: validation_loss}, early_stop: {patience: 2}");
    validate(&d, 10, 1, 0);
    validate(&d, 20, 2, 0);
    before = d.loop;
    validate(&d, 20, 0.5, 0);
    assert_memory_equal(&d.loop, &before, sizeof before);
    assert_false(loop_stops(&d.loop, d.job));
    validate(&d, 30, 2, 0);
    assert_true(loop_stops(&d.loop, d.job));
    close_desk(&d);
}

/* The losses of epochs 1 to 4, and of the last steps of a job that was cut and resumed twice:
 * inside epoch 2, and at the end of epoch 3 where only each second epoch is validated. */
static void validate_cut(struct desk *d, int every, int is_cut)
{
    for (int epoch = 1; epoch <= 4; epoch++) {
        if (is_cut && epoch == 2)
            validate(d, 15, 0.125, 0);
        if (epoch % every == 0 || (is_cut && epoch == 3))
            validate(d, epoch * STEPS_PER_EPOCH, epoch == 3 ? 8 : 5 - epoch, 0);
    }
}

/* A validation that only a shorter job has: it may be the best, but it neither stops the job nor
 * lowers the rate, so these decisions are those of a job that was never cut. */
static void test_end_of_a_shorter_job(void **state)
{
    static const char *const by[] = {"early_stop: {patience: 2}",
                                     "epochs: 9}\nschedule: {name: plateau, patience: 1"};

    (void)state;
    for (int every = 1; every <= 2; every++)
        for (size_t i = 0; i < ARRAY_LEN(by); i++) {
            struct desk whole, cut;
            char keys[128];

            snprintf(keys, sizeof keys, "validate_every: %d, best: {metric: validation_loss}, %s",
                     every, by[i]);
            open_desk(&whole, keys);
            open_desk(&cut, keys);
            validate_cut(&whole, every, 0);
            validate_cut(&cut, every, 1);
            assert_memory_equal(cut.loop.v + LOOP_STOP_BEST, whole.loop.v + LOOP_STOP_BEST,
                                sizeof(double) * (LOOP_N_BEST - LOOP_STOP_BEST));
            assert_memory_equal(cut.loop.v + LOOP_SCHEDULE, whole.loop.v + LOOP_SCHEDULE,
                                sizeof(double) * SCHEDULE_STATE);
            assert_best(&whole, 1, 40, 0);
            assert_best(&cut, 1, 15, 0);
            close_desk(&whole);
            close_desk(&cut);
        }
}

/* A damaged or forged checkpoint may hold such numbers. */
static void test_numbers_of_no_run(void **state)
{
    static const struct {
        int at;
        double value;
        const char *why;
    } bad[] = {{LOOP_N_BEST, 1e6, "lists 1e+06 best steps, want 0 to 16"},
               {LOOP_N_BEST, CKPT_MOST_BEST + 1, "lists 17 best steps"},
               {LOOP_N_BEST, -1, "lists -1 best steps"},
               {LOOP_N_BEST, 0.5, "lists 0.5 best steps"},
               {LOOP_N_BEST, NAN, "nan best steps"},
               {LOOP_BEST, 1e300, "has 1e+300 among its best steps"},
               {LOOP_BEST, -10, "has -10 among its best steps"},
               {LOOP_STEP, INFINITY, "has inf as number 0"},
               {LOOP_STOP_BAD, -1, "has -1 as number 2"},
               {LOOP_SCHEDULE + SCHEDULE_STATE - 1, INFINITY, "has inf as number 7"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct desk d;
        struct err err;

        open_desk(&d, "best: {metric: validation_loss}");
        validate(&d, 10, 1, 0);
        ((double *)state_data(d.s, &slot_loop))[bad[i].at] = bad[i].value;
        assert_int_equal(loop_read(&d.loop, d.s, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.msg, bad[i].why));
        close_desk(&d);
    }
}

/* The checkpoint lists more of the best than the job keeps now. */
static void test_fewer_are_kept(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, "best: {metric: validation_loss, keep: 16}");
    for (int64_t step = 10; step <= 160; step += 10)
        validate(&d, step, 1, 0);
    d.job->train.best.keep = 2;
    validate(&d, 170, 2, 0);
    validate(&d, 180, 0.5, 0);
    assert_best(&d, 2, 180, 10);
    close_desk(&d);
}

static void test_nothing_to_decide(void **state)
{
    struct desk d;

    (void)state;
    open_desk(&d, "epochs: 1");
    assert_false(loop_is_wanted(d.job));
    assert_false(loop_stops(&d.loop, d.job) || loop_keeps(&d.loop, 0) || loop_is_best(&d.loop, 0));
    close_desk(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_loss),
        cmocka_unit_test(test_best_accuracy),
        cmocka_unit_test(test_best_average),
        cmocka_unit_test(test_early_stop),
        cmocka_unit_test(test_once_for_a_step),
        cmocka_unit_test(test_numbers_of_no_run),
        cmocka_unit_test(test_fewer_are_kept),
        cmocka_unit_test(test_nothing_to_decide),
        cmocka_unit_test(test_end_of_a_shorter_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
