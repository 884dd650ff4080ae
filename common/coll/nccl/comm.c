/* coll/nccl/comm - the life of a coll over NCCL: it is made, connected and freed here.
 * Also the table of its functions. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/latch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/nccl/impl.h"
#include "coll/nccl/ops.h"

_Static_assert(sizeof(ncclUniqueId) == COLL_ID_BYTES, "an id is carried as bytes");

static void free_things(struct nccl *n)
{
    for (int i = 0; i < COLL_RING; i++)
        if (n->done[i])
            (void)cudaEventDestroy(n->done[i]);
    if (n->fork)
        (void)cudaEventDestroy(n->fork);
    if (n->stream)
        (void)cudaStreamDestroy(n->stream);
    if (n->poison)
        (void)cudaFreeHost(n->poison);
    if (n->stage)
        (void)cudaFreeHost(n->stage);
    if (n->land)
        (void)cudaFree(n->land);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->book);
    free(n);
}

/* A coll that could not be ended keeps what it uses. */
static void nccl_free(struct coll *c)
{
    struct nccl *n = nccl_of(c);

    ASSERT(n->state != NCCL_UP); /* coll_device_quiesce comes before */
    nccl_end(n);
    if (n->state != NCCL_LOST)
        free_things(n);
}

static void nccl_stats(struct coll *c, struct coll_stats *out)
{
    struct nccl *n = nccl_of(c);

    pthread_mutex_lock(&n->book);
    *out = n->stats;
    pthread_mutex_unlock(&n->book);
}

static const struct coll_ops nccl_coll_ops = {
    .queue = nccl_queue,
    .wait = nccl_wait,
    .abort = nccl_abort,
    .free = nccl_free,
    .stats = nccl_stats,
    .poll = nccl_poll,
};

/* ---- make ---- */

static int make_stream(struct nccl *n, struct err *err)
{
    int least = 0, greatest = 0, rc;

    rc = nccl_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask the GPU", err);
    if (rc == 0)
        rc = nccl_cuda(cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, greatest),
                       "make a stream", err);
    if (rc == 0)
        rc = nccl_cuda(cudaEventCreateWithFlags(&n->fork, cudaEventDisableTiming), "make an event",
                       err);
    for (int i = 0; rc == 0 && i < COLL_RING; i++)
        rc = nccl_cuda(cudaEventCreateWithFlags(&n->done[i], cudaEventDisableTiming),
                       "make an event", err);
    return rc;
}

static int make_memory(struct nccl *n, struct err *err)
{
    int rc = nccl_cuda(cudaHostAlloc((void **)&n->poison, sizeof *n->poison,
                                     cudaHostAllocMapped | cudaHostAllocPortable),
                       "allocate pinned memory", err);

    if (rc < 0)
        return rc;
    *n->poison = 0;
    rc = nccl_cuda(cudaHostGetDevicePointer((void **)&n->poison_on_device, n->poison, 0),
                   "show pinned memory to the GPU", err);
    if (rc == 0)
        rc = nccl_cuda(cudaHostAlloc((void **)&n->stage, NCCL_STAGE_BYTES, cudaHostAllocDefault),
                       "allocate pinned memory", err);
    if (rc == 0)
        rc = nccl_cuda(cudaMalloc((void **)&n->land, NCCL_STAGE_BYTES), "allocate GPU memory", err);
    if (rc == 0)
        rc = nccl_cuda(cudaMemsetAsync(n->land, 0, NCCL_STAGE_BYTES, n->stream), "clear memory",
                       err);
    return rc;
}

static int nccl_make(struct backend *b, const struct coll_device_options *o, struct coll **out,
                     struct err *err)
{
    struct nccl *n = xcalloc(1, sizeof *n);
    int rc;

    coll_init(&n->base, &nccl_coll_ops, "nccl", o->rank, o->size);
    n->base.dtypes |= 1u << DTYPE_BF16 | 1u << DTYPE_F16;
    n->base.device = &coll_nccl_ops;
    n->cuda = container_of(b, struct cuda, base);
    n->o = *o;
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->book, NULL);
    rc = make_stream(n, err);
    if (rc == 0)
        rc = make_memory(n, err);
    if (rc < 0) {
        free_things(n);
        (void)cudaGetLastError();
        return rc;
    }
    *out = &n->base;
    return 0;
}

/* ---- connect ---- */

static int init(struct nccl *n, const uint8_t *ids, int n_ids, int64_t until_ns, struct err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId *id = xcalloc((size_t)n_ids, sizeof *id);
    int rc;

    config.blocking = 0;
    config.commName = n->o.name;
    memcpy(id, ids, (size_t)n_ids * sizeof *id);
    rc = nccl_enter(n, err);
    if (rc == 0)
        rc = nccl_begun(
            n, ncclCommInitRankScalable(&n->comm, n->base.size, n->base.rank, n_ids, id, &config),
            "reach the other ranks", until_ns, err);
    free(id);
    return rc;
}

static int nccl_connect(struct coll *c, const uint8_t *ids, int n_ids, int64_t deadline_ms,
                        struct err *err)
{
    struct nccl *n = nccl_of(c);
    const int64_t now = clock_mono_ns();
    const int64_t until =
        deadline_ms < (INT64_MAX - now) / 1000000 ? now + deadline_ms * 1000000 : INT64_MAX;
    int rc = nccl_standing(n, err);

    ASSERT(n->state == NCCL_NEW && !n->comm);
    if (rc == 0)
        rc = init(n, ids, n_ids, until, err);
    if (rc < 0)
        return nccl_fail(n, err);
    pthread_mutex_lock(&n->lock);
    n->is_up = 1;
    pthread_mutex_unlock(&n->lock);
    if (atomic_load(&n->aborted)) /* read after is_up is 1: see nccl_stop */
        nccl_stop(n);
    n->state = NCCL_UP;
    return 0;
}

/* ---- the rest of the table ---- */

static int nccl_library(int *version, struct err *err)
{
    return nccl_rc(ncclGetVersion(version), "ask its version", err);
}

static int nccl_make_id(uint8_t id[COLL_ID_BYTES], struct err *err)
{
    ncclUniqueId made;
    int rc = nccl_rc(ncclGetUniqueId(&made), "make an id", err);

    if (rc == 0)
        memcpy(id, &made, sizeof made);
    return rc;
}

static int nccl_latch(struct coll *c, float *veto, struct err *err)
{
    struct nccl *n = nccl_of(c);

    return latch_queue(n->cuda, n->poison_on_device, veto, err);
}

const struct coll_device_ops coll_nccl_ops = {
    .version = COLL_DEVICE_VERSION,
    .layout = COLL_DEVICE_LAYOUT,
    .name = "nccl",
    .library = nccl_library,
    .make_id = nccl_make_id,
    .make = nccl_make,
    .connect = nccl_connect,
    .alloc = nccl_alloc,
    .free = nccl_free_memory,
    .enroll = nccl_enroll,
    .latch = nccl_latch,
    .quiesce = nccl_quiesce,
};
