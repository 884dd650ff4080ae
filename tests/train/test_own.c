/* own: strategies in which each rank updates by its own gradients.  They are equal to the
 * all-reduce where their definitions say so; replicas are equal, and the means of all ranks', when
 * the ranks meet; checkpoints hold the mean, and training goes on from them as if it had not ended.
 */
#include "../test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "../remove_tree.h"
#include "base/clock.h"
#include "op/control.h"
#include "ranks.h"
#include "strategy/decentralized.h"
#include "strategy/exchange.h"
#include "strategy/local_sgd.h"
#include "strategy/low_precision_decentralized.h"
#include "tensor/half.h"
#include "train/trainer_impl.h"

#define DATA        "data: {format: digits, samples: 480, validation_samples: 40}\n"
#define MLP         "model: {arch: mlp, hidden: [24]}\n" DATA
#define TWO_BUCKETS "model: {arch: mlp, hidden: [1200, 1200]}\n" DATA
#define JOB         MLP "train: {global_batch: 48}\noptimizer: {lr: 0.1}\n"
#define MOMENTUM    MLP "train: {global_batch: 48}\noptimizer: {lr: 0.05, momentum: 0.9}\n"

enum { N_STEPS = 10, N_RANKS = 3 };

static double relative(double a, double b) { return fabs(a - b) / fmax(fabs(a), 1e-30); }

static void want_losses(const struct run_result *want, const struct run_result *got, int n,
                        double most)
{
    assert_int_equal(got->n_steps, want->n_steps);
    for (int i = 0; i < n; i++)
        if (!(relative(want->step_loss[i], got->step_loss[i]) <= most))
            fail_msg("step %d: loss %.9g, want %.9g", i, got->step_loss[i], want->step_loss[i]);
}

static void run(const char *job, int n_ranks, struct run_result *r)
{
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = n_ranks, .n_epochs = 2}, r);
}

/* ---- local_sgd ---- */

/* An update of plain SGD is linear in its gradient, so the mean of all ranks' updates is the update
 * by the mean of their gradients; with uneven shares and ranks without samples, too: the last batch
 * has 2 samples. */
static void test_every_step_is_the_all_reduce(void **state)
{
    static struct run_result want, got;
    static const char uneven[] =
        "model: {arch: mlp, hidden: [24]}\ntrain: {global_batch: 46}\noptimizer: {lr: 0.1}\n"
        "data: {format: digits, samples: 462, validation_samples: 40}\n";
    char job[512];

    (void)state;
    run(uneven, N_RANKS, &want);
    snprintf(job, sizeof job, "%sstrategy: {name: local_sgd, every: 1}\n", uneven);
    run(job, N_RANKS, &got);
    assert_false(want.epoch[0].epoch.is_mean);
    assert_true(got.epoch[0].epoch.is_mean);
    want_losses(&want, &got, (int)want.n_steps, 1e-4);
    assert_true(relative(want.validation_loss, got.validation_loss) < 1e-4);
}

/* Steps of all-reduce that come first have its bits. */
static void test_post_local(void **state)
{
    static struct run_result want, got;

    (void)state;
    run(MOMENTUM, N_RANKS, &want);
    run(MOMENTUM "strategy: {name: local_sgd, every: 4, start: 7}\n", N_RANKS, &got);
    want_losses(&want, &got, 8, 0);
    assert_true(want.step_loss[9] != got.step_loss[9]);
    run(MOMENTUM "strategy: {name: local_sgd, every: 4, start: 1000}\n", N_RANKS, &got);
    assert_true(hash_equal(want.replica[0], got.replica[0]));
}

/* One rank has no one to exchange with. */
static void test_one_rank_trains_as_ever(void **state)
{
    static struct run_result want, got;

    (void)state;
    run(MOMENTUM, 1, &want);
    run(MOMENTUM "strategy: {name: local_sgd, every: 2}\n", 1, &got);
    assert_true(hash_equal(want.replica[0], got.replica[0]));
}

/* A step of length 1 without momentum ends at the mean. */
static void test_outer_steps(void **state)
{
    static struct run_result want, got;

    (void)state;
    run(JOB "strategy: {name: local_sgd, every: 4}\n", N_RANKS, &want);
    run(JOB "strategy: {name: local_sgd, every: 4, outer: nesterov, outer_lr: 1, "
            "outer_momentum: 0}\n",
        N_RANKS, &got);
    want_losses(&want, &got, (int)want.n_steps, 1e-4);
    run(JOB "strategy: {name: local_sgd, every: 4, outer: nesterov}\n", N_RANKS, &got);
    assert_true(relative(want.step_loss[5], got.step_loss[5]) > 1e-3);
    assert_true(got.step_loss[2 * N_STEPS - 1] < got.step_loss[0]);
}

/* In each step the record of collectives gets the sum of the control vector and, when due, the sum
 * of the parameters; at the epoch's end, that the ranks meet. */
static void test_the_record(void **state)
{
    static struct run_result r;
    const int64_t control = CONTROL_LEN * (int64_t)sizeof(float);

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB "strategy: {name: local_sgd, every: 4}\n",
                                  .n_ranks = 2,
                                  .n_epochs = 1},
               &r);
    for (int k = 0; k < 2; k++) {
        const struct collective *c = r.ring[k].newest;
        int at = 1;

        assert_int_equal(r.ring[k].n_newest, 1 + N_STEPS + N_STEPS / 4 + 1);
        for (int64_t step = 0; step < N_STEPS; step++) {
            assert_int_equal(c[at].step, step);
            assert_int_equal(c[at++].n_bytes, control);
            if (step % 4 == 3) {
                assert_int_equal(c[at].step, step);
                assert_true(c[at].n_bytes > control);
                assert_int_equal(c[at++].phase, PHASE_UPDATE);
            }
        }
        assert_int_equal(c[at].bucket, RING_STATE);
        assert_int_equal(c[at].step, N_STEPS);
    }
}

/* ---- decentralized ---- */

/* Within as many rounds as there are ranks in a half, each rank of one half meets each of the other
 * once.  Of an odd number one rank rests in each round. */
static void test_peers(void **state)
{
    enum { MOST = 9 };

    (void)state;
    for (int n = 2; n <= MOST; n++) {
        const int half = (n + 1) / 2;
        int n_met[MOST][MOST] = {{0}};

        for (int64_t round = 0; round < half; round++) {
            int n_resting = 0;

            for (int r = 0; r < n; r++) {
                const int peer = decentralized_peer(n, r, round);

                n_resting += peer == DECENTRALIZED_RESTS;
                assert_int_equal(peer, decentralized_peer(n, r, round + half));
                if (peer == DECENTRALIZED_RESTS)
                    continue;
                assert_int_equal(decentralized_peer(n, peer, round), r);
                n_met[r][peer]++;
            }
            assert_int_equal(n_resting, n % 2);
        }
        for (int r = 0; r < half; r++)
            for (int p = half; p < n; p++)
                assert_int_equal(n_met[r][p], 1);
    }
}

/* Ranks that rest, and ranks that meet different ones, have the same record of collectives. */
static void test_records_are_equal(void **state)
{
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB "strategy: {name: decentralized, peers: shift_one}\n",
                                  .n_ranks = 3,
                                  .n_epochs = 1},
               &r);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(r.ring[k].head.n_ended, r.ring[k].head.n_handed);
        assert_int_equal(r.ring[k].n_newest, 1 + 2 * N_STEPS + 1);
        for (int i = 0; i < r.ring[k].n_newest; i++) {
            assert_int_equal(r.ring[k].newest[i].step, r.ring[0].newest[i].step);
            assert_int_equal(r.ring[k].newest[i].bucket, r.ring[0].newest[i].bucket);
            assert_int_equal(r.ring[k].newest[i].n_bytes, r.ring[0].newest[i].n_bytes);
        }
    }
}

/* ---- low_precision_decentralized ---- */

/* A rank whose copy of a neighbour went wrong is found when the ranks meet. */
static int spoil_a_copy(struct strategy *s, struct err *err)
{
    const int rc = strategy_low_precision_decentralized.met(s, err);

    if (coll_rank(exchange_coll(s->at.exchange)) == 1)
        low_precision_copy(s, 0)[7] += 1;
    return rc;
}

static int new_low_precision(const struct strategy_site *site, struct strategy **out,
                             struct err *err)
{
    static const struct low_precision_options each_step = {.every = 1};
    struct strategy_site own = *site;

    own.options = &each_step;
    return strategy_low_precision_decentralized.new(&own, out, err);
}

static void test_copies_are_proven(void **state)
{
    struct strategy_ops s = strategy_low_precision_decentralized;
    static struct run_result r;

    (void)state;
    s.new = new_low_precision;
    s.met = spoil_a_copy;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 3, .n_epochs = 1, .strategy = &s}, &r);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(r.rc[k], ERR_NUMERIC);
        assert_non_null(strstr(r.err[k].msg, "that rank 1 knows of rank 0 are not what rank 0 "
                                             "sent"));
    }
}

static int spoil_a_number(struct strategy *s, struct err *err)
{
    const int rc = strategy_low_precision_decentralized.met(s, err);

    if (coll_rank(exchange_coll(s->at.exchange)) == 1)
        low_precision_copy(s, 0)[7] = INFINITY;
    return rc;
}

static void test_numbers_that_are_not_finite_are_not_sent(void **state)
{
    struct strategy_ops s = strategy_low_precision_decentralized;
    static struct run_result r;

    (void)state;
    s.new = new_low_precision;
    s.met = spoil_a_number;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 3, .n_epochs = 1, .strategy = &s}, &r);
    assert_int_equal(r.rc[1], ERR_NUMERIC);
    assert_non_null(strstr(r.err[1].msg, "are to be sent to the neighbours are not finite"));
}

/* ---- async ---- */

static int is_round(const struct collective *c)
{
    return c->bucket == 0 && c->n_bytes > CONTROL_LEN * (int64_t)sizeof(float);
}

static int count_rounds(const struct run_result *r)
{
    int n = 0;

    for (int i = 0; i < r->ring[0].n_newest; i++)
        n += is_round(&r->ring[0].newest[i]);
    return n;
}

/* Rounds begin while the ranks train, and every rank has the same ones. */
static void test_async(void **state)
{
    static struct run_result r;

    (void)state;
    run(JOB "strategy: {name: async, interval: 0}\n", N_RANKS, &r);
    assert_true(r.step_loss[2 * N_STEPS - 1] < r.step_loss[0]);
    assert_true(r.epoch[0].epoch.is_mean);
    for (int i = 0; i < r.ring[0].n_newest; i++)
        for (int k = 1; k < N_RANKS; k++)
            assert_int_equal(r.ring[k].newest[i].n_bytes, r.ring[0].newest[i].n_bytes);
    assert_true(count_rounds(&r) >= 2); /* one begins with the first step of each epoch */
}

/* The changes that a round brings add up to nothing over the ranks, and take no rank's own progress
 * away. So one epoch, in whose second and last step a round is under way, ends where it would have
 * ended without that round. */
static void test_a_round_keeps_the_mean(void **state)
{
    static struct run_result want, got;
    static const char two_steps[] =
        "model: {arch: mlp, hidden: [24]}\ntrain: {global_batch: 48}\noptimizer: {lr: 0.1}\n"
        "data: {format: digits, samples: 96, validation_samples: 40}\n";
    char job[512];

    (void)state;
    snprintf(job, sizeof job, "%sstrategy: {name: local_sgd, every: 1000}\n", two_steps);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = N_RANKS, .n_epochs = 1}, &want);
    snprintf(job, sizeof job, "%sstrategy: {name: async, interval: 0}\n", two_steps);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = N_RANKS, .n_epochs = 1}, &got);
    assert_true(relative(want.validation_loss, got.validation_loss) < 1e-4);
}

/* The next round waits for the interval, in seconds. */
static void test_async_interval(void **state)
{
    static struct run_result want, got;
    int64_t start_ns;
    int n;

    (void)state;
    run(JOB "strategy: {name: local_sgd, every: 1000}\n", N_RANKS, &want);
    run(JOB "strategy: {name: async, interval: 1e6}\n", N_RANKS, &got);
    want_losses(&want, &got, N_STEPS, 0);
    start_ns = clock_mono_ns();
    run(JOB "strategy: {name: async, interval: 2}\n", N_RANKS, &got);
    n = count_rounds(&got);
    if (2 * n > clock_since_s(start_ns))
        fail_msg("%d rounds within %g s", n, clock_since_s(start_ns));
}

/* ---- what holds for all of them ---- */

static const char *const strategies_of_own[] = {
    "strategy: {name: local_sgd, every: 4}\n",
    "strategy: {name: local_sgd, every: 4, outer: nesterov, start: 3}\n",
    "strategy: {name: decentralized}\n",
    "strategy: {name: decentralized, peers: shift_one, every: 2}\n",
    "strategy: {name: low_precision_decentralized}\n",
};

/* A run that stopped in the midst of an epoch, and is resumed, ends with the bits of a run that
 * only wrote a checkpoint at that step. */
static void test_resumed_is_uninterrupted(void **state)
{
    static struct run_result want, got;
    char dir[] = "/tmp/own-XXXXXX", job[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strategies_of_own); i++) {
        struct run_plan plan = {.job = job, .n_ranks = N_RANKS, .n_epochs = 3, .save_at = 14};

        snprintf(job, sizeof job, "%scheckpoint: {every_steps: 6}\n%s", MOMENTUM,
                 strategies_of_own[i]);
        run_job_ok(&plan, &want);
        assert_non_null(mkdtemp(dir));
        plan = (struct run_plan){
            .job = job, .n_ranks = N_RANKS, .n_epochs = 2, .run_dir = dir, .stop_at = 14};
        run_job_ok(&plan, &got);
        assert_int_equal(got.step[0], 15);
        plan = (struct run_plan){
            .job = job, .n_ranks = N_RANKS, .n_epochs = 2, .run_dir = dir, .resume = 1};
        run_job_ok(&plan, &got);
        assert_int_equal(got.step[0], 3 * N_STEPS);
        assert_true(hash_equal(want.replica[0], got.replica[0]));
        remove_tree(dir);
        snprintf(dir, sizeof dir, "/tmp/own-XXXXXX");
    }
}

/* As a step begins: the working copies are the rounded parameters, whatever has changed these. */
static void look_at_copies(void *arg, struct trainer *t, int64_t step)
{
    const float *param = state_data(t->state, &slot_parameters);
    const uint16_t *copy = t->step.buffers->copy;

    for (int64_t i = 0; i < t->layout->n_trained; i++)
        if (copy[i] != bf16_from_float(param[i]))
            fail_msg("step %d: the working copy of parameter %d is stale", (int)step, (int)i);
    ++*(int *)arg;
}

static void test_working_copies_follow(void **state)
{
    static struct run_result r;
    char job[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(strategies_of_own); i++) {
        int n_looks = 0;

        snprintf(job, sizeof job, "%sprecision: bfloat16\n%s", MOMENTUM, strategies_of_own[i]);
        run_job_ok(&(struct run_plan){.job = job,
                                      .n_ranks = N_RANKS,
                                      .n_epochs = 2,
                                      .on_step = look_at_copies,
                                      .arg = &n_looks},
                   &r);
        assert_int_equal(n_looks, 2 * N_STEPS);
    }
}

/* ---- recovery ---- */

/* Two ranks survive a third one, whose collectives fail in the sixth step.  Rank 1 counts n_back
 * steps less than rank 0.  They meet in their mean, or else in rank 0's parameters, and the rank
 * that takes the lost one's place begins with these. */
static void check_survivors(int64_t n_back, int is_mean)
{
    static struct run_result r;
    static struct run_lives lives;
    struct run_plan plan = {.job = MOMENTUM "strategy: {name: local_sgd, every: 100}\n",
                            .n_ranks = N_RANKS,
                            .n_epochs = 1,
                            .fault = {.channel = COLL_URGENT, .at_ticket = 6, .fail = ERR_DEVICE},
                            .lives = &lives};

    lives = (struct run_lives){.n_back = n_back};
    run_job(&plan, &r);
    assert_true(lives.n > 1000);
    for (int k = 0; k < N_RANKS; k++)
        assert_int_equal(lives.step[k], lives.step[0]);
    assert_true(lives.step[0] > 2);
    assert_memory_not_equal(lives.before[0], lives.before[1], (size_t)lives.n * sizeof(float));
    for (int64_t i = 0; i < lives.n; i++) {
        const float first = lives.before[0][i],
                    want = is_mean ? (first + lives.before[1][i]) / 2 : first;

        assert_true(fabsf(lives.after[0][i] - want) <= 1e-6f);
        for (int k = 1; k < N_RANKS; k++)
            assert_true(lives.after[k][i] == lives.after[0][i]);
    }
}

static void test_survivors_meet_in_their_mean(void **state)
{
    (void)state;
    check_survivors(0, 1);
}

/* A failure may strike one rank before and another behind its update, so one step is no reason to
 * leave a replica out; more steps are. */
static void test_a_survivor_one_step_behind_counts(void **state)
{
    (void)state;
    check_survivors(1, 1);
    check_survivors(2, 0);
}

/* ---- numbers that are not finite ---- */

enum { BAD_STEP = 5 };

static int spoil(struct strategy *s, int bucket, struct err *err)
{
    if (bucket == 0 && exchange_step(s->at.exchange) == BAD_STEP &&
        coll_rank(exchange_coll(s->at.exchange)) == 1)
        *(float *)s->at.grad = NAN;
    return strategy_local_sgd.bucket_ready(s, bucket, err);
}

static struct local_sgd_options every_four = {.every = 4};

static int new_spoilt(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct strategy_site own = *site;

    own.options = &every_four;
    return strategy_local_sgd.new(&own, out, err);
}

/* A gradient that is not finite on one rank, in the first of two buckets, keeps all ranks from the
 * update. */
static void test_one_ranks_bad_gradient(void **state)
{
    struct strategy_ops s = strategy_local_sgd;
    static struct run_result r;
    struct run_plan plan = {.job = TWO_BUCKETS "train: {global_batch: 48, on_nonfinite: skip}\n",
                            .n_ranks = N_RANKS,
                            .n_epochs = 1,
                            .strategy = &s};

    (void)state;
    s.bucket_ready = spoil;
    s.new = new_spoilt;
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.n_skipped, 1);
    assert_non_null(strstr(r.warning, "rank 1: a gradient of this rank is not finite"));
    plan.job = TWO_BUCKETS "train: {global_batch: 48}\n";
    run_job_ok(&plan, &r);
    assert_int_equal(r.epoch[0].epoch.end, EPOCH_NONFINITE);
    assert_int_equal(r.step[0], BAD_STEP);
}

/* ---- refusals ---- */

static void expect_refused(const char *job, const char *why)
{
    static struct run_result r;

    run_job(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &r);
    assert_int_equal(r.rc[0], ERR_CONFIG);
    if (!strstr(r.err[0].msg, why))
        fail_msg("%s: says %s", job, r.err[0].msg);
}

/* 5 steps an epoch. */
static void test_a_warm_up_without_end_is_refused(void **state)
{
    static struct run_result r;
    static const char job[] = MLP "train: {global_batch: 96, max_steps: 11}\n"
                                  "schedule: {warmup_epochs: 2}\n";

    (void)state;
    expect_refused(MLP "train: {global_batch: 96, max_steps: 10}\nschedule: {warmup_epochs: 2}\n",
                   "schedule.warmup_epochs is 2, of 5 steps each, want fewer steps in all than "
                   "train.max_steps, 10");
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = 2, .n_epochs = 1}, &r);
}

static void test_averages_need_equal_weights(void **state)
{
    (void)state;
    expect_refused("model: {arch: mlp, hidden: [24], batch_norm: true}\n" DATA
                   "train: {global_batch: 48, average: {name: swa}}\nstrategy: {zero: 3}\n",
                   "train.average.name is swa, and the network has batch norm");
    expect_refused(MLP "train: {global_batch: 48, average: {name: ema}}\n"
                       "strategy: {name: local_sgd}\n",
                   "train.average needs equal weights on all ranks, but with strategy.name "
                   "local_sgd they differ");
}

static void test_synchronised_batch_norm_is_refused(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(&(struct run_plan){.job = "model: {arch: mlp, hidden: [24], batch_norm: true}\n" DATA
                                      "train: {global_batch: 48}\nstrategy: {name: local_sgd}\n",
                               .n_ranks = 2,
                               .n_epochs = 1},
            &r);
    assert_int_equal(r.rc[0], ERR_CONFIG);
    assert_non_null(strstr(r.err[0].msg, "want model.sync_batch_norm: false"));
    run_job_ok(&(struct run_plan){.job = "model: {arch: mlp, hidden: [24], batch_norm: true, "
                                         "sync_batch_norm: false}\n" DATA
                                         "train: {global_batch: 48}\nstrategy: {name: local_sgd}\n",
                                  .n_ranks = 2,
                                  .n_epochs = 1},
               &r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_is_the_all_reduce),
        cmocka_unit_test(test_post_local),
        cmocka_unit_test(test_one_rank_trains_as_ever),
        cmocka_unit_test(test_outer_steps),
        cmocka_unit_test(test_the_record),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_records_are_equal),
        cmocka_unit_test(test_numbers_that_are_not_finite_are_not_sent),
        cmocka_unit_test(test_copies_are_proven),
        cmocka_unit_test(test_async),
        cmocka_unit_test(test_a_round_keeps_the_mean),
        cmocka_unit_test(test_async_interval),
        cmocka_unit_test(test_resumed_is_uninterrupted),
        cmocka_unit_test(test_working_copies_follow),
        cmocka_unit_test(test_survivors_meet_in_their_mean),
        cmocka_unit_test(test_a_survivor_one_step_behind_counts),
        cmocka_unit_test(test_one_ranks_bad_gradient),
        cmocka_unit_test(test_a_warm_up_without_end_is_refused),
        cmocka_unit_test(test_averages_need_equal_weights),
        cmocka_unit_test(test_synchronised_batch_norm_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
