/* A number flips on one rank that is summed over the ranks, or was.
 *
 * One of the summed control vector: the comparison after the step names the rank as one whose state
 * is wrong, whether its parameters are or not.  step_hash_sums is wrapped: the number changes
 * before it, so before the update reads the vector.
 *
 * One that a program is about to sum: an audit names the rank.  program_run_stage is wrapped. */
#include "../test.h"

#include "base/util.h"
#include "op/control.h"
#include "ranks.h"
#include "step/step_impl.h"
#include "train/trainer_impl.h"
#include "zero_jobs.h"

enum { FLIP_STEP = 4, FLIP_RANK = 1 };

#define JOB                                                                              \
    "model: {arch: mlp, hidden: [24]}\n"                                                 \
    "data: {format: digits, samples: 240, validation_samples: 20}\n"                     \
    "optimizer: {name: adamw, lr: 0.002}\ntrain: {global_batch: 24, replica_check: 1}\n" \
    "cluster: {on_divergence: heal}\n"

static int place; /* in the control vector; -1: nothing flips */

void __real_step_hash_sums(struct stepper *t);
void __wrap_step_hash_sums(struct stepper *t);
void __wrap_step_hash_sums(struct stepper *t)
{
    if (place >= 0 && coll_rank(t->coll) == FLIP_RANK && t->queued->step == FLIP_STEP)
        t->buffers->control[place] += 1;
    __real_step_hash_sums(t);
}

static void test_a_flipped_sum_is_a_wrong_state(void **state)
{
    static const int places[] = {CONTROL_WEIGHT + 3, CONTROL_LOSS};
    static struct run_result calm, r;
    struct run_plan plan = {.job = JOB, .n_ranks = 3, .n_epochs = 1};

    (void)state;
    place = -1;
    run_job_ok(&plan, &calm);
    assert_int_equal(calm.n_found, 0);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        place = places[i];
        run_job_ok(&plan, &r);
        assert_int_equal(r.n_found, 1);
        assert_int_equal(r.found[0].rank, FLIP_RANK);
        assert_int_equal(r.found[0].step, FLIP_STEP + 1);
        assert_int_equal(r.found[0].what, CORRUPTION_STATE);
        assert_true(r.found[0].is_proven && r.found[0].is_healed);
        assert_int_equal(*r.found[0].tensor != 0, places[i] != CONTROL_LOSS);
        assert_true(hash_equal(r.replica[0], calm.replica[0]));
    }
}

/* Divided state is not healed.  The rank is named all the same, by the votes of the others. */
static void test_divided_state(void **state)
{
    static const char *const jobs[] = {JOB ZERO, JOB ZERO_2, JOB ZERO_3};
    static struct run_result r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        place = CONTROL_LOSS;
        run_job(&(struct run_plan){.job = jobs[i], .n_ranks = 3, .n_epochs = 1}, &r);
        assert_int_equal(r.n_found, 1);
        assert_int_equal(r.found[0].rank, FLIP_RANK);
        assert_int_equal(r.found[0].what, CORRUPTION_STATE);
        assert_true(r.found[0].is_proven && r.found[0].ends);
        assert_int_equal(r.rc[0], ERR_CANCELED);
    }
}

static _Thread_local int is_armed; /* the next sum of this thread's programs gets a wrong number */

int __real_program_run_stage(struct program *p, int i, struct err *err);
int __wrap_program_run_stage(struct program *p, int i, struct err *err);
int __wrap_program_run_stage(struct program *p, int i, struct err *err)
{
    const int rc = __real_program_run_stage(p, i, err);
    const struct stage *next = i + 1 < program_n_stages(p) ? program_stage(p, i + 1) : NULL;

    if (is_armed && next && next->kind == STAGE_SYNC) {
        *(double *)next->sync += 1;
        is_armed = 0;
    }
    return rc;
}

static void arm(void *arg, struct trainer *t, int64_t step)
{
    (void)arg;
    (void)t;
    is_armed |= step == FLIP_STEP;
}

/* Batch norm: all ranks get the same wrong sum, and the one that is at fault
 * is named before an update. */
static void test_a_wrong_number_of_a_program_is_named(void **state)
{
    static const char *const jobs[] = {
        "model: {arch: mlp, hidden: [24], batch_norm: true}\n"
        "data: {format: digits, samples: 240, validation_samples: 20}\n",
        "model: {arch: mlp, hidden: [24], batch_norm: true}\nstrategy: {zero: 2}\n"
        "data: {format: digits, samples: 240, validation_samples: 20}\n",
    };
    static struct run_result calm, r;
    char job[512];

    (void)state;
    place = -1;
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        struct run_plan plan = {.job = job, .n_ranks = 3, .n_epochs = 1};

        snprintf(job, sizeof job,
                 "%soptimizer: {name: adamw, lr: 0.002}\n"
                 "train: {global_batch: 24, audit: 1}\n",
                 jobs[i]);
        run_job_ok(&plan, &calm);
        assert_int_equal(calm.n_found, 0);
        plan.on_step = arm;
        run_job_ok(&plan, &r);
        assert_int_equal(r.n_found, 1);
        assert_int_equal(r.found[0].rank, 0);
        assert_int_equal(r.found[0].step, FLIP_STEP);
        assert_int_equal(r.found[0].what, CORRUPTION_GRADIENT);
        assert_true(r.found[0].is_proven && r.found[0].is_healed);
        assert_true(hash_equal(r.replica[0], calm.replica[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flipped_sum_is_a_wrong_state),
        cmocka_unit_test(test_divided_state),
        cmocka_unit_test(test_a_wrong_number_of_a_program_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
