/* strategy: a second strategy, quite unlike the all-reduce, works through the same interface.  The
 * engine does the same work around any strategy, and relies on the strategy's promises alone.
 *
 * "averaging" is local SGD: each rank updates its own parameters by its own samples, and every
 * `every` steps all ranks take the mean of their parameters.  With every = 1 and plain SGD it is
 * the all-reduce's training, to rounding, because an update is linear in its gradient. */
#include "../test.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "op/control.h"
#include "ranks.h"
#include "strategy/exchange.h"
#include "strategy/strategy.h"
#include "train/trainer_impl.h"

#define DATA "data: {format: digits, samples: 480, validation_samples: 40}\n"
#define MLP  "model: {arch: mlp, hidden: [24]}\n" DATA
#define JOB  MLP "train: {global_batch: 48}\noptimizer: {lr: 0.1}\n"

enum { N_STEPS = 10, N_RANKS = 3 };

/* ---- averaging ---- */

struct averaging {
    struct strategy base; /* first */
    int every;
    int64_t *n_steps; /* [1]: the slot */
};

static const struct slot_def step_count = {.name = "steps between exchanges",
                                           .suffix = "n_steps",
                                           .scope = SLOT_PER_JOB,
                                           .length = 1,
                                           .dtype = DTYPE_I64,
                                           .placement = SLOT_OWN};
static const struct slot_def *const slots[] = {&step_count};

static int new_averaging(const struct strategy_site *site, int every, struct strategy **out)
{
    struct averaging *a = xcalloc(1, sizeof *a);

    a->base.at = *site;
    a->every = every;
    a->n_steps = site->slot[0];
    *out = &a->base;
    return 0;
}

static int new_each(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    return new_averaging(site, 1, out);
}

static int new_seldom(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    return new_averaging(site, 4, out);
}

static struct averaging *of(struct strategy *s) { return (struct averaging *)s; }

static const struct bucket *last_bucket(const struct strategy *s)
{
    return &s->at.layout->bucket[s->at.layout->n_buckets - 1];
}

/* Of the last bucket the control vector alone is summed.  The rest stays this rank's own.  The
 * update takes it for the gradient of the whole batch, so it is multiplied by the number of
 * ranks. */
static int keep_own(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;
    const struct bucket *b = &l->bucket[bucket];
    float *grad = s->at.grad;

    for (int64_t i = b->offset; i < b->offset + b->length && i < l->n_trained; i++)
        grad[i] *= (float)coll_size(exchange_coll(s->at.exchange));
    if (b != last_bucket(s))
        return 0;
    return exchange_allreduce(s->at.exchange, bucket, grad + l->n_trained, CONTROL_LEN, DTYPE_F32,
                              err);
}

static int wait_for_control(struct strategy *s, struct err *err)
{
    return exchange_wait(s->at.exchange, s->at.layout->n_buckets - 1, err);
}

static void divide(struct strategy *s)
{
    for (int64_t i = 0; i < s->at.layout->n_total; i++)
        s->at.param[i] /= (float)coll_size(exchange_coll(s->at.exchange));
}

static int average_if_due(struct strategy *s, struct err *err)
{
    struct averaging *a = of(s);

    if (++*a->n_steps % a->every)
        return 0;
    if (exchange_allreduce(s->at.exchange, 0, s->at.param, s->at.layout->n_total, DTYPE_F32, err) <
            0 ||
        exchange_wait(s->at.exchange, 0, err) < 0)
        return err->code;
    divide(s);
    return 0;
}

static int average_now(struct strategy *s, struct err *err)
{
    struct coll *c = exchange_coll(s->at.exchange);
    int64_t ticket = coll_allreduce(c, COLL_BULK, s->at.param, s->at.layout->n_total, DTYPE_F32,
                                    COLL_TAG_NONE, err);

    if (ticket < 0 || coll_wait(c, ticket, err) < 0)
        return err->code;
    divide(s);
    return 0;
}

static void free_averaging(struct strategy *s) { free(of(s)); }

static const struct strategy_ops each_step = {
    .group.name = "averaging, each step",
    .promises = {.replicas_are_equal = 1, .collectives_are_equal = 1},
    .slot = slots,
    .n_slots = 1,
    .new = new_each,
    .bucket_ready = keep_own,
    .before_update = wait_for_control,
    .after_update = average_if_due,
    .free = free_averaging,
};

/* Replicas differ after most steps.  At an epoch's end they are equal, because epoch_end makes them
 * so. */
static const struct strategy_ops seldom = {
    .group.name = "averaging, every 4 steps",
    .promises = {.replicas_are_equal = 1, .collectives_are_equal = 1},
    .slot = slots,
    .n_slots = 1,
    .new = new_seldom,
    .bucket_ready = keep_own,
    .before_update = wait_for_control,
    .after_update = average_if_due,
    .epoch_end = average_now,
    .free = free_averaging,
};

/* The same without epoch_end, and without the promise that replicas are equal. */
static const struct strategy_ops apart = {
    .group.name = "averaging, never at an end",
    .promises = {.replicas_are_equal = 0, .collectives_are_equal = 1},
    .slot = slots,
    .n_slots = 1,
    .new = new_seldom,
    .bucket_ready = keep_own,
    .before_update = wait_for_control,
    .after_update = average_if_due,
    .free = free_averaging,
};

static double relative(double a, double b) { return fabs(a - b) / fmax(fabs(a), 1e-30); }

static void test_trains_as_the_all_reduce_does(void **state)
{
    static struct run_result want, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = N_RANKS, .n_epochs = 1}, &want);
    run_job_ok(
        &(struct run_plan){.job = JOB, .n_ranks = N_RANKS, .n_epochs = 1, .strategy = &each_step},
        &got);
    assert_int_equal(want.n_steps, N_STEPS);
    assert_int_equal(got.n_steps, N_STEPS);
    for (int i = 0; i < N_STEPS; i++)
        if (!(relative(want.step_loss[i], got.step_loss[i]) < 1e-4))
            fail_msg("step %d: loss %.9g, want %.9g", i, got.step_loss[i], want.step_loss[i]);
    assert_true(got.epoch[0].epoch.n_tensors > 0);
}

/* In each step the record of collectives gets the sum of the control vector and, when due, the sum
 * of the parameters, on all ranks alike. */
static void test_the_record_has_its_collectives(void **state)
{
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &seldom},
               &r);
    for (int k = 0; k < 2; k++) {
        const struct collective *c = r.ring[k].newest;
        const int64_t control = CONTROL_LEN * (int64_t)sizeof(float);
        int at = 1;

        assert_int_equal(r.ring[k].n_newest, 1 + N_STEPS + N_STEPS / 4);
        for (int64_t step = 0; step < N_STEPS; step++) {
            assert_int_equal(c[at].step, step);
            assert_int_equal(c[at].n_bytes, control);
            assert_int_equal(c[at++].phase, PHASE_BACKWARD);
            if (step % 4 == 3) {
                assert_int_equal(c[at].step, step);
                assert_true(c[at].n_bytes > control);
                assert_int_equal(c[at++].phase, PHASE_UPDATE);
            }
        }
        for (int i = 0; i < r.ring[k].n_newest; i++)
            assert_string_equal(collective_state(&c[i]), "done");
    }
}

/* Replicas are compared if they are promised to be equal, and only then. */
static void test_promised_replicas_are_compared(void **state)
{
    static struct run_result r;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &seldom},
               &r);
    assert_true(r.epoch[0].epoch.n_tensors > 0);
    assert_false(hash_equal(r.replica[0], (struct hash128){0, 0}));
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &apart}, &r);
    assert_int_equal(r.epoch[0].epoch.n_tensors, 0);
    assert_true(hash_equal(r.replica[0], (struct hash128){0, 0}));
    assert_true(r.step_loss[N_STEPS - 1] < r.step_loss[0]);
}

/* ---- scattered: an all-reduce in two halves ---- */

static int new_scattered(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    *out = xcalloc(1, sizeof **out);
    (*out)->at = *site;
    return 0;
}

static void *at_bucket(const struct strategy *s, int bucket)
{
    return (char *)s->at.grad + s->at.layout->bucket[bucket].at;
}

static int scatter(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    return exchange_reduce_scatter(s->at.exchange, bucket, at_bucket(s, bucket), b->length,
                                   b->dtype, err);
}

static int gather(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < s->at.layout->n_buckets && rc == 0; i++) {
        const struct bucket *b = &s->at.layout->bucket[i];

        rc = exchange_wait(s->at.exchange, i, err);
        if (rc == 0)
            rc = exchange_allgather_spans(s->at.exchange, i, at_bucket(s, i), b->length, b->dtype,
                                          err);
    }
    for (int i = 0; i < s->at.layout->n_buckets && rc == 0; i++)
        rc = exchange_wait(s->at.exchange, i, err);
    return rc;
}

static void free_scattered(struct strategy *s) { free(s); }

static const struct strategy_ops scattered = {
    .group.name = "scattered",
    .promises = {.replicas_are_equal = 1, .collectives_are_equal = 1},
    .new = new_scattered,
    .bucket_ready = scatter,
    .before_update = gather,
    .free = free_scattered,
};

/* The bits are the same; a bucket's second collective follows its first. */
static void test_two_collectives_of_a_bucket(void **state)
{
    static struct run_result want, got;
    struct run_plan plan = {.job = JOB, .n_ranks = N_RANKS, .n_epochs = 1};

    (void)state;
    run_job_ok(&plan, &want);
    plan.strategy = &scattered;
    run_job_ok(&plan, &got);
    assert_true(hash_equal(want.replica[0], got.replica[0]));
    assert_int_equal(got.ring[0].n_newest, 1 + 2 * N_STEPS);
    assert_int_equal(got.ring[0].newest[1].phase, PHASE_BACKWARD);
    assert_int_equal(got.ring[0].newest[2].phase, PHASE_REDUCE);
    plan.fault = (struct coll_fault){.at_ticket = 6, .fail = ERR_DEVICE};
    run_job(&plan, &got);
    if (!strstr(got.err[0].msg, "of bucket 0: "))
        fail_msg("%s", got.err[0].msg);
}

/* ---- recovery ---- */

static int n_forms; /* of rank 0 */

static int broadcast_parameters(struct strategy *s, int source, struct err *err)
{
    struct coll *c = exchange_coll(s->at.exchange);

    if (coll_rank(c) == 0)
        n_forms++;
    return coll_broadcast(c, s->at.param, sizeof(float) * (size_t)s->at.layout->n_total, source,
                          err);
}

static int leave_alone(struct strategy *s, int source, struct err *err)
{
    (void)s, (void)source, (void)err;
    return 0;
}

/* If the strategy says that every rank is needed, it puts the state together itself: the engine
 * gives no rank another rank's state.  So if `form` does nothing, either, ranks start apart. */
static void test_the_source_of_recovery(void **state)
{
    struct strategy_ops s = each_step;
    static struct run_result want, got;

    (void)state;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &s}, &want);
    s.promises.recovery = STRATEGY_NEEDS_ALL_RANKS;
    s.form = broadcast_parameters;
    n_forms = 0;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &s}, &got);
    assert_int_equal(n_forms, 1);
    assert_true(hash_equal(got.replica[0], want.replica[0]));
    s.form = leave_alone;
    run_job_ok(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &s}, &got);
    assert_false(hash_equal(got.replica[0], want.replica[0]));
}

/* Nothing divides a slot among the ranks yet, so a strategy that wants one does not start. */
static void test_a_sharded_slot_is_refused(void **state)
{
    static const struct slot_def shard = {.name = "this rank's part of a moment",
                                          .scope = SLOT_PER_TRAINED,
                                          .dtype = DTYPE_F32,
                                          .placement = SLOT_SHARDED};
    static const struct slot_def *const wanted[] = {&shard};
    static struct run_result r;
    struct strategy_ops s = each_step;

    (void)state;
    s.slot = wanted;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 1, .n_epochs = 1, .strategy = &s}, &r);
    assert_int_equal(r.rc[0], ERR_UNSUPPORTED);
    assert_non_null(strstr(r.err[0].msg, "the slot \"this rank's part of a moment\" wants to be "
                                         "divided among the ranks"));
}

/* ---- faults on purpose ---- */

/* Flips happen around any strategy, which knows nothing of them.  A bit that flips before the
 * exchange is wrong on all ranks alike; a bit that flips after it makes replicas differ. */
static void test_flips(void **state)
{
    static struct run_result clean, hurt;
    struct run_plan plan = {.job = JOB, .n_ranks = 2, .n_epochs = 1};

    (void)state;
    for (int own = 0; own < 2; own++) {
        plan.strategy = own ? &each_step : NULL;
        plan.inject = NULL;
        run_job_ok(&plan, &clean);
        plan.inject = "flip:rank1@step4:bucket0";
        run_job_ok(&plan, &hurt);
        assert_non_null(strstr(hurt.injected, "flips before bucket 0 of step 4 is summed"));
        assert_false(hash_equal(hurt.replica[0], clean.replica[0]));
    }
    plan.inject = "flip:rank1@step4:reduced0";
    plan.strategy = NULL;
    run_job(&plan, &hurt);
    assert_non_null(strstr(hurt.injected, "flips after bucket 0 of step 4 is summed"));
    assert_false(hash_equal(hurt.replica[0], hurt.replica[1]));
}

/* The rank leaves a collective out and goes on with the next one, which does not fit the collective
 * that the others are in. */
static void test_skip(void **state)
{
    static struct run_result r;

    (void)state;
    run_job(&(struct run_plan){.job = JOB,
                               .n_ranks = 2,
                               .n_epochs = 1,
                               .strategy = &each_step,
                               .inject = "skip:rank1@step4:bucket0"},
            &r);
    assert_non_null(strstr(r.injected, "bucket 0 of step 4 is left out"));
    assert_int_equal(r.rc[0], ERR_ARG);
    assert_int_equal(r.step[0], 4);
}

/* ---- collectives that were stopped ---- */

enum { STOPPED_STEP = 6 };

static int stop_at_step(struct strategy *s, struct err *err)
{
    float *control = (float *)s->at.grad + s->at.layout->n_trained;
    int rc = wait_for_control(s, err);

    if (rc == 0 && ++*of(s)->n_steps > STOPPED_STEP)
        control[CONTROL_VOID] = 1;
    return rc;
}

/* A device that was stopped in the midst of a step says so in the control vector, perhaps before
 * any other sign.  That step is not counted, and no rank is blamed for it. */
static void test_a_void_step_is_not_counted(void **state)
{
    static struct run_result r;
    struct strategy_ops s = each_step;

    (void)state;
    s.before_update = stop_at_step;
    s.after_update = NULL;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 1, .n_epochs = 1, .strategy = &s}, &r);
    assert_int_equal(r.rc[0], ERR_CANCELED);
    assert_int_equal(r.step[0], STOPPED_STEP);
}

/* ---- an exchange behind the update that fails ---- */

static int abort_exchange(struct strategy *s, struct err *err)
{
    if (*of(s)->n_steps == STOPPED_STEP)
        coll_abort(exchange_coll(s->at.exchange));
    return average_if_due(s, err);
}

static int refuse_numbers(struct strategy *s, struct err *err)
{
    (void)s;
    return err_set(err, ERR_NUMERIC, "these numbers are not finite");
}

/* A step whose update is made counts on every rank, though the exchange behind it breaks off; the
 * next step meets the failure.  A rank's own failure is not passed over. */
static void test_a_step_counts_once_its_update_is_made(void **state)
{
    static struct run_result r;
    struct strategy_ops s = each_step;

    (void)state;
    s.after_update = abort_exchange;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 2, .n_epochs = 1, .strategy = &s}, &r);
    for (int k = 0; k < 2; k++) {
        assert_true(r.rc[k] < 0);
        assert_int_equal(r.step[k], STOPPED_STEP + 1);
    }
    s.after_update = refuse_numbers;
    run_job(&(struct run_plan){.job = JOB, .n_ranks = 1, .n_epochs = 1, .strategy = &s}, &r);
    assert_int_equal(r.rc[0], ERR_NUMERIC);
    assert_non_null(strstr(r.err[0].msg, "these numbers are not finite"));
}

/* ---- adasum ---- */

static void expect_all_reduce(const char *train, int n_ranks)
{
    static struct run_result want, got;
    const char *data = "model: {arch: mlp, hidden: [24]}\noptimizer: {lr: 0.01}\n"
                       "data: {format: digits, samples: 8, validation_samples: 8}\n";
    char job[512];

    snprintf(job, sizeof job, "%s%s", data, train);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = n_ranks, .n_epochs = 2}, &want);
    snprintf(job, sizeof job, "%s%sstrategy: {name: adasum}\n", data, train);
    run_job_ok(&(struct run_plan){.job = job, .n_ranks = n_ranks, .n_epochs = 2}, &got);
    assert_int_equal(got.n_steps, want.n_steps);
    for (int64_t i = 0; i < want.n_steps; i++)
        if (!(fabs(want.step_loss[i] / got.step_loss[i] - 1) < 1e-4))
            fail_msg("%s%d ranks: step %d: loss %.9g, want %.9g", train, n_ranks, (int)i,
                     got.step_loss[i], want.step_loss[i]);
}

/* Where one rank has all samples of a step, its gradient is that of the all-reduce, whatever the
 * number of ranks without samples. */
static void test_adasum_passes_over_ranks_without_samples(void **state)
{
    (void)state;
    expect_all_reduce("train: {global_batch: 1}\n", N_RANKS);
    expect_all_reduce("train: {global_batch: 4, accumulate: 2}\n", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trains_as_the_all_reduce_does),
        cmocka_unit_test(test_the_record_has_its_collectives),
        cmocka_unit_test(test_promised_replicas_are_compared),
        cmocka_unit_test(test_two_collectives_of_a_bucket),
        cmocka_unit_test(test_the_source_of_recovery),
        cmocka_unit_test(test_a_sharded_slot_is_refused),
        cmocka_unit_test(test_flips),
        cmocka_unit_test(test_skip),
        cmocka_unit_test(test_a_void_step_is_not_counted),
        cmocka_unit_test(test_a_step_counts_once_its_update_is_made),
        cmocka_unit_test(test_adasum_passes_over_ranks_without_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
