/* Strategy async on the simulated GPU, step by step, with the order of calls that the engine has:
 * the next step is queued before the result of the last one is read.
 *
 * The coll stands in for a second rank.  That rank's parameters are those of this rank plus 1, so a
 * round adds 0.5.  The test says when the sum of a round is there, or that it breaks off. */
#include "../strategy/idle_hooks.h"
#include "../test.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda.h"
#include "base/alloc.h"
#include "coll/device.h"
#include "coll/impl.h"
#include "host_work.h"
#include "op/control.h"
#include "session/ring.h"
#include "sim.h"
#include "strategy/async.h"
#include "strategy/reducer.h"

enum { N = 64, N_RANKS = 2 };

/* ---- the other rank ---- */

struct other {
    struct coll base; /* first */
    cudaStream_t stream;
    float *sum; /* of the round under way */
    int n_sums; /* rounds begun so far */
    int is_there, has_failed;
};

static struct other *of(struct coll *c) { return (struct other *)c; }

/* The other rank's control vector is equal to this one's, except that it is always ready. */
static void add_control(void *arg)
{
    float *control = ((struct coll_job *)arg)->x;
    const float ready = control[CONTROL_READY];

    for (int i = 0; i < CONTROL_LEN; i++)
        control[i] *= 2;
    control[CONTROL_READY] = ready + 1;
}

static void add_params(void *arg)
{
    float *sum = ((struct other *)arg)->sum;

    for (int i = 0; i < N; i++)
        sum[i] += sum[i] + 1;
}

static void add_garbage(void *arg) { memset(((struct other *)arg)->sum, 0x5a, sizeof(float) * N); }

static int64_t queue(struct coll *c, const struct coll_job *job, struct err *err)
{
    struct other *o = of(c);
    struct coll_job *kept;

    (void)err;
    assert_int_equal(job->what, COLL_ALLREDUCE);
    if (job->channel == COLL_URGENT) {
        assert_int_equal(job->n, N);
        o->sum = job->x;
        o->is_there = 0;
        o->n_sums++;
        return coll_ticket(COLL_URGENT, o->n_sums);
    }
    assert_int_equal(job->n, CONTROL_LEN);
    kept = xmalloc(sizeof *kept);
    *kept = *job;
    sim_host_work_owned(o->stream, add_control, kept, free);
    return coll_ticket(COLL_BULK, 1);
}

static int standing(struct coll *c, struct err *err)
{
    return of(c)->has_failed ? err_set(err, ERR_PEER, "the other rank has left") : 0;
}

static int join(struct coll *c, int64_t ticket, struct err *err)
{
    if (coll_channel_of(ticket) == COLL_URGENT)
        assert_true(of(c)->is_there || of(c)->has_failed);
    return standing(c, err);
}

static int passed(struct coll *c, int64_t ticket, struct err *err)
{
    assert_int_equal(ticket, coll_ticket(COLL_URGENT, of(c)->n_sums));
    return standing(c, err) < 0 ? err->code : !of(c)->is_there;
}

static int latch(struct coll *c, float *veto, struct err *err)
{
    (void)c, (void)veto, (void)err;
    return 0;
}

static void leave(struct coll *c) { (void)c; }

static void stats(struct coll *c, struct coll_stats *out)
{
    (void)c;
    *out = (struct coll_stats){0};
}

static const struct coll_ops coll_ops = {
    .queue = queue, .wait = join, .abort = leave, .free = leave, .stats = stats, .poll = standing};
static const struct coll_device_ops device_ops = {.latch = latch, .passed = passed};

/* ---- this rank ---- */

struct bench {
    struct backend *b;
    struct other other;
    struct layout layout;
    struct bucket bucket;
    struct ring *ring;
    struct reducer *reducer;
    struct async_options options;
    float *grad, *param;
    void *scalars, *bucket_at[1];
    int64_t *waits;
    double *check;
    int n_ready[32]; /* by step: what the host will read */
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->msg);
}

static void *take(struct bench *k, size_t n_bytes)
{
    struct err err;
    void *p = NULL;

    must(backend_alloc(k->b, n_bytes, "memory", &p, &err), &err);
    return p;
}

static void put_params(struct bench *k, float value)
{
    float v[N];
    struct err err;

    for (int i = 0; i < N; i++)
        v[i] = value;
    must(backend_copy_in(k->b, k->param, v, sizeof v, &err), &err);
}

/* The parameters, which are all equal. */
static float params(struct bench *k)
{
    float v[N];
    struct err err;

    must(backend_copy_out(k->b, v, k->param, sizeof v, &err), &err);
    for (int i = 1; i < N; i++)
        assert_true(v[i] == v[0]);
    return v[0];
}

static void form(struct bench *k)
{
    struct err err;

    k->other = (struct other){.stream = container_of(k->b, struct cuda, base)->stream};
    coll_init(&k->other.base, &coll_ops, "other", 0, N_RANKS);
    k->other.base.device = &device_ops;
    reducer_join(k->reducer, &k->other.base);
    must(reducer_form(k->reducer, 0, &err), &err);
    must(reducer_met(k->reducer, &err), &err);
}

static void open_bench(struct bench *k)
{
    struct reducer_options o;
    struct err err;

    *k = (struct bench){.bucket = {.length = N + CONTROL_LEN, .dtype = DTYPE_F32}};
    must(cuda_open(0, &k->b, &err), &err);
    k->ring = ring_new();
    k->layout = (struct layout){.n_trained = N,
                                .n_total = N,
                                .n_grad = N + CONTROL_LEN,
                                .grad_dtype = DTYPE_F32,
                                .copy_dtype = DTYPE_F32,
                                .bucket = &k->bucket,
                                .n_buckets = 1,
                                .n_param_buckets = 1};
    k->grad = take(k, sizeof(float) * (N + CONTROL_LEN));
    k->param = take(k, sizeof(float) * N);
    k->check = take(k, sizeof(double) * 2);
    k->waits = take(k, sizeof(int64_t) * 2);
    k->scalars = take(k, sizeof(struct step_scalars));
    k->bucket_at[0] = k->grad;
    o = (struct reducer_options){.strategy = &strategy_async,
                                 .options = &k->options,
                                 .backend = k->b,
                                 .layout = &k->layout,
                                 .grad = k->grad,
                                 .bucket = k->bucket_at,
                                 .param = k->param,
                                 .check = k->check,
                                 .scalars = k->scalars,
                                 .control = k->grad + N,
                                 .accumulate = 1,
                                 .waits = k->waits,
                                 .ring = k->ring,
                                 .hooks = idle_hooks};
    must(reducer_new(&o, &k->reducer, &err), &err);
    form(k);
}

static void close_bench(struct bench *k)
{
    void *const all[] = {k->grad, k->param, k->check, k->waits, k->scalars};

    reducer_leave(k->reducer);
    reducer_free(k->reducer);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        backend_free(k->b, all[i]);
    backend_close(k->b);
    ring_free(k->ring);
    assert_int_equal(sim_open_things(), 0);
}

/* Queue a step, whose update adds 1 to all parameters.  Returns what reducer_begin returned. */
static int fly(struct bench *k, int64_t step)
{
    struct err err;
    float control[CONTROL_LEN] = {0}, sum[CONTROL_LEN];
    const int changed = reducer_begin(k->reducer, step, step, &err);

    must(changed, &err);
    control[CONTROL_READY] = (float)reducer_is_ready(k->reducer);
    must(backend_copy_in(k->b, k->grad + N, control, sizeof control, &err), &err);
    must(reducer_micro_begin(k->reducer, 1, 1, &err), &err);
    must(reducer_bucket(k->reducer, 0, &err), &err);
    must(reducer_finish(k->reducer, &err), &err);
    put_params(k, params(k) + 1);
    must(reducer_updated(k->reducer, &err), &err);
    (void)reducer_end(k->reducer);
    must(backend_copy_out(k->b, sum, k->grad + N, sizeof sum, &err), &err);
    k->n_ready[step] = (int)sum[CONTROL_READY];
    return changed;
}

/* Read the result of a step. */
static void land(struct bench *k, int64_t step)
{
    reducer_agree(k->reducer, step, k->n_ready[step]);
}

/* The sum of the round is there, or the round breaks off and leaves garbage. */
static void end_sum(struct bench *k, int is_whole)
{
    sim_host_work(k->other.stream, is_whole ? add_params : add_garbage, &k->other);
    k->other.is_there = is_whole;
    k->other.has_failed = !is_whole;
}

/* ---- tests ---- */

/* Step 0 agrees.  The round begins ahead of step 2, whether this rank has read the result of step 1
 * by then or not, so all ranks begin it there.  Steps go on until the sum is there.  The round adds
 * the difference of the copies to the parameters of that moment. */
static void test_a_round(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        struct bench k;

        open_bench(&k);
        fly(&k, 0);
        if (!is_late)
            fly(&k, 1);
        land(&k, 0);
        if (is_late)
            fly(&k, 1);
        assert_int_equal(k.n_ready[1], N_RANKS); /* it agreed, too, on what has not begun yet */
        if (is_late)
            land(&k, 1);
        assert_int_equal(k.other.n_sums, 0);
        assert_int_equal(fly(&k, 2), 0);
        assert_int_equal(k.other.n_sums, 1);
        assert_int_equal(k.n_ready[2], 1); /* only the other rank says that it is ready */
        if (!is_late)
            land(&k, 1);
        for (int64_t step = 3; step < 6; step++) {
            assert_int_equal(fly(&k, step), 0);
            land(&k, step - 1);
        }
        assert_int_equal(k.other.n_sums, 1);
        assert_true(params(&k) == 6);
        end_sum(&k, 1);
        assert_int_equal(fly(&k, 6), 1);
        assert_true(params(&k) == 7.5f);
        land(&k, 5);
        assert_int_equal(k.n_ready[6], N_RANKS); /* ready for the next round */
        fly(&k, 7);
        land(&k, 6);
        assert_int_equal(fly(&k, 8), 0);
        assert_int_equal(k.other.n_sums, 2);
        end_sum(&k, 1);
        close_bench(&k);
    }
}

/* The step ahead of which a round began is queued again, because the one before it was not clean:
 * the round goes on, and what that step had agreed on before the round is forgotten. */
static void test_a_step_is_queued_again(void **state)
{
    struct bench k;

    (void)state;
    open_bench(&k);
    fly(&k, 0);
    fly(&k, 1);
    land(&k, 0);
    fly(&k, 2);
    assert_int_equal(k.other.n_sums, 1);
    land(&k, 1);
    fly(&k, 2);
    assert_int_equal(k.other.n_sums, 1);
    end_sum(&k, 1);
    assert_int_equal(fly(&k, 3), 1);
    land(&k, 2);
    fly(&k, 4);
    assert_int_equal(k.other.n_sums, 1); /* only step 3 was ready again */
    land(&k, 3);
    fly(&k, 5);
    assert_int_equal(k.other.n_sums, 2);
    end_sum(&k, 1);
    close_bench(&k);
}

/* Before a meeting the round under way ends.  One that was agreed on and has not begun does not
 * begin after the meeting, until a step agrees again. */
static void test_a_meeting(void **state)
{
    struct bench k;
    struct err err;

    (void)state;
    open_bench(&k);
    for (int64_t step = 0; step < 3; step++) {
        fly(&k, step);
        land(&k, step);
    }
    assert_int_equal(k.other.n_sums, 1);
    end_sum(&k, 1);
    assert_int_equal(reducer_epoch_end(k.reducer, &err), 0);
    assert_true(params(&k) == 3.5f);
    fly(&k, 3);
    land(&k, 3);
    assert_int_equal(k.n_ready[3], N_RANKS);
    assert_int_equal(reducer_epoch_end(k.reducer, &err), 0);
    for (int64_t step = 4; step < 7; step++) {
        fly(&k, step);
        k.n_ready[step] = 1;
        land(&k, step);
    }
    assert_int_equal(k.other.n_sums, 1);
    assert_true(params(&k) == 7.5f);
    close_bench(&k);
}

/* A rank is lost during a round, and the sum is garbage.  Parameters stay as the steps left them,
 * whether the engine asks for the sum or waits for it.  The next formation has rounds again. */
static void test_a_rank_is_lost(void **state)
{
    (void)state;
    for (int waits = 0; waits < 2; waits++) {
        struct bench k;
        struct err err;

        open_bench(&k);
        for (int64_t step = 0; step < 3; step++) {
            fly(&k, step);
            land(&k, step);
        }
        assert_int_equal(k.other.n_sums, 1);
        end_sum(&k, 0);
        assert_int_equal(waits ? reducer_epoch_end(k.reducer, &err)
                               : reducer_begin(k.reducer, 3, 3, &err),
                         ERR_PEER);
        assert_true(params(&k) == 3);
        reducer_leave(k.reducer);
        form(&k);
        for (int64_t step = 0; step < 3; step++) { /* the ranks go on from an older checkpoint */
            assert_int_equal(fly(&k, step), 0);
            land(&k, step);
        }
        assert_int_equal(k.other.n_sums, 1);
        end_sum(&k, 1);
        assert_int_equal(fly(&k, 3), 1);
        assert_true(params(&k) == 7.5f);
        close_bench(&k);
    }
}

/* The interval counts from the start of the formation, and from that of a round. */
static void test_the_interval(void **state)
{
    struct bench k;

    (void)state;
    open_bench(&k);
    k.options.interval_ms = 1000000;
    for (int64_t step = 0; step < 4; step++) {
        fly(&k, step);
        assert_int_equal(k.n_ready[step], 1);
        land(&k, step);
    }
    k.options.interval_ms = 0;
    for (int64_t step = 4; step < 7; step++) {
        fly(&k, step);
        land(&k, step);
    }
    assert_int_equal(k.other.n_sums, 1);
    end_sum(&k, 1);
    k.options.interval_ms = 1000000;
    for (int64_t step = 7; step < 10; step++) {
        fly(&k, step);
        assert_int_equal(k.n_ready[step], 1);
        land(&k, step);
    }
    assert_int_equal(k.other.n_sums, 1);
    close_bench(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_round),      cmocka_unit_test(test_a_step_is_queued_again),
        cmocka_unit_test(test_a_meeting),    cmocka_unit_test(test_a_rank_is_lost),
        cmocka_unit_test(test_the_interval),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
