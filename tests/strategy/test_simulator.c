/* Every strategy follows the reference simulator, on 1 to 5 ranks, for 30 steps. */
#include "../test.h"

#include <math.h>

#include "bench.h"

static struct bench_result got;
static struct sim sim;

static double largest(const double *w)
{
    double most = 0;

    for (int64_t i = 0; i < sim_space.len; i++)
        most = fmax(most, fabs(w[i]));
    return most;
}

static void compare(const struct sim_strategy *k, int64_t step)
{
    for (int r = 0; r < sim.n; r++) {
        const double tol = k->tol * largest(sim.w[r]);

        for (int64_t i = 0; i < sim_space.len; i++) {
            const double want = sim.w[r][i], seen = (double)got.w[step][r][i];

            if (!(fabs(seen - want) <= tol))
                fail_msg("%s: step %d, rank %d of %d, element %d: %.9g, want %.9g", k->job,
                         (int)step, r, sim.n, (int)i, seen, want);
        }
    }
}

/* Where state is divided, each shard and its copy hold the momentum of the simulator. */
static void compare_held(const struct sim_strategy *k)
{
    for (int r = 0; r < sim.n; r++)
        for (int h = 0; h < 2; h++)
            for (int64_t i = 0; i < sim_space.len; i++)
                if (got.is_held[r][h][i] && (double)got.momentum[r][h][i] != sim.keep[0][0][i])
                    fail_msg("%s: rank %d of %d, shard %d, element %d: momentum %.9g, want %.9g",
                             k->job, r, sim.n, h, (int)i, (double)got.momentum[r][h][i],
                             sim.keep[0][0][i]);
}

/* A round ends only on ranks that have one under way. */
static void check_rounds(const struct sim_strategy *k, int64_t step)
{
    for (int r = 0; r < sim.n; r++)
        if (sim.has_ended[r] && !sim.is_under_way[r])
            fail_msg("%s: step %d, rank %d of %d: the end of a round that did not begin", k->job,
                     (int)step, r, sim.n);
}

enum { REFUSED_STEP = 3 };

static void spoil(int rank, int64_t step, float *grad)
{
    if (rank == 0 && step == REFUSED_STEP)
        grad[300] = INFINITY;
}

static int is_refused(int64_t step) { return step == REFUSED_STEP; }

static void follow(const struct sim_strategy *k, int n, int refuses)
{
    const struct bench_run run = {.strategy = k->job,
                                  .optimizer = k->optimizer,
                                  .is_uneven = k->is_uneven,
                                  .n_shares = k->n_shares,
                                  .momentum = k->momentum,
                                  .n_ranks = n,
                                  .n_steps = SIM_MAX_STEPS,
                                  .spoil = refuses ? spoil : NULL,
                                  .is_refused = refuses ? is_refused : NULL};

    bench_run(&run, &got);
    for (int r = 0; r < n; r++)
        if (got.rc[r] < 0)
            fail_msg("%s: rank %d of %d: %s", k->job, r, n, got.err[r].msg);
    sim_begin(&sim, n);
    for (int64_t step = 0; step < run.n_steps; step++) {
        sim.has_ended = got.is_changed[step];
        if (k->is_timed)
            check_rounds(k, step);
        if (refuses && is_refused(step))
            sim.step++;
        else
            sim_step(&sim, k);
        compare(k, step);
    }
    compare_held(k);
    if (k->is_timed && n > 1 && sim.n_rounds < 3)
        fail_msg("%s: %d rounds on %d ranks, want at least 3", k->job, sim.n_rounds, n);
}

static void test_strategies_follow_the_simulator(void **state)
{
    (void)state;
    for (int n = 1; n <= SIM_MAX_RANKS; n++) {
        for (int i = 0; i < sim_n_sums; i++)
            follow(&sim_sums[i], n, 0);
        for (int i = 0; i < sim_n_owns; i++)
            follow(&sim_owns[i], n, 0);
    }
}

/* A step that is not applied changes nothing of what a strategy keeps of gradients.  Where updates
 * are own, parameters travel all the same. */
static void test_a_refused_step_leaves_no_trace(void **state)
{
    (void)state;
    for (int i = 0; i < sim_n_sums; i++)
        follow(&sim_sums[i], 3, 1);
}

/* A gradient of one rank that is not finite is seen by all ranks.  Where updates are own, they see
 * it in the control vector (tests/train/test_own.c). */
static void test_infinity_is_seen(void **state)
{
    (void)state;
    for (int i = 0; i < sim_n_sums; i++) {
        bench_run(&(struct bench_run){.strategy = sim_sums[i].job,
                                      .optimizer = sim_sums[i].optimizer,
                                      .n_shares = sim_sums[i].n_shares,
                                      .momentum = sim_sums[i].momentum,
                                      .n_ranks = 3,
                                      .n_steps = REFUSED_STEP + 1,
                                      .spoil = spoil},
                  &got);
        for (int r = 0; r < 3; r++)
            if (isfinite(got.w[REFUSED_STEP][r][300]) && !got.is_kept[REFUSED_STEP][r])
                fail_msg("%s: rank %d does not see it", sim_sums[i].job, r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategies_follow_the_simulator),
        cmocka_unit_test(test_a_refused_step_leaves_no_trace),
        cmocka_unit_test(test_infinity_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
