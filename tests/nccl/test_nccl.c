/* coll/nccl over the fakes: what it does in order, and that nothing is lost, left or wrongly
 * applied whatever fails.  Each rank is a thread that does what the engine does: connect, take the
 * state, record a step of two buckets, replay it, end. */
#include "../test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "backend/cuda/latch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/device.h"
#include "coll/impl.h"
#include "fake.h"

enum { MAX_RANKS = 4, N_GRAD = 1000, BUCKET = 600, N_STEPS = 4, LONG_MS = 60000 };

struct job;

struct rank {
    int k;
    struct job *job;
    struct cuda cuda;
    pthread_t thread;
    float *grad, *param; /* device memory: [N_GRAD], the veto behind the gradients */
    int64_t n_computed;  /* "on the device" */
    int64_t n_applied;
    struct {
        const uint32_t *poison;
        float *veto;
    } latch;
    cudaGraphExec_t step;
    int rc, quiesced;
    struct err err, end;
};

struct job {
    int size;
    int64_t stop_ms, connect_ms, finish_ms;
    uint8_t ids[COLL_ID_BYTES];
    int (*after)(struct rank *r, struct err *err); /* instead of training; or NULL */
    int nccl_sees;                                 /* for vanish() */
    pthread_mutex_t lock;                          /* guards coll, is_over */
    struct coll *coll[MAX_RANKS];
    int is_over;
    atomic_int n_stuck, n_there;
    char stuck[512];
    struct rank rank[MAX_RANKS];
};

/* ---- the device's part ---- */

static void compute(void *arg) /* backward: the first bucket */
{
    struct rank *r = arg;

    r->n_computed++;
    r->grad[N_GRAD] = 0; /* the veto, as control_pack has it */
    for (int i = 0; i < BUCKET; i++)
        r->grad[i] = (float)(r->n_computed * (r->k + 1));
}

static void compute_more(void *arg)
{
    struct rank *r = arg;

    for (int i = BUCKET; i < N_GRAD; i++)
        r->grad[i] = (float)(r->n_computed * (r->k + 1));
}

static void apply(void *arg)
{
    struct rank *r = arg;

    if (r->grad[N_GRAD] > 0.0f)
        return;
    for (int i = 0; i < N_GRAD; i++)
        r->param[i] += r->grad[i];
    r->n_applied++;
}

static void latch(void *arg)
{
    struct rank *r = arg;

    if (__atomic_load_n(r->latch.poison, __ATOMIC_SEQ_CST))
        *r->latch.veto = 1.0f;
}

int latch_queue(struct cuda *b, const uint32_t *poison, float *veto, struct err *err)
{
    struct rank *r = container_of(b, struct rank, cuda);

    (void)err;
    r->latch.poison = poison;
    r->latch.veto = veto;
    fake_kernel(b->stream, latch, r);
    return 0;
}

/* ---- the driver's part ---- */

static void stuck(void *arg, const char *text)
{
    struct job *j = arg;

    if (j->n_stuck++ == 0)
        snprintf(j->stuck, sizeof j->stuck, "%s", text);
}

static void *abort_main(void *arg)
{
    struct job *j = arg;

    pthread_mutex_lock(&j->lock);
    j->is_over = 1;
    for (int k = 0; k < j->size; k++)
        if (j->coll[k])
            coll_abort(j->coll[k]);
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* All ranks are told, by a thread that is none of theirs. */
static void abort_all(struct job *j)
{
    pthread_t loop;

    pthread_create(&loop, NULL, abort_main, j);
    pthread_join(loop, NULL);
}

/* As the engine's set_coll: an abort may have come before there was anything to abort. */
static void publish(struct rank *r, struct coll *c)
{
    pthread_mutex_lock(&r->job->lock);
    r->job->coll[r->k] = c;
    if (c && r->job->is_over)
        coll_abort(c);
    pthread_mutex_unlock(&r->job->lock);
}

/* ---- the engine's part ---- */

static int cuda_rc(cudaError_t st, const char *what, struct err *err)
{
    return cuda_check((int)st, what, err);
}

static int open_device(struct rank *r, struct err *err)
{
    int rc = cuda_rc(cudaSetDevice(r->k), "use", err);

    r->cuda.device = r->k;
    if (rc == 0)
        rc =
            cuda_rc(cudaStreamCreateWithFlags(&r->cuda.stream, cudaStreamNonBlocking), "make", err);
    if (rc == 0)
        rc = cuda_rc(cudaMalloc((void **)&r->grad, (N_GRAD + 1) * sizeof(float)), "alloc", err);
    if (rc == 0)
        rc = cuda_rc(cudaMalloc((void **)&r->param, N_GRAD * sizeof(float)), "alloc", err);
    if (rc == 0)
        rc = cuda_rc(cudaMemsetAsync(r->param, 0, N_GRAD * sizeof(float), r->cuda.stream), "set",
                     err);
    return rc;
}

/* Once before it is recorded, as the engine's first step. */
static int warm(struct rank *r, struct coll *c, struct err *err)
{
    const int64_t ticket = coll_allreduce(c, r->grad, BUCKET, DTYPE_F32, COLL_SUM, 0, err);

    if (ticket < 0 || coll_wait(c, ticket, err) < 0)
        return err->code;
    return coll_barrier(c, err);
}

static int form(struct rank *r, struct coll **c, struct err *err)
{
    struct job *j = r->job;
    struct coll_device_options o = {
        .rank = r->k, .size = j->size, .stop_ms = j->stop_ms, .stuck = stuck, .arg = j};
    int rc;

    snprintf(o.name, sizeof o.name, "test/1");
    rc = coll_device_new(&coll_nccl_ops, &r->cuda.base, &o, c, err);
    if (rc < 0)
        return rc;
    publish(r, *c);
    rc = coll_device_connect(*c, j->ids, j->size > 1 ? sizeof j->ids : COLL_ID_BYTES, j->connect_ms,
                             err);
    if (rc == 0)
        rc = coll_device_register(*c, r->grad, (N_GRAD + 1) * sizeof(float), err);
    if (rc == 0)
        rc = warm(r, *c, err);
    return rc;
}

static int take_state(struct rank *r, struct coll *c, struct err *err)
{
    int64_t at = r->k == 1 ? 77 : -1;
    int rc = coll_broadcast(c, &at, sizeof at, coll_size(c) > 1, err);

    if (rc == 0 && coll_size(c) > 1)
        assert_int_equal(at, 77);
    return rc;
}

static int queue_step(struct rank *r, struct coll *c, struct err *err)
{
    int64_t first, second;
    cudaStream_t s = r->cuda.stream;

    fake_kernel(s, compute, r);
    first = coll_allreduce(c, r->grad, BUCKET, DTYPE_F32, COLL_SUM, 0, err);
    if (first < 0)
        return (int)first;
    fake_kernel(s, compute_more, r);
    second = coll_allreduce(c, r->grad + BUCKET, N_GRAD - BUCKET, DTYPE_F32, COLL_SUM, 1, err);
    if (second < 0 || coll_wait(c, first, err) < 0 || coll_wait(c, second, err) < 0 ||
        coll_device_latch(c, r->grad + N_GRAD, err) < 0)
        return err->code;
    fake_kernel(s, apply, r);
    return 0;
}

static int record_step(struct rank *r, struct coll *c, struct err *err)
{
    cudaGraph_t g = NULL;
    struct err second;
    int rc = cuda_rc(cudaStreamBeginCapture(r->cuda.stream, cudaStreamCaptureModeThreadLocal),
                     "begin", err);
    int ended;

    if (rc < 0)
        return rc;
    rc = queue_step(r, c, err);
    ended = cuda_rc(cudaStreamEndCapture(r->cuda.stream, &g), "end", rc < 0 ? &second : err);
    rc = rc < 0 ? rc : ended;
    if (rc == 0)
        rc = cuda_rc(cudaGraphInstantiate(&r->step, g, 0), "instantiate", err);
    if (g)
        (void)cudaGraphDestroy(g);
    return rc;
}

/* The coll is asked last: a stream that has run empty may have done so because of a revoke. */
static int finish_step(struct rank *r, struct coll *c, struct err *err)
{
    for (;;) {
        const cudaError_t st = cudaStreamQuery(r->cuda.stream);

        if (coll_poll(c, err) < 0)
            return err->code;
        if (st != cudaErrorNotReady)
            return cuda_rc(st, "finish", err);
        sched_yield();
    }
}

static int launch(struct rank *r, struct err *err)
{
    return cuda_rc(cudaGraphLaunch(r->step, r->cuda.stream), "launch", err);
}

static int train(struct rank *r, struct coll *c, struct err *err)
{
    int rc = record_step(r, c, err);

    for (int i = 0; rc == 0 && i < N_STEPS; i++) {
        rc = launch(r, err);
        if (rc == 0)
            rc = finish_step(r, c, err);
    }
    return rc;
}

static void close_device(struct rank *r)
{
    if (r->grad)
        (void)cudaFree(r->grad);
    if (r->param)
        (void)cudaFree(r->param);
    if (r->cuda.stream)
        (void)cudaStreamDestroy(r->cuda.stream);
}

/* Nothing but whole sums was ever applied. */
static void check_param(const struct rank *r)
{
    const int all = r->job->size * (r->job->size + 1) / 2;
    const int64_t n = r->n_applied;

    assert_in_range(n, 0, N_STEPS);
    for (int i = 0; i < N_GRAD && n; i++)
        if (r->param[i] != (float)(n * (n + 1) / 2 * all))
            fail_msg("rank %d: parameter %d is %g after %d steps", r->k, i, (double)r->param[i],
                     (int)n);
}

/* What was left as it is, for who looks for leaks. */
static volatile struct {
    struct coll *coll;
    cudaGraphExec_t step;
} lost[MAX_RANKS];

static void end(struct rank *r, struct coll *c)
{
    if (c)
        r->quiesced = coll_device_quiesce(c, r->job->finish_ms, &r->end);
    publish(r, NULL);
    lost[r->k].coll = c;
    lost[r->k].step = r->step;
    if (r->job->n_stuck) /* the process would end */
        return;
    if (r->step)
        (void)cudaGraphExecDestroy(r->step);
    coll_free(c);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct coll *c = NULL;

    r->rc = open_device(r, &r->err);
    if (r->rc == 0)
        r->rc = form(r, &c, &r->err);
    if (r->rc == 0)
        r->rc = take_state(r, c, &r->err);
    if (r->rc == 0)
        r->rc = r->job->after ? r->job->after(r, &r->err) : train(r, c, &r->err);
    if (r->rc < 0)
        abort_all(r->job);
    end(r, c);
    if (r->param)
        check_param(r);
    if (r->job->n_stuck == 0)
        close_device(r);
    return NULL;
}

/* Before run(), where another thread is to see the job. */
static void job_begin(struct job *j, int size)
{
    if (j->size)
        return;
    j->size = size;
    pthread_mutex_init(&j->lock, NULL);
}

static void run(struct job *j, int size)
{
    struct err err;
    int rc;

    job_begin(j, size);
    j->stop_ms = j->stop_ms ? j->stop_ms : LONG_MS;
    j->connect_ms = j->connect_ms ? j->connect_ms : LONG_MS;
    j->finish_ms = j->finish_ms ? j->finish_ms : LONG_MS;
    rc = coll_device_make_ids(&coll_nccl_ops, size, j->ids, &err);
    for (int k = 0; k < size; k++) {
        j->rank[k].k = k;
        j->rank[k].job = j;
        if (rc == 0)
            pthread_create(&j->rank[k].thread, NULL, rank_main, &j->rank[k]);
    }
    if (rc < 0) {
        j->rank[0].rc = rc;
        j->rank[0].err = err;
    }
    for (int k = 0; rc == 0 && k < size; k++)
        pthread_join(j->rank[k].thread, NULL);
}

static int setup(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

static void assert_fine(const struct job *j)
{
    for (int k = 0; k < j->size; k++) {
        if (j->rank[k].rc < 0)
            fail_msg("rank %d: %s", k, j->rank[k].err.msg);
        assert_int_equal(j->rank[k].quiesced, 0);
    }
    assert_int_equal(j->n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}

/* ---- the happy path ---- */

static void steps_are_replayed(void **state)
{
    (void)state;
    for (int size = 1; size <= MAX_RANKS; size++) {
        struct job j = {0};

        fake_reset();
        run(&j, size);
        assert_fine(&j);
        for (int k = 0; k < size; k++)
            assert_int_equal(j.rank[k].n_applied, N_STEPS);
    }
}

/* In order: recordings go first, then the communicator, without a Revoke. */
static void an_orderly_end(void **state)
{
    static const char *const words[] = {
        "ncclCommRegister",     "ncclCommRevoke",   "ncclCommAbort",   "ncclCommDeregister",
        "cudaGraphExecDestroy", "ncclCommFinalize", "ncclCommDestroy", NULL};
    struct job j = {0};
    char *log, want[512] = "";
    const char *at;

    (void)state;
    run(&j, 2);
    assert_fine(&j);
    log = fake_log(words);
    for (int k = 0; k < 2; k++) {
        at = log;
        for (const char *const *w =
                 (const char *const[]){"ncclCommRegister", "cudaGraphExecDestroy",
                                       "ncclCommDeregister", "ncclCommFinalize", "ncclCommDestroy",
                                       NULL};
             *w; w++) {
            snprintf(want, sizeof want, "%d:%s ", k, *w);
            at = strstr(at, want);
            if (!at)
                fail_msg("no %s in its place in %s", want, log);
        }
    }
    assert_null(strstr(log, "Revoke"));
    assert_null(strstr(log, "Abort"));
    free(log);
}

/* ---- memory of the host and of the device ---- */

static int move_bytes(struct rank *r, struct err *err)
{
    enum { BIG = (4 << 20) + 12345 };
    struct coll *c = r->job->coll[r->k];
    const int size = coll_size(c);
    uint8_t *x = xcalloc(BIG, 1), *all = xcalloc((size_t)size, BIG);
    int rc;

    memset(x, 10 + r->k, BIG);
    rc = coll_allgather(c, x, BIG, all, err);
    for (int k = 0; rc == 0 && k < size; k++)
        for (int i = 0; i < BIG; i++)
            assert_int_equal(all[(size_t)k * BIG + (size_t)i], 10 + k);
    if (rc == 0)
        rc = coll_broadcast(c, x, BIG, size - 1, err);
    for (int i = 0; rc == 0 && i < BIG; i++)
        assert_int_equal(x[i], 10 + size - 1);
    r->param[0] = (float)r->k; /* device memory, which the fake keeps in ours */
    if (rc == 0)
        rc = coll_broadcast(c, r->param, sizeof(float), size - 1, err);
    assert_true(rc < 0 || r->param[0] == (float)(size - 1));
    r->param[0] = 0;
    if (rc == 0)
        rc = coll_barrier(c, err);
    free(x);
    free(all);
    return rc;
}

static void bytes_arrive(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        struct job j = {.after = move_bytes};

        fake_reset();
        run(&j, size);
        assert_fine(&j);
    }
}

/* Overlap: what the backend queues behind an all-reduce does not wait for it, until coll_wait. */
static int overlap(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int64_t ticket;

    r->n_computed = 0;
    fake_kernel(r->cuda.stream, compute, r);
    if (r->k == 0) { /* rank 1's comes when rank 0 has gone on */
        ticket = coll_allreduce(c, r->grad, BUCKET, DTYPE_F32, COLL_SUM, 0, err);
        fake_kernel(r->cuda.stream, compute_more, r);
        if (finish_step(r, c, err) < 0)
            return err->code;
        assert_true(r->grad[N_GRAD - 1] == 1.0f);
        assert_true(r->grad[0] == 1.0f); /* not yet summed */
        r->job->n_there++;
    } else {
        while (!r->job->n_there)
            sched_yield();
        ticket = coll_allreduce(c, r->grad, BUCKET, DTYPE_F32, COLL_SUM, 0, err);
    }
    if (ticket < 0 || coll_wait(c, ticket, err) < 0 || finish_step(r, c, err) < 0)
        return err->code;
    assert_true(r->grad[0] == 3.0f);
    return 0;
}

static void all_reduces_overlap(void **state)
{
    struct job j = {.after = overlap};

    (void)state;
    run(&j, 2);
    assert_fine(&j);
}

static int bad_arguments(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    struct coll_stats s;
    struct coll_head h;

    assert_int_equal(coll_allreduce(c, r->grad, 8, DTYPE_I32, COLL_SUM, 0, err), ERR_ARG);
    assert_int_equal(coll_allreduce(c, r->grad, 8, DTYPE_F32, COLL_MAX, 0, err), ERR_ARG);
    assert_int_equal(coll_wait(c, 1000, err), ERR_ARG);
    assert_true(coll_allreduce(c, r->grad, 8, DTYPE_BF16, COLL_SUM, 5, err) > 0);
    coll_head(c, &h);
    assert_int_equal(h.tag, 5);
    assert_int_equal(h.n_bytes, 16);
    assert_true(coll_allreduce(c, r->grad, 8, DTYPE_F16, COLL_SUM, 0, err) > 0);
    assert_true(coll_allreduce(c, r->grad, 0, DTYPE_F32, COLL_SUM, 0, err) > 0);
    coll_stats(c, &s);
    assert_int_equal(s.n_calls, 2 + 1 + 3); /* warming up (all-reduce and barrier), broadcast */
    assert_true(coll_is_device(c));
    assert_string_equal(coll_kind(c), "nccl");
    return coll_barrier(c, err);
}

static void arguments_are_checked(void **state)
{
    struct coll_device_options o = {
        .rank = 0, .size = 300, .name = "x/1", .stop_ms = 1, .stuck = stuck};
    struct job j = {.after = bad_arguments};
    struct cuda cuda = {.device = 0};
    uint8_t ids[3 * COLL_ID_BYTES] = {0};
    struct coll *c;
    struct err err;

    (void)state;
    run(&j, 2);
    assert_fine(&j);
    assert_int_equal(coll_device_n_ids(1), 1);
    assert_int_equal(coll_device_n_ids(128), 1);
    assert_int_equal(coll_device_n_ids(129), 2);
    assert_int_equal(coll_device_new(&coll_nccl_ops, &cuda.base, &o, &c, &err), 0);
    assert_int_equal(coll_device_connect(c, ids, 2 * COLL_ID_BYTES, 1, &err), ERR_PROTO);
    assert_non_null(strstr(err.msg, "256 bytes of nccl's ids, want 3 of 128 bytes for 300 ranks"));
    coll_free(c);
    o.rank = 300;
    assert_int_equal(coll_device_new(&coll_nccl_ops, &cuda.base, &o, &c, &err), ERR_ARG);
    assert_int_equal(fake_open_things(), 0);
}

/* ---- failures ---- */

/* The n-th call of rank 0's threads fails, n swept; rank 1 hears of it from the driver. */
static void every_call_may_fail(void **state)
{
    int n = 1, n_failures = 0;

    (void)state;
    for (;; n++) {
        struct job j = {0};
        const struct rank *r = &j.rank[0];

        fake_reset();
        fake_fail_at(0, n);
        run(&j, 2);
        if (fake_fail_left(0) > 0)
            break;
        n_failures++;
        if (r->rc == 0 && r->n_applied != N_STEPS)
            fail_msg("call %d (%s) failed, and nobody noticed", n, fake_failed_call());
        if (r->rc < 0 && r->err.code != ERR_DEVICE)
            fail_msg("call %d (%s): %s", n, fake_failed_call(), r->err.msg);
        if (j.rank[1].rc < 0 && j.rank[1].err.code != ERR_CANCELED)
            fail_msg("call %d (%s): rank 1: %s", n, fake_failed_call(), j.rank[1].err.msg);
        if (j.n_stuck == 0 && fake_open_things() != 0)
            fail_msg("call %d (%s): %d things are left", n, fake_failed_call(), fake_open_things());
    }
    printf("%d calls failed, one at a time\n", n_failures);
    assert_true(n_failures > 150);
}

static int is_over(struct job *j)
{
    int over;

    pthread_mutex_lock(&j->lock);
    over = j->is_over;
    pthread_mutex_unlock(&j->lock);
    return over;
}

/* Rank 1 takes part in one step, and goes when rank 0 is in the second: with an error, or so that
 * only NCCL sees it. */
static int vanish(struct rank *r, struct err *err)
{
    struct job *j = r->job;
    struct coll *c = j->coll[r->k];
    int rc = record_step(r, c, err);

    if (rc == 0)
        rc = launch(r, err);
    if (rc == 0)
        rc = finish_step(r, c, err);
    if (rc < 0)
        return rc;
    if (r->k == 1) {
        while (!j->n_there || (j->nccl_sees && !is_over(j)))
            sched_yield();
        return err_set(err, ERR_IO, "this rank fails");
    }
    rc = launch(r, err);
    if (j->nccl_sees)
        fake_async_error(0);
    j->n_there++;
    return rc < 0 ? rc : finish_step(r, c, err);
}

static const char *const stop_words[] = {"ncclCommRevoke",       "ncclCommAbort",
                                         "cudaGraphExecDestroy", "ncclCommFinalize",
                                         "ncclCommDestroy",      NULL};

static void assert_order(const char *const *want)
{
    char *log = fake_log(stop_words);
    const char *at = log;

    for (; *want; want++) {
        const char *next = strstr(at, *want);

        if (!next)
            fail_msg("no %s in its place in %s", *want, log);
        at = next + strlen(*want);
    }
    free(log);
}

/* A rank fails in the midst of a step: the driver aborts; nothing of that step is applied. */
static void a_lost_rank_ends_the_step(void **state)
{
    struct job j = {.after = vanish};

    (void)state;
    run(&j, 2);
    assert_int_equal(j.rank[0].err.code, ERR_CANCELED);
    assert_int_equal(j.rank[0].quiesced, ERR_CANCELED);
    assert_int_equal(j.rank[0].n_applied, 1);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommRevoke", "0:cudaGraphExecDestroy",
                                       "0:ncclCommDestroy", NULL});
}

/* NCCL itself notices, and says so to coll_poll. */
static void an_asynchronous_error_ends_the_step(void **state)
{
    struct job j = {.after = vanish, .nccl_sees = 1};

    (void)state;
    run(&j, 2);
    assert_int_equal(j.rank[0].err.code, ERR_PEER);
    assert_non_null(strstr(j.rank[0].err.msg, "remote process exited"));
    assert_int_equal(j.rank[0].n_applied, 1);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommRevoke", "0:cudaGraphExecDestroy",
                                       "0:ncclCommDestroy", NULL});
}

/* Revoke does not help: Abort, in a thread, which waits for the recordings to go. */
static void a_revoke_that_hangs_is_followed_by_an_abort(void **state)
{
    struct job j = {.after = vanish, .stop_ms = 200};

    (void)state;
    fake_hang(FAKE_HANG_REVOKE);
    run(&j, 2);
    assert_int_equal(j.rank[0].n_applied, 1);
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommRevoke", "0:ncclCommAbort",
                                       "0:cudaGraphExecDestroy", NULL});
}

/* The last test: what was lost stays. */
static void what_cannot_be_stopped_ends_the_process(void **state)
{
    static const struct {
        enum fake_hang hang;
        const char *says;
    } cases[] = {
        {FAKE_HANG_KERNELS, "neither revoking nor aborting it has stopped its kernels"},
        {FAKE_HANG_DESTROY, "ending it has not come to an end"},
    };
    static struct job jobs[ARRAY_LEN(cases)]; /* threads go on using them */

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct job *j = &jobs[i];

        *j = (struct job){.after = vanish, .stop_ms = 100};
        fake_hang(cases[i].hang);
        run(j, 2);
        assert_int_equal(j->rank[0].n_applied, 1);
        assert_true(j->n_stuck > 0);
        if (!strstr(j->stuck, cases[i].says) || !strstr(j->stuck, "this process must end"))
            fail_msg("\"%s\" does not say \"%s\"", j->stuck, cases[i].says);
    }
}

/* ---- connecting ---- */

static void connecting_has_a_deadline(void **state)
{
    struct job j = {.connect_ms = 100};

    (void)state;
    fake_hang(FAKE_HANG_INIT);
    run(&j, 2);
    assert_true(j.rank[0].err.code == ERR_TIMEOUT || j.rank[1].err.code == ERR_TIMEOUT);
    assert_non_null(strstr(j.rank[j.rank[0].err.code != ERR_TIMEOUT].err.msg,
                           "by nccl: cannot reach the other ranks: NCCL has not done it in time"));
    assert_int_equal(j.n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
    assert_order((const char *const[]){"0:ncclCommAbort", NULL});
}

static void *abort_when_there(void *arg)
{
    struct job *j = arg;
    int n = 0;

    while (n < j->size) {
        n = 0;
        pthread_mutex_lock(&j->lock);
        for (int k = 0; k < j->size; k++)
            n += j->coll[k] != NULL;
        pthread_mutex_unlock(&j->lock);
        sched_yield();
    }
    abort_all(j);
    return NULL;
}

static void connecting_can_be_aborted(void **state)
{
    struct job j = {0};
    pthread_t thread;

    (void)state;
    fake_hang(FAKE_HANG_INIT);
    job_begin(&j, 2);
    pthread_create(&thread, NULL, abort_when_there, &j);
    run(&j, 2);
    pthread_join(thread, NULL);
    assert_int_equal(j.rank[0].err.code, ERR_CANCELED);
    assert_int_equal(j.rank[1].err.code, ERR_CANCELED);
    assert_int_equal(fake_open_things(), 0);
}

/* What is queued does not end, and nobody aborts: quiesce itself gives up in time. */
static int leave_early(struct rank *r, struct err *err)
{
    struct coll *c = r->job->coll[r->k];
    int rc = record_step(r, c, err);

    if (rc == 0 && r->k == 0)
        rc = launch(r, err);
    return rc;
}

static void quiesce_has_a_deadline(void **state)
{
    struct job j = {.after = leave_early, .finish_ms = 100};

    (void)state;
    run(&j, 2);
    assert_int_equal(j.rank[0].rc, 0);
    assert_int_equal(j.rank[0].quiesced, ERR_TIMEOUT);
    assert_int_equal(j.rank[0].n_applied, 0);
    assert_int_equal(j.rank[1].quiesced, 0);
    assert_int_equal(fake_open_things(), 0);
}

/* Aborts at any moment, from another thread, while the ranks train. */
static void *abort_soon(void *arg)
{
    struct job *j = arg;

    while (!j->n_there)
        sched_yield();
    for (int i = 0; i < j->n_there * 7; i++)
        sched_yield();
    abort_all(j);
    return NULL;
}

static void aborts_come_at_any_moment(void **state)
{
    (void)state;
    for (int i = 1; i < 150; i++) {
        struct job j = {0};
        pthread_t thread;

        fake_reset();
        j.n_there = i;
        job_begin(&j, 2);
        pthread_create(&thread, NULL, abort_soon, &j);
        run(&j, 2);
        pthread_join(thread, NULL);
        for (int k = 0; k < 2; k++)
            if (j.rank[k].rc < 0 && j.rank[k].err.code != ERR_CANCELED)
                fail_msg("rank %d: %s", k, j.rank[k].err.msg);
        assert_int_equal(j.n_stuck, 0);
        assert_int_equal(fake_open_things(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steps_are_replayed, setup),
        cmocka_unit_test_setup(an_orderly_end, setup),
        cmocka_unit_test_setup(bytes_arrive, setup),
        cmocka_unit_test_setup(all_reduces_overlap, setup),
        cmocka_unit_test_setup(arguments_are_checked, setup),
        cmocka_unit_test_setup(every_call_may_fail, setup),
        cmocka_unit_test_setup(a_lost_rank_ends_the_step, setup),
        cmocka_unit_test_setup(an_asynchronous_error_ends_the_step, setup),
        cmocka_unit_test_setup(a_revoke_that_hangs_is_followed_by_an_abort, setup),
        cmocka_unit_test_setup(connecting_has_a_deadline, setup),
        cmocka_unit_test_setup(connecting_can_be_aborted, setup),
        cmocka_unit_test_setup(quiesce_has_a_deadline, setup),
        cmocka_unit_test_setup(aborts_come_at_any_moment, setup),
        cmocka_unit_test_setup(what_cannot_be_stopped_ends_the_process, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
