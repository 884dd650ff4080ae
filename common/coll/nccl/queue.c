/* queue - the collectives of a coll over NCCL: those that are queued, and those that block.
 *
 * A queued collective: the coll's stream waits for all that the backend's stream holds (fork); the
 * collective follows, then an event, for which coll_wait makes the backend's stream wait (join).
 * While the backend records, the same calls are recorded: the fork draws the coll's stream into the
 * recording, the join leads back.  The communicator does not block, so after each call it is polled
 * until it is ready for the next; recording is no exception.  If NCCL fails in that, the
 * communicator is lost like by any other failure, and the error names what does without recording
 * (train/tape.c); if it never gets ready, coll_abort ends the waiting, by the driver's deadline.
 *
 * Blocking collectives carry memory of the host through a pinned piece and its twin on the
 * device. */
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "coll/nccl/impl.h"

static int is_stream_behind(struct nccl *n, struct err *err)
{
    int rc = nccl_cuda(cudaEventRecord(n->fork, n->cuda->stream), "mark the gradients' place", err);

    return rc < 0 ? rc
                  : nccl_cuda(cudaStreamWaitEvent(n->stream, n->fork, 0),
                              "queue behind the gradients", err);
}

static ncclDataType_t type_of(enum dtype d)
{
    switch (d) {
    case DTYPE_F32:
        return ncclFloat32;
    case DTYPE_F64:
        return ncclFloat64;
    case DTYPE_BF16:
        return ncclBfloat16;
    case DTYPE_F16:
        return ncclFloat16;
    default:
        ASSERT(!"an element type that coll.c lets through");
    }
}

static int copy(struct nccl *n, void *to, const void *from, size_t n_bytes,
                enum cudaMemcpyKind kind, struct err *err)
{
    return nccl_cuda(cudaMemcpyAsync(to, from, n_bytes, kind, n->stream), "copy", err);
}

static int mark_done(struct nccl *n, int64_t ticket, struct err *err)
{
    return nccl_cuda(cudaEventRecord(n->done[ticket % COLL_RING], n->stream),
                     "mark the end of a collective", err);
}

/* ---- what NCCL calls by other names ---- */

static size_t size_of(const struct coll_job *job) { return dtype_size(job->dtype); }

static ncclResult_t allreduce(struct nccl *n, const struct coll_job *job)
{
    return ncclAllReduce(job->x, job->x, (size_t)job->n, type_of(job->dtype), ncclSum, n->comm,
                         n->stream);
}

static int is_even(const struct nccl *n, const struct coll_job *job)
{
    return job->n % n->base.size == 0;
}

/* The first failure of a group's calls. */
static ncclResult_t first_of(ncclResult_t a, ncclResult_t b) { return a == ncclSuccess ? b : a; }

/* NCCL's own reduce-scatter and all-gather take spans of one length alone.  Others are a group of
 * as many reductions, or broadcasts, as there are ranks, which NCCL runs as one. */
static ncclResult_t reduce_scatter(struct nccl *n, const struct coll_job *job)
{
    const struct coll_part own = coll_part_of(job, n->base.size, n->base.rank);
    ncclResult_t st = ncclSuccess;

    if (is_even(n, job))
        return ncclReduceScatter(job->x, own.x, own.n_bytes / size_of(job), type_of(job->dtype),
                                 ncclSum, n->comm, n->stream);
    for (int r = 0; r < n->base.size && st == ncclSuccess; r++) {
        const struct coll_part p = coll_part_of(job, n->base.size, r);

        if (p.n_bytes)
            st = ncclReduce(p.x, p.x, p.n_bytes / size_of(job), type_of(job->dtype), ncclSum, r,
                            n->comm, n->stream);
    }
    return st;
}

static ncclResult_t allgather_spans(struct nccl *n, const struct coll_job *job)
{
    const struct coll_part own = coll_part_of(job, n->base.size, n->base.rank);
    ncclResult_t st = ncclSuccess;

    if (is_even(n, job))
        return ncclAllGather(own.x, job->x, own.n_bytes, ncclInt8, n->comm, n->stream);
    for (int r = 0; r < n->base.size && st == ncclSuccess; r++) {
        const struct coll_part p = coll_part_of(job, n->base.size, r);

        if (p.n_bytes)
            st = ncclBroadcast(p.x, p.x, p.n_bytes, ncclInt8, r, n->comm, n->stream);
    }
    return st;
}

static ncclResult_t broadcast_here(struct nccl *n, const struct coll_job *job)
{
    return ncclBroadcast(job->x, job->x, job->n_bytes, ncclInt8, job->root, n->comm, n->stream);
}

static ncclResult_t send_parts(struct nccl *n, const struct coll_job *job)
{
    ncclResult_t st = ncclSuccess;

    for (int r = 0; r < n->base.size && st == ncclSuccess; r++) {
        const struct coll_part to = coll_part_to(job, r), from = coll_part_from(job, r);

        if (r == n->base.rank)
            continue;
        if (to.n_bytes)
            st = ncclSend(to.x, to.n_bytes, ncclInt8, r, n->comm, n->stream);
        if (st == ncclSuccess && from.n_bytes)
            st = ncclRecv(from.x, from.n_bytes, ncclInt8, r, n->comm, n->stream);
    }
    return st;
}

static ncclResult_t call(struct nccl *n, const struct coll_job *job)
{
    switch (job->what) {
    case COLL_ALLREDUCE:
        return allreduce(n, job);
    case COLL_REDUCE_SCATTER:
        return reduce_scatter(n, job);
    case COLL_ALLGATHER_SPANS:
        return allgather_spans(n, job);
    case COLL_BROADCAST:
        return broadcast_here(n, job);
    case COLL_ALL_TO_ALL:
    case COLL_EXCHANGE:
        return send_parts(n, job);
    case COLL_ALLGATHER:
        break; /* it blocks, and goes another way */
    }
    ASSERT(!"a collective without its line here");
}

/* A collective is one group of calls, of which NCCL makes one piece of work. */
static ncclResult_t call_in_group(struct nccl *n, const struct coll_job *job)
{
    ncclResult_t st = ncclGroupStart(), ended;

    if (st != ncclSuccess)
        return st;
    st = call(n, job);
    ended = ncclGroupEnd();
    return first_of(st, ended);
}

/* Copy the part that this rank gives itself. */
static int copy_own(struct nccl *n, const struct coll_job *job, struct err *err)
{
    struct coll_part to;

    if (job->what != COLL_ALL_TO_ALL)
        return 0;
    to = coll_part_to(job, n->base.rank);
    return to.n_bytes ? copy(n, coll_part_from(job, n->base.rank).x, to.x, to.n_bytes,
                             cudaMemcpyDeviceToDevice, err)
                      : 0;
}

static int queue_call(struct nccl *n, const struct coll_job *job, struct err *err)
{
    if (copy_own(n, job, err) < 0)
        return err->code;
    if (job->n_bytes == 0)
        return 0;
    if (nccl_enter(n, err) < 0)
        return err->code;
    return nccl_begun(n, job->what == COLL_ALLREDUCE ? allreduce(n, job) : call_in_group(n, job),
                      "queue a collective", INT64_MAX, err);
}

/* ---- the blocking ones ---- */

static int wait_on_host(struct nccl *n, int64_t ticket, struct err *err)
{
    int rc = mark_done(n, ticket, err);

    for (int pauses = 0; rc == 0;) {
        const cudaError_t st = cudaEventQuery(n->done[ticket % COLL_RING]);

        if (st != cudaErrorNotReady)
            return nccl_cuda(st, "finish a collective", err);
        (void)cudaGetLastError(); /* no error: it must not be found after the next launch */
        rc = nccl_poll(&n->base, err);
        nccl_pause(&pauses);
    }
    return rc;
}

static int is_on_device(const void *x, int *out, struct err *err)
{
    struct cudaPointerAttributes a = {0};
    int rc = nccl_cuda(cudaPointerGetAttributes(&a, x), "tell where memory lies", err);

    *out = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
    return rc;
}

static int send_from(struct nccl *n, void *x, size_t n_bytes, int root, struct err *err)
{
    if (nccl_enter(n, err) < 0)
        return err->code;
    return nccl_begun(n, ncclBroadcast(x, x, n_bytes, ncclInt8, root, n->comm, n->stream),
                      "queue a broadcast", INT64_MAX, err);
}

static int broadcast_piece(struct nccl *n, uint8_t *x, size_t n_bytes, int root, int64_t ticket,
                           struct err *err)
{
    const int is_root = n->base.rank == root;
    int rc = 0;

    if (is_root) {
        memcpy(n->stage, x, n_bytes);
        rc = copy(n, n->land, n->stage, n_bytes, cudaMemcpyHostToDevice, err);
    }
    if (rc == 0)
        rc = send_from(n, n->land, n_bytes, root, err);
    if (rc == 0 && !is_root)
        rc = copy(n, n->stage, n->land, n_bytes, cudaMemcpyDeviceToHost, err);
    if (rc == 0)
        rc = wait_on_host(n, ticket, err);
    if (rc == 0 && !is_root)
        memcpy(x, n->stage, n_bytes);
    return rc;
}

static int broadcast(struct nccl *n, const struct coll_job *job, int64_t ticket, struct err *err)
{
    int on_device = 0, rc = job->n_bytes ? is_on_device(job->x, &on_device, err) : 0;

    if (rc < 0 || job->n_bytes == 0)
        return rc;
    if (on_device) {
        rc = send_from(n, job->x, job->n_bytes, job->root, err);
        return rc < 0 ? rc : wait_on_host(n, ticket, err);
    }
    for (size_t at = 0; rc == 0 && at < job->n_bytes; at += NCCL_STAGE_BYTES) {
        const size_t left = job->n_bytes - at;

        rc = broadcast_piece(n, (uint8_t *)job->x + at,
                             left < NCCL_STAGE_BYTES ? left : NCCL_STAGE_BYTES, job->root, ticket,
                             err);
    }
    return rc;
}

static int collect(struct nccl *n, const void *mine, void *all, size_t n_bytes, struct err *err)
{
    if (nccl_enter(n, err) < 0)
        return err->code;
    return nccl_begun(n, ncclAllGather(mine, all, n_bytes, ncclInt8, n->comm, n->stream),
                      "queue an all-gather", INT64_MAX, err);
}

/* Gather n_bytes of each rank's memory, from `at` on. */
static int gather_piece(struct nccl *n, const struct coll_job *job, size_t at, size_t n_bytes,
                        int64_t ticket, struct err *err)
{
    uint8_t *own = n->land + (size_t)n->base.rank * n_bytes;
    const size_t size = (size_t)n->base.size;
    int rc;

    memcpy(n->stage, (const uint8_t *)job->mine + at, n_bytes);
    rc = copy(n, own, n->stage, n_bytes, cudaMemcpyHostToDevice, err);
    if (rc == 0)
        rc = collect(n, own, n->land, n_bytes, err);
    if (rc == 0)
        rc = copy(n, n->stage, n->land, size * n_bytes, cudaMemcpyDeviceToHost, err);
    if (rc == 0)
        rc = wait_on_host(n, ticket, err);
    for (size_t r = 0; rc == 0 && r < size; r++)
        memcpy((uint8_t *)job->x + r * job->n_bytes + at, n->stage + r * n_bytes, n_bytes);
    return rc;
}

static int allgather(struct nccl *n, const struct coll_job *job, int64_t ticket, struct err *err)
{
    const size_t most = NCCL_STAGE_BYTES / (size_t)n->base.size;
    int from = 0, to = 0, rc;

    if (job->n_bytes == 0)
        return 0;
    if (is_on_device(job->mine, &from, err) < 0 || is_on_device(job->x, &to, err) < 0)
        return err->code;
    if (from != to)
        return err_set(err, ERR_ARG, "all-gather between memory of the host and of the device");
    if (from) {
        rc = collect(n, job->mine, job->x, job->n_bytes, err);
        return rc < 0 ? rc : wait_on_host(n, ticket, err);
    }
    rc = 0;
    for (size_t at = 0; rc == 0 && at < job->n_bytes; at += most) {
        const size_t left = job->n_bytes - at;

        rc = gather_piece(n, job, at, left < most ? left : most, ticket, err);
    }
    return rc;
}

/* ---- for coll.c ---- */

static int start(struct nccl *n, const struct coll_job *job, int64_t ticket, struct err *err)
{
    int rc = is_stream_behind(n, err);

    if (rc < 0)
        return rc;
    if (job->what == COLL_ALLGATHER)
        return allgather(n, job, ticket, err);
    if (job->blocks)
        return broadcast(n, job, ticket, err);
    rc = queue_call(n, job, err);
    return rc < 0 ? rc : mark_done(n, ticket, err);
}

static void note(struct nccl *n, const struct coll_job *job, int64_t since_ns)
{
    pthread_mutex_lock(&n->book);
    n->stats.n_calls++;
    n->stats.n_bytes += (int64_t)job->n_bytes;
    if (job->blocks)
        n->stats.wait_ns += clock_mono_ns() - since_ns;
    pthread_mutex_unlock(&n->book);
}

int64_t nccl_queue(struct coll *c, const struct coll_job *job, struct err *err)
{
    struct nccl *n = nccl_of(c);
    const int64_t number = n->queued + 1, since_ns = clock_mono_ns();
    int rc = nccl_standing(n, err);

    if (rc < 0)
        return rc;
    if (n->state != NCCL_UP)
        return err_set(err, ERR_ARG,
                       "a collective before the ranks are connected, or after the end");
    rc = start(n, job, number, err);
    if (rc < 0)
        return nccl_fail(n, err);
    n->queued = number;
    if (job->blocks)
        n->waited = number;
    note(n, job, since_ns);
    return coll_ticket(job->channel, number);
}

int nccl_wait(struct coll *c, int64_t ticket, struct err *err)
{
    struct nccl *n = nccl_of(c);
    const int64_t number = coll_number_of(ticket);
    int rc = nccl_standing(n, err);

    if (rc < 0)
        return rc;
    if (number > n->queued)
        return err_set(err, ERR_ARG, "waiting for collective %lld, the last one queued is %lld",
                       (long long)number, (long long)n->queued);
    if (number <= n->waited)
        return 0;
    rc = nccl_cuda(cudaStreamWaitEvent(n->cuda->stream, n->done[number % COLL_RING], 0),
                   "queue behind a collective", err);
    return rc < 0 ? nccl_fail(n, err) : 0;
}

int nccl_poll(struct coll *c, struct err *err)
{
    struct nccl *n = nccl_of(c);
    int rc = nccl_standing(n, err);

    if (rc < 0 || n->state != NCCL_UP)
        return rc;
    rc = nccl_rc(nccl_async(n), "go on", err);
    if (rc < 0) {
        nccl_fail(n, err);
        nccl_poison(n);
        nccl_stop(n);
        return rc;
    }
    return nccl_standing(n, err);
}
