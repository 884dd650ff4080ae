/* Which steps are looked at: the part that the job asks for, the same ones on all ranks. */
#include "../test.h"

#include "ranks.h"
#include "train/trainer_impl.h"

#define MLP                                                                       \
    "model: {arch: mlp, hidden: [24, 16]}\ndata: {format: digits, samples: 240, " \
    "validation_samples: 20}\n"

static void count_drawn(void *arg, struct trainer *t, int64_t step)
{
    int *n = arg;

    if (step > 0)
        return;
    for (int64_t i = 0; i < 10000; i++)
        *n += inspect_compares_after(t, i);
}

/* The part of the steps that the job asks for, the same ones in each run of this seed. */
static void test_the_part_of_the_steps(void **state)
{
    static const char job[] = MLP "train: {global_batch: 24, max_steps: 1, replica_check: 0.02}\n";
    static struct run_result r;
    int n[2] = {0, 0};

    (void)state;
    for (int i = 0; i < 2; i++)
        run_job_ok(
            &(struct run_plan){
                .job = job, .n_ranks = 2, .n_epochs = 1, .on_step = count_drawn, .arg = &n[i]},
            &r);
    assert_true(n[0] > 150 && n[0] < 250);
    assert_int_equal(n[0], n[1]);
}

enum { DRAWN_STEPS = 100000 };

/* The audited steps of a rank with this seed: yes [DRAWN_STEPS]. */
static int draw_audits(int64_t seed, double part, int rank, uint8_t *yes)
{
    struct job job = {.train = {.seed = seed, .audit = part}};
    struct trainer t = {.job = &job, .rank = rank, .n_ranks = 4};
    int n = 0;

    for (int64_t step = 0; step < DRAWN_STEPS; step++)
        n += yes[step] = (uint8_t)inspect_looks_at(&t, step);
    return n;
}

/* No thousand steps are without an audit: at 0.02 that has the probability 2e-9. */
static void assert_spread(const uint8_t *yes)
{
    int since = 0;

    for (int step = 0; step < DRAWN_STEPS; step++) {
        since = yes[step] ? 0 : since + 1;
        assert_in_range(since, 0, 999);
    }
}

/* One in fifty steps is audited, as far as chance allows: 2000, with a standard deviation of 44.
 * All ranks agree on them.  With another seed they are others, so that some 40 are the same. */
static void test_audits_are_drawn(void **state)
{
    static uint8_t own[DRAWN_STEPS], other[DRAWN_STEPS];

    (void)state;
    for (int64_t seed = 1; seed <= 5; seed++) {
        int n_same = 0;

        assert_in_range(draw_audits(seed, 0.02, 0, own), 2000 - 4 * 44, 2000 + 4 * 44);
        assert_spread(own);
        for (int rank = 1; rank < 4; rank++) {
            draw_audits(seed, 0.02, rank, other);
            assert_memory_equal(own, other, sizeof own);
        }
        draw_audits(seed + 1, 0.02, 0, other);
        for (int step = 0; step < DRAWN_STEPS; step++)
            n_same += own[step] && other[step];
        assert_in_range(n_same, 10, 80);
    }
    assert_int_equal(draw_audits(1, 0, 0, own), 0);
    assert_int_equal(draw_audits(1, 1, 0, own), DRAWN_STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_part_of_the_steps),
        cmocka_unit_test(test_audits_are_drawn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
