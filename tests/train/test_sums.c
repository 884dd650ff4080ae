/* A bit of the summed control vector flips on one rank: the comparison after the step names it, as
 * one whose state is wrong, whether its parameters are or not.
 *
 * step_hash_sums is wrapped: the bit flips before it, so before the update reads the vector. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flipped_sum_is_a_wrong_state),
        cmocka_unit_test(test_divided_state),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
