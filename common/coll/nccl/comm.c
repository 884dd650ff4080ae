/* coll/nccl/comm - makes, connects and frees a coll over NCCL.
 *
 * The table of its functions (coll_nccl_ops) is at the end. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/latch.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"
#include "coll/nccl/impl.h"
#include "coll/nccl/ops.h"

_Static_assert(sizeof(ncclUniqueId) == COLL_ID_BYTES, "an id is carried as bytes");

static void free_channel(struct nccl_channel *ch)
{
    for (int i = 0; i < COLL_RING; i++)
        if (ch->done[i])
            (void)cudaEventDestroy(ch->done[i]);
    if (ch->stream)
        (void)cudaStreamDestroy(ch->stream);
}

static void free_things(struct nccl *n)
{
    for (int i = 0; i < COLL_CHANNELS; i++)
        free_channel(&n->channel[i]);
    if (n->fork)
        (void)cudaEventDestroy(n->fork);
    if (n->poison)
        (void)cudaFreeHost(n->poison);
    if (n->stage)
        (void)cudaFreeHost(n->stage);
    if (n->land)
        (void)cudaFree(n->land);
    pthread_cond_destroy(&n->reaped);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->book);
    free(n);
}

/* Free the coll.  If it could not be ended, the memory and objects that it uses are left to it. */
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

static int make_event(cudaEvent_t *out, struct err *err)
{
    return nccl_cuda(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "make an event", err);
}

static int make_channel(struct nccl_channel *ch, int priority, struct err *err)
{
    int rc = nccl_cuda(cudaStreamCreateWithPriority(&ch->stream, cudaStreamNonBlocking, priority),
                       "make a stream", err);

    for (int i = 0; rc == 0 && i < COLL_RING; i++)
        rc = make_event(&ch->done[i], err);
    return rc;
}

/* Make the channels' streams.  A higher priority is a smaller number.  Both channels have priority
 * over the backend's kernels, and the urgent one has the highest. */
static int make_channels(struct nccl *n, struct err *err)
{
    int least = 0, greatest = 0, rc;

    rc = nccl_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask the GPU", err);
    if (rc == 0)
        rc = make_channel(&n->channel[COLL_URGENT], greatest, err);
    if (rc == 0)
        rc = make_channel(&n->channel[COLL_BULK], greatest + (greatest + 1 < least), err);
    return rc < 0 ? rc : make_event(&n->fork, err);
}

static int comm_make_memory(struct nccl *n, struct err *err)
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
    for (int i = 0; i < COLL_CHANNELS; i++)
        n->channel[i].coll = n;
    pthread_mutex_init(&n->lock, NULL);
    cond_init(&n->reaped);
    pthread_mutex_init(&n->book, NULL);
    rc = make_channels(n, err);
    if (rc == 0)
        rc = comm_make_memory(n, err);
    if (rc < 0) {
        free_things(n);
        (void)cudaGetLastError();
        return rc;
    }
    *out = &n->base;
    return 0;
}

/* ---- connect ----
 *
 * Two communicators on one GPU can deadlock: if one rank's GPU has room for a kernel of the bulk
 * channel alone, and another rank's for one of the urgent channel alone, each waits for the other.
 * So the two together have fewer thread blocks than a GPU has multiprocessors: each kernel then
 * gets its place as soon as kernels of other kinds, which all end by themselves, leave it one.
 * That also holds for an urgent sum that runs beside many steps (strategy async).  For as long as
 * it waits for slow links it occupies URGENT_BLOCKS multiprocessors at most.  All ranks queue it
 * between the same two steps.  So even a GPU that started all kernels in the order in which the
 * host queued them would not deadlock; the steps would then wait for the sum.
 *
 * CUDA does run two branches of a recording at the same time, but does not promise it.  If ranks
 * ever hang there, NCCL_LAUNCH_ORDER_IMPLICIT=1 in every rank's environment makes NCCL start the
 * kernels in the order in which the host queued them.
 *
 * The host, too, may wait in a call: NCCL connects what a collective needs when it is called for
 * the first time.  coll/device.h has the rule that follows. */

enum { BULK_BLOCKS = 32, URGENT_BLOCKS = 2 };

static ncclConfig_t comm_config_of(const struct nccl *n, int max_blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    config.commName = n->o.name;
    config.maxCTAs = max_blocks;
    return config;
}

static int comm_init(struct nccl *n, const uint8_t *ids, int n_ids, int64_t until_ns,
                     struct err *err)
{
    ncclConfig_t config = comm_config_of(n, BULK_BLOCKS);
    ncclUniqueId *id = xcalloc((size_t)n_ids, sizeof *id);
    int rc;

    memcpy(id, ids, (size_t)n_ids * sizeof *id);
    rc = nccl_enter(n, err);
    if (rc == 0)
        rc = nccl_begun(n,
                        ncclCommInitRankScalable(&n->channel[COLL_BULK].comm, n->base.size,
                                                 n->base.rank, n_ids, id, &config),
                        "reach the other ranks", until_ns, err);
    free(id);
    return rc;
}

/* Make the urgent channel's communicator: a split of the bulk channel's, with all its ranks.  It
 * shares no resources with that one, because both run at the same time.  If the splitting is
 * aborted, NCCL may still store the new communicator until the first one has ended (nccl_end). */
static int comm_split(struct nccl *n, int64_t until_ns, struct err *err)
{
    ncclConfig_t config = comm_config_of(n, URGENT_BLOCKS);
    int rc = nccl_enter(n, err);

    config.splitShare = 0;
    if (rc == 0)
        rc = nccl_begun(n,
                        ncclCommSplit(n->channel[COLL_BULK].comm, 0, n->base.rank,
                                      &n->channel[COLL_URGENT].comm, &config),
                        "make the urgent channel", until_ns, err);
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

    ASSERT(n->state == NCCL_NEW && !n->channel[COLL_BULK].comm);
    if (rc == 0)
        rc = comm_init(n, ids, n_ids, until, err);
    if (rc == 0)
        rc = comm_split(n, until, err);
    if (rc < 0)
        return nccl_fail(n, err);
    pthread_mutex_lock(&n->lock);
    n->is_up = 1;
    pthread_mutex_unlock(&n->lock);
    n->state = NCCL_UP; /* an abort that came just before fails the next call: nccl_standing */
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
    .passed = nccl_passed,
    .quiesce = nccl_quiesce,
};
