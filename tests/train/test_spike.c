/* train.on_spike: which losses are judged, and by which of those before them. */
#include "../test.h"

#include <math.h>

#include "base/util.h"
#include "train/trainer_impl.h"

enum { N_STEPS = 400, WINDOW = 128, LEAST = 32 };

static int n_told;
static struct spike_told told;

static void take_report(void *arg, struct report *r)
{
    (void)arg;
    assert_int_equal(r->kind, REPORT_SPIKE);
    told = r->spike;
    n_told++;
    report_free(r);
}

/* A step of one target with this loss ends; returns the loss as the ranks sum it. */
static double end_step(struct trainer *t, double loss)
{
    struct step_result s = {.applied = 1};

    s.control.loss = (int64_t)(loss * 0x1p24);
    s.control.weight = INT64_C(1) << 30;
    assert_int_equal(spike_judge(t, &s), 0);
    t->state->at.step++;
    return (double)s.control.loss * 0x1p-24;
}

/* Mean and deviation of the losses [from, to). */
static void find_course(const double *loss, int from, int to, double *mean, double *deviation)
{
    double sum = 0, squares = 0;

    for (int i = from; i < to; i++)
        sum += loss[i];
    *mean = sum / (to - from);
    for (int i = from; i < to; i++)
        squares += (loss[i] - *mean) * (loss[i] - *mean);
    *deviation = sqrt(squares / (to - from));
}

static void begin(struct trainer *t, struct job *job, struct state *state)
{
    *job = (struct job){.train = {.on_spike = SPIKE_WARN, .spike_deviations = 6}};
    *state = (struct state){.at = {.step = 0}};
    *t = (struct trainer){.job = job, .state = state, .hooks = {.report = take_report}};
    n_told = 0;
}

/* A loss is judged by the 128 before it, once there are 32: it is a spike from six deviations above
 * their mean on. */
static void test_the_window(void **state)
{
    static double loss[N_STEPS];
    struct job job;
    struct state held;
    struct trainer t;
    double mean, deviation;

    (void)state;
    begin(&t, &job, &held);
    for (int i = 0; i < N_STEPS; i++) {
        const int from = i > WINDOW ? i - WINDOW : 0;

        if (i < LEAST) {
            assert_true(isinf(spike_limit(&t)));
        } else {
            find_course(loss, from, i, &mean, &deviation);
            assert_true(fabs(spike_limit(&t) - (mean + 6 * deviation)) < 1e-9);
        }
        loss[i] = end_step(&t, 2 + sin(i) + (i < 100 ? 1 : 0)); /* which later losses forget */
    }
    assert_int_equal(n_told, 0);
    find_course(loss, N_STEPS - WINDOW, N_STEPS, &mean, &deviation);
    end_step(&t, mean + 5.9 * deviation);
    assert_int_equal(n_told, 0);
    begin(&t, &job, &held);
    for (int i = 0; i < N_STEPS; i++)
        end_step(&t, loss[i]);
    end_step(&t, mean + 6.1 * deviation);
    assert_int_equal(n_told, 1);
    assert_int_equal(told.step, N_STEPS);
    assert_true(fabs(told.mean - mean) < 1e-9 && fabs(told.deviation - deviation) < 1e-9);
}

/* A loss that jumps to another place and stays there is told of a few times, and then no more. */
static void test_a_loss_that_stays_is_no_spike(void **state)
{
    struct job job;
    struct state held;
    struct trainer t;
    int n_early;

    (void)state;
    begin(&t, &job, &held);
    for (int i = 0; i < N_STEPS; i++)
        end_step(&t, 2 + 0.1 * sin(i));
    for (int i = 0; i < WINDOW; i++)
        end_step(&t, 5);
    n_early = n_told;
    assert_in_range(n_early, 1, WINDOW / 2);
    for (int i = 0; i < N_STEPS; i++)
        end_step(&t, 5);
    assert_int_equal(n_told, n_early);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_window),
        cmocka_unit_test(test_a_loss_that_stays_is_no_spike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
