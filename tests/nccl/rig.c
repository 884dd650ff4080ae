/* rig - the ranks of a job, as threads: the device's part of their work, the driver's and the
 * engine's. */
#include "rig.h"

#include <sched.h>

#include "backend/cuda/latch.h"
#include "base/util.h"
#include "coll/impl.h"

enum { LONG_MS = 60000 };

/* ---- the device's part ---- */

void rank_compute(void *arg) /* backward: the first bucket */
{
    struct rank *r = arg;

    r->n_computed++;
    r->grad[N_GRAD] = 0; /* the veto, where control_pack puts it */
    for (int i = 0; i < BUCKET; i++)
        r->grad[i] = (float)(r->n_computed * (r->k + 1));
    for (int i = 0; i < N_STATS; i++)
        r->stats[i] = (double)(r->n_computed * (r->k + 1));
}

void rank_compute_more(void *arg)
{
    struct rank *r = arg;

    for (int i = BUCKET; i < N_GRAD; i++)
        r->grad[i] = (float)(r->n_computed * (r->k + 1));
}

static void apply(void *arg)
{
    const struct job *j = ((struct rank *)arg)->job;
    struct rank *r = arg;

    if (r->grad[N_GRAD] > 0.0f)
        return;
    for (int i = 0; i < N_STATS; i++)
        ASSERT(r->stats[i] == (double)(r->n_computed * (j->size * (j->size + 1) / 2)));
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
    struct rank *r = arg;

    snprintf(r->stuck, sizeof r->stuck, "%s", text);
    r->job->n_stuck++;
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
    ASSERT(fake_calls_here() == 0); /* a thread without a device must not call the runtime */
    return NULL;
}

void job_abort(struct job *j)
{
    pthread_t loop;

    pthread_create(&loop, NULL, abort_main, j);
    pthread_join(loop, NULL);
}

/* As the engine's set_coll does: an abort may have come before there was a coll to abort. */
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
        rc = coll_device_alloc(&coll_nccl_ops, &r->cuda.base, (N_GRAD + 1) * sizeof(float),
                               "gradients", (void **)&r->grad, err);
    if (rc == 0)
        rc = cuda_rc(cudaMalloc((void **)&r->param, N_GRAD * sizeof(float)), "alloc", err);
    if (rc == 0)
        rc = cuda_rc(cudaMalloc((void **)&r->stats, N_STATS * sizeof(double)), "alloc", err);
    if (rc == 0)
        rc = cuda_rc(cudaMemsetAsync(r->stats, 0, N_STATS * sizeof(double), r->cuda.stream), "set",
                     err);
    if (rc == 0)
        rc = cuda_rc(cudaMemsetAsync(r->param, 0, N_GRAD * sizeof(float), r->cuda.stream), "set",
                     err);
    return rc;
}

int rank_meet(struct coll *c, struct err *err)
{
    uint8_t mine = 0, all[MAX_RANKS];

    return coll_allgather(c, &mine, 1, all, err);
}

static int sum_now(struct rank *r, struct coll *c, struct err *err)
{
    const int64_t ticket = coll_allreduce(c, COLL_URGENT, r->stats, N_STATS, DTYPE_F64, 2, err);

    return ticket < 0 ? (int)ticket : coll_wait(c, ticket, err);
}

/* Run the collectives once before they are recorded, as in the engine's first step. */
static int warm(struct rank *r, struct coll *c, struct err *err)
{
    const int64_t ticket = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);

    if (ticket < 0 || coll_wait(c, ticket, err) < 0 || sum_now(r, c, err) < 0)
        return err->code;
    return rank_meet(c, err);
}

static int form(struct rank *r, struct coll **c, struct err *err)
{
    struct job *j = r->job;
    struct coll_device_options o = {
        .rank = r->k, .size = j->size, .stop_ms = j->stop_ms, .stuck = stuck, .arg = r};
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

    fake_kernel(s, rank_compute, r);
    first = coll_allreduce(c, COLL_BULK, r->grad, BUCKET, DTYPE_F32, 0, err);
    if (first < 0)
        return (int)first;
    if (sum_now(r, c, err) < 0)
        return err->code;
    fake_kernel(s, rank_compute_more, r);
    second = coll_allreduce(c, COLL_BULK, r->grad + BUCKET, N_GRAD - BUCKET, DTYPE_F32, 1, err);
    if (second < 0 || coll_wait(c, first, err) < 0 || coll_wait(c, second, err) < 0 ||
        coll_device_latch(c, r->grad + N_GRAD, err) < 0)
        return err->code;
    fake_kernel(s, apply, r);
    return 0;
}

int rank_record_step(struct rank *r, struct coll *c, struct err *err)
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
        rc = cuda_rc(cudaGraphInstantiate(&r->step, g, cudaGraphInstantiateFlagUseNodePriority),
                     "instantiate", err);
    if (g)
        (void)cudaGraphDestroy(g);
    return rc;
}

/* The coll is asked last: the stream may have run empty because of an abort. */
int rank_finish_step(struct rank *r, struct coll *c, struct err *err)
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

int rank_launch(struct rank *r, struct err *err)
{
    return cuda_rc(cudaGraphLaunch(r->step, r->cuda.stream), "launch", err);
}

static int train(struct rank *r, struct coll *c, struct err *err)
{
    int rc = rank_record_step(r, c, err);

    for (int i = 0; rc == 0 && i < N_STEPS; i++) {
        rc = rank_launch(r, err);
        if (rc == 0)
            rc = rank_finish_step(r, c, err);
    }
    return rc;
}

static void close_device(struct rank *r)
{
    coll_device_free(&coll_nccl_ops, &r->cuda.base, r->grad);
    if (r->param)
        (void)cudaFree(r->param);
    if (r->stats)
        (void)cudaFree(r->stats);
    if (r->cuda.stream)
        (void)cudaStreamDestroy(r->cuda.stream);
}

/* Assert that only whole sums were applied. */
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

/* Things that a rank could not free stay reachable here, so that LeakSanitizer does not report
 * them. */
static volatile struct {
    struct coll *coll;
    cudaGraphExec_t step;
} lost[MAX_RANKS];

static void end(struct rank *r, struct coll *c)
{
    if (c)
        r->quiesced = coll_device_quiesce(c, r->k == 0 ? r->job->finish_ms : LONG_MS, &r->end);
    publish(r, NULL);
    lost[r->k].coll = c;
    lost[r->k].step = r->step;
    if (r->job->n_stuck) /* a real process would end now */
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
        job_abort(r->job);
    end(r, c);
    if (r->param)
        check_param(r);
    if (r->job->n_stuck == 0)
        close_device(r);
    return NULL;
}

/* See rig.h: to be called before job_run if another thread uses the job. */
void job_begin(struct job *j, int size)
{
    if (j->size)
        return;
    j->size = size;
    pthread_mutex_init(&j->lock, NULL);
}

void job_run(struct job *j, int size)
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

int job_is_over(struct job *j)
{
    int over;

    pthread_mutex_lock(&j->lock);
    over = j->is_over;
    pthread_mutex_unlock(&j->lock);
    return over;
}

int job_setup(void **state)
{
    (void)state;
    fake_reset();
    return 0;
}

void job_assert_fine(const struct job *j)
{
    for (int k = 0; k < j->size; k++) {
        if (j->rank[k].rc < 0)
            fail_msg("rank %d: %s", k, j->rank[k].err.msg);
        assert_int_equal(j->rank[k].quiesced, 0);
    }
    assert_int_equal(j->n_stuck, 0);
    assert_int_equal(fake_open_things(), 0);
}
