/* queue - the collectives of a coll over NCCL: those that are queued, and those that block.
 *
 * A queued collective: the channel's stream waits for all work in the backend's stream (fork).  The
 * collective follows, and then an event, for which coll_wait makes the backend's stream wait
 * (join). While the backend records, the same calls are recorded: the fork draws the channel's
 * stream into the recording, and the join leads back.
 *
 * The communicator does not block, so after each call it is polled until it is ready for the next
 * one, also while recording.  If NCCL fails in that, the communicator is lost as by any other
 * failure, and the error names the remedy of not recording (step/tape.c).  If the communicator
 * never gets ready, the driver's deadline ends the wait, by coll_abort.
 *
 * Blocking collectives carry memory of the host through a pinned piece and its twin on the
 * device. */
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "coll/nccl/impl.h"

static int queue_n_ranks(const struct nccl_channel *ch) { return ch->coll->base.size; }
static int queue_rank_of(const struct nccl_channel *ch) { return ch->coll->base.rank; }

/* Make the channel's stream wait for what the backend has queued. */
static int fork_stream(struct nccl_channel *ch, struct err *err)
{
    struct nccl *n = ch->coll;
    int rc = nccl_cuda(cudaEventRecord(n->fork, n->cuda->stream), "mark the gradients' place", err);

    return rc < 0 ? rc
                  : nccl_cuda(cudaStreamWaitEvent(ch->stream, n->fork, 0),
                              "queue behind the gradients", err);
}

static ncclDataType_t queue_type_of(enum dtype d)
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

static int queue_copy(struct nccl_channel *ch, void *to, const void *from, size_t n_bytes,
                      enum cudaMemcpyKind kind, struct err *err)
{
    return nccl_cuda(cudaMemcpyAsync(to, from, n_bytes, kind, ch->stream), "copy", err);
}

static int mark_done(struct nccl_channel *ch, int64_t ticket, struct err *err)
{
    return nccl_cuda(cudaEventRecord(ch->done[ticket % COLL_RING], ch->stream),
                     "mark the end of a collective", err);
}

/* ---- the collectives by NCCL's names ---- */

static size_t queue_size_of(const struct coll_job *job) { return dtype_size(job->dtype); }

static ncclResult_t queue_allreduce(struct nccl_channel *ch, const struct coll_job *job)
{
    return ncclAllReduce(job->x, job->x, (size_t)job->n, queue_type_of(job->dtype), ncclSum,
                         ch->comm, ch->stream);
}

static int is_even(const struct nccl_channel *ch, const struct coll_job *job)
{
    return job->n % queue_n_ranks(ch) == 0;
}

/* The first failure of a group's calls. */
static ncclResult_t queue_first_of(ncclResult_t a, ncclResult_t b)
{
    return a == ncclSuccess ? b : a;
}

/* NCCL's own reduce-scatter and all-gather need spans of equal length.  Other spans are a group of
 * as many reductions, or broadcasts, as there are ranks, which NCCL runs as one operation. */
static ncclResult_t queue_reduce_scatter(struct nccl_channel *ch, const struct coll_job *job)
{
    const struct coll_part own = coll_part_of(job, queue_n_ranks(ch), queue_rank_of(ch));
    ncclResult_t st = ncclSuccess;

    if (is_even(ch, job))
        return ncclReduceScatter(job->x, own.x, own.n_bytes / queue_size_of(job),
                                 queue_type_of(job->dtype), ncclSum, ch->comm, ch->stream);
    for (int r = 0; r < queue_n_ranks(ch) && st == ncclSuccess; r++) {
        const struct coll_part p = coll_part_of(job, queue_n_ranks(ch), r);

        if (p.n_bytes)
            st = ncclReduce(p.x, p.x, p.n_bytes / queue_size_of(job), queue_type_of(job->dtype),
                            ncclSum, r, ch->comm, ch->stream);
    }
    return st;
}

static ncclResult_t queue_allgather_spans(struct nccl_channel *ch, const struct coll_job *job)
{
    const struct coll_part own = coll_part_of(job, queue_n_ranks(ch), queue_rank_of(ch));
    ncclResult_t st = ncclSuccess;

    if (is_even(ch, job))
        return ncclAllGather(own.x, job->x, own.n_bytes, ncclInt8, ch->comm, ch->stream);
    for (int r = 0; r < queue_n_ranks(ch) && st == ncclSuccess; r++) {
        const struct coll_part p = coll_part_of(job, queue_n_ranks(ch), r);

        if (p.n_bytes)
            st = ncclBroadcast(p.x, p.x, p.n_bytes, ncclInt8, r, ch->comm, ch->stream);
    }
    return st;
}

static ncclResult_t broadcast_here(struct nccl_channel *ch, const struct coll_job *job)
{
    return ncclBroadcast(job->x, job->x, job->n_bytes, ncclInt8, job->root, ch->comm, ch->stream);
}

static ncclResult_t queue_send_parts(struct nccl_channel *ch, const struct coll_job *job)
{
    ncclResult_t st = ncclSuccess;

    for (int r = 0; r < queue_n_ranks(ch) && st == ncclSuccess; r++) {
        const struct coll_part to = coll_part_to(job, r), from = coll_part_from(job, r);

        if (r == queue_rank_of(ch))
            continue;
        if (to.n_bytes)
            st = ncclSend(to.x, to.n_bytes, ncclInt8, r, ch->comm, ch->stream);
        if (st == ncclSuccess && from.n_bytes)
            st = ncclRecv(from.x, from.n_bytes, ncclInt8, r, ch->comm, ch->stream);
    }
    return st;
}

static ncclResult_t nccl_queue_call(struct nccl_channel *ch, const struct coll_job *job)
{
    switch (job->what) {
    case COLL_ALLREDUCE:
        return queue_allreduce(ch, job);
    case COLL_REDUCE_SCATTER:
        return queue_reduce_scatter(ch, job);
    case COLL_ALLGATHER_SPANS:
        return queue_allgather_spans(ch, job);
    case COLL_BROADCAST:
        return broadcast_here(ch, job);
    case COLL_ALL_TO_ALL:
    case COLL_EXCHANGE:
        return queue_send_parts(ch, job);
    case COLL_ALLGATHER:
        break; /* a blocking collective, which other functions run */
    }
    ASSERT(!"a collective without its line here");
}

/* A collective is one group of calls, of which NCCL makes one piece of work. */
static ncclResult_t call_in_group(struct nccl_channel *ch, const struct coll_job *job)
{
    ncclResult_t st = ncclGroupStart(), ended;

    if (st != ncclSuccess)
        return st;
    st = nccl_queue_call(ch, job);
    ended = ncclGroupEnd();
    return queue_first_of(st, ended);
}

/* Copy the part that this rank gives itself. */
static int queue_copy_own(struct nccl_channel *ch, const struct coll_job *job, struct err *err)
{
    struct coll_part to;

    if (job->what != COLL_ALL_TO_ALL)
        return 0;
    to = coll_part_to(job, queue_rank_of(ch));
    return to.n_bytes ? queue_copy(ch, coll_part_from(job, queue_rank_of(ch)).x, to.x, to.n_bytes,
                                   cudaMemcpyDeviceToDevice, err)
                      : 0;
}

static int queue_call(struct nccl_channel *ch, const struct coll_job *job, struct err *err)
{
    if (queue_copy_own(ch, job, err) < 0)
        return err->code;
    if (job->n_bytes == 0)
        return 0;
    if (nccl_enter(ch->coll, err) < 0)
        return err->code;
    return nccl_begun(
        ch->coll, job->what == COLL_ALLREDUCE ? queue_allreduce(ch, job) : call_in_group(ch, job),
        "queue a collective", INT64_MAX, err);
}

/* ---- the blocking ones ---- */

static int wait_on_host(struct nccl_channel *ch, int64_t ticket, struct err *err)
{
    int rc = mark_done(ch, ticket, err);

    for (int pauses = 0; rc == 0;) {
        const cudaError_t st = cudaEventQuery(ch->done[ticket % COLL_RING]);

        if (st != cudaErrorNotReady)
            return nccl_cuda(st, "finish a collective", err);
        (void)cudaGetLastError(); /* no error: it must not be found after the next launch */
        rc = nccl_poll(&ch->coll->base, err);
        nccl_pause(&pauses);
    }
    return rc;
}

static int queue_is_on_device(const void *x, int *out, struct err *err)
{
    struct cudaPointerAttributes a = {0};
    int rc = nccl_cuda(cudaPointerGetAttributes(&a, x), "tell where memory lies", err);

    *out = a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged;
    return rc;
}

static int send_from(struct nccl_channel *ch, void *x, size_t n_bytes, int root, struct err *err)
{
    if (nccl_enter(ch->coll, err) < 0)
        return err->code;
    return nccl_begun(ch->coll, ncclBroadcast(x, x, n_bytes, ncclInt8, root, ch->comm, ch->stream),
                      "queue a broadcast", INT64_MAX, err);
}

static int broadcast_piece(struct nccl_channel *ch, uint8_t *x, size_t n_bytes, int root,
                           int64_t ticket, struct err *err)
{
    const int is_root = queue_rank_of(ch) == root;
    int rc = 0;

    if (is_root) {
        memcpy(ch->coll->stage, x, n_bytes);
        rc = queue_copy(ch, ch->coll->land, ch->coll->stage, n_bytes, cudaMemcpyHostToDevice, err);
    }
    if (rc == 0)
        rc = send_from(ch, ch->coll->land, n_bytes, root, err);
    if (rc == 0 && !is_root)
        rc = queue_copy(ch, ch->coll->stage, ch->coll->land, n_bytes, cudaMemcpyDeviceToHost, err);
    if (rc == 0)
        rc = wait_on_host(ch, ticket, err);
    if (rc == 0 && !is_root)
        memcpy(x, ch->coll->stage, n_bytes);
    return rc;
}

static int queue_broadcast(struct nccl_channel *ch, const struct coll_job *job, int64_t ticket,
                           struct err *err)
{
    int on_device = 0, rc = job->n_bytes ? queue_is_on_device(job->x, &on_device, err) : 0;

    if (rc < 0 || job->n_bytes == 0)
        return rc;
    if (on_device) {
        rc = send_from(ch, job->x, job->n_bytes, job->root, err);
        return rc < 0 ? rc : wait_on_host(ch, ticket, err);
    }
    for (size_t at = 0; rc == 0 && at < job->n_bytes; at += NCCL_STAGE_BYTES) {
        const size_t left = job->n_bytes - at;

        rc = broadcast_piece(ch, (uint8_t *)job->x + at,
                             left < NCCL_STAGE_BYTES ? left : NCCL_STAGE_BYTES, job->root, ticket,
                             err);
    }
    return rc;
}

static int queue_collect(struct nccl_channel *ch, const void *mine, void *all, size_t n_bytes,
                         struct err *err)
{
    if (nccl_enter(ch->coll, err) < 0)
        return err->code;
    return nccl_begun(ch->coll, ncclAllGather(mine, all, n_bytes, ncclInt8, ch->comm, ch->stream),
                      "queue an all-gather", INT64_MAX, err);
}

/* Gather n_bytes of each rank's memory, from `at` on. */
static int gather_piece(struct nccl_channel *ch, const struct coll_job *job, size_t at,
                        size_t n_bytes, int64_t ticket, struct err *err)
{
    uint8_t *own = ch->coll->land + (size_t)queue_rank_of(ch) * n_bytes;
    const size_t size = (size_t)queue_n_ranks(ch);
    int rc;

    memcpy(ch->coll->stage, (const uint8_t *)job->mine + at, n_bytes);
    rc = queue_copy(ch, own, ch->coll->stage, n_bytes, cudaMemcpyHostToDevice, err);
    if (rc == 0)
        rc = queue_collect(ch, own, ch->coll->land, n_bytes, err);
    if (rc == 0)
        rc = queue_copy(ch, ch->coll->stage, ch->coll->land, size * n_bytes, cudaMemcpyDeviceToHost,
                        err);
    if (rc == 0)
        rc = wait_on_host(ch, ticket, err);
    for (size_t r = 0; rc == 0 && r < size; r++)
        memcpy((uint8_t *)job->x + r * job->n_bytes + at, ch->coll->stage + r * n_bytes, n_bytes);
    return rc;
}

static int queue_allgather(struct nccl_channel *ch, const struct coll_job *job, int64_t ticket,
                           struct err *err)
{
    const size_t most = NCCL_STAGE_BYTES / (size_t)queue_n_ranks(ch);
    int from = 0, to = 0, rc;

    if (job->n_bytes == 0)
        return 0;
    if (queue_is_on_device(job->mine, &from, err) < 0 || queue_is_on_device(job->x, &to, err) < 0)
        return err->code;
    if (from != to)
        return err_set(err, ERR_ARG, "all-gather between memory of the host and of the device");
    if (from) {
        rc = queue_collect(ch, job->mine, job->x, job->n_bytes, err);
        return rc < 0 ? rc : wait_on_host(ch, ticket, err);
    }
    rc = 0;
    for (size_t at = 0; rc == 0 && at < job->n_bytes; at += most) {
        const size_t left = job->n_bytes - at;

        rc = gather_piece(ch, job, at, left < most ? left : most, ticket, err);
    }
    return rc;
}

/* ---- for coll.c ---- */

static int queue_start(struct nccl_channel *ch, const struct coll_job *job, int64_t ticket,
                       struct err *err)
{
    int rc = fork_stream(ch, err);

    if (rc < 0)
        return rc;
    if (job->what == COLL_ALLGATHER)
        return queue_allgather(ch, job, ticket, err);
    if (job->blocks)
        return queue_broadcast(ch, job, ticket, err);
    rc = queue_call(ch, job, err);
    return rc < 0 ? rc : mark_done(ch, ticket, err);
}

static void queue_note(struct nccl *n, const struct coll_job *job, int64_t since_ns)
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
    struct nccl_channel *ch = &n->channel[job->channel];
    const int64_t number = ch->queued + 1, since_ns = clock_mono_ns();
    int rc = nccl_standing(n, err);

    if (rc < 0)
        return rc;
    if (n->state != NCCL_UP)
        return err_set(err, ERR_ARG,
                       "a collective before the ranks are connected, or after the end");
    rc = queue_start(ch, job, number, err);
    if (rc < 0)
        return nccl_fail(n, err);
    ch->queued = number;
    if (job->blocks)
        ch->waited = number;
    queue_note(n, job, since_ns);
    return coll_ticket(job->channel, number);
}

static int check_ticket(struct nccl *n, int64_t ticket, struct err *err)
{
    const int64_t number = coll_number_of(ticket),
                  last = n->channel[coll_channel_of(ticket)].queued;
    int rc = nccl_standing(n, err);

    if (rc < 0)
        return rc;
    if (number > last)
        return err_set(err, ERR_ARG, "waiting for collective %lld, the last one queued is %lld",
                       (long long)number, (long long)last);
    return 0;
}

int nccl_wait(struct coll *c, int64_t ticket, struct err *err)
{
    struct nccl *n = nccl_of(c);
    const struct nccl_channel *ch = &n->channel[coll_channel_of(ticket)];
    const int64_t number = coll_number_of(ticket);
    int rc = check_ticket(n, ticket, err);

    if (rc < 0)
        return rc;
    if (number <= ch->waited)
        return 0;
    rc = nccl_cuda(cudaStreamWaitEvent(n->cuda->stream, ch->done[number % COLL_RING], 0),
                   "queue behind a collective", err);
    return rc < 0 ? nccl_fail(n, err) : 0;
}

/* The event is read first: if an abort made it pass, the abort was noted before that. */
int nccl_passed(struct coll *c, int64_t ticket, struct err *err)
{
    struct nccl *n = nccl_of(c);
    struct nccl_channel *ch = &n->channel[coll_channel_of(ticket)];
    const int64_t number = coll_number_of(ticket);
    cudaError_t st = cudaSuccess;
    int rc = check_ticket(n, ticket, err);

    if (rc < 0)
        return rc;
    ASSERT(number + COLL_RING > ch->queued);
    if (number > ch->waited)
        st = cudaEventQuery(ch->done[number % COLL_RING]);
    if (st == cudaErrorNotReady)
        (void)cudaGetLastError(); /* no error: it must not be found after the next launch */
    else if (nccl_cuda(st, "finish a collective", err) < 0)
        return nccl_fail(n, err);
    rc = nccl_poll(c, err);
    return rc < 0 ? rc : st == cudaErrorNotReady;
}

int nccl_poll(struct coll *c, struct err *err)
{
    struct nccl *n = nccl_of(c);
    int rc = nccl_standing(n, err), at_work;

    if (rc < 0 || n->state != NCCL_UP)
        return rc;
    rc = nccl_rc(nccl_async(n, &at_work), "go on", err);
    if (rc < 0) {
        nccl_fail(n, err);
        nccl_poison(n);
        nccl_stop(n);
        return rc;
    }
    return nccl_standing(n, err);
}
