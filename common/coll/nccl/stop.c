/* stop - how collectives are stopped.
 *
 * When a rank is gone, no work that NCCL has queued ends by itself: its kernels wait, and so does
 * all work that is queued after them, in recordings, too.  So these things are done, in this order:
 *   1. The poison word is set: all kernels from the latch on read that they must not apply the
 * step.
 *   2. Each channel's communicator is aborted, in a thread of its own: its kernels return, with
 *      garbage in the gradients, and so does each kernel that is launched afterwards.
 *   3. All streams run empty.
 *   4. The engine frees its recordings, which hold the communicators.
 *   5. The threads, which have waited for 4, free the communicators.
 * The first caller that notices the failure, nccl_poll or nccl_abort, does 1 and 2.  nccl_quiesce
 * waits for 3, and nccl_end for 5.  If the streams stay busy, or if a thread does not end after 4,
 * the process must end (options.stuck).  A device that has failed runs nothing any more:
 * nccl_quiesce then returns that failure, and 4 and 5 follow as always.
 *
 * Why not ncclCommRevoke, which stops without freeing:
 *   - It takes its stop back once it has found nothing running.  So a recording that is launched a
 *     moment later waits for ever.
 *   - The communicator then no longer waits for 4 before it is freed, though recordings write to it
 *     when they are freed, which may be later.
 *   - ncclCommDestroy refuses a communicator whose network has failed. */
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"
#include "coll/nccl/impl.h"

/* ---- threads apart ---- */

static void tell_reaped(struct nccl_channel *ch)
{
    pthread_mutex_lock(&ch->coll->lock);
    ch->is_reaped = 1;
    pthread_cond_broadcast(&ch->coll->reaped);
    pthread_mutex_unlock(&ch->coll->lock);
}

static void *abort_main(void *arg)
{
    struct nccl_channel *ch = arg;

    (void)cudaSetDevice(ch->coll->cuda->device);
    (void)ncclCommAbort(ch->comm);
    tell_reaped(ch);
    return NULL;
}

static void *destroy_main(void *arg)
{
    struct nccl_channel *ch = arg;

    (void)cudaSetDevice(ch->coll->cuda->device);
    (void)ncclCommDestroy(ch->comm);
    tell_reaped(ch);
    return NULL;
}

static void reap_apart(struct nccl_channel *ch, void *(*how)(void *arg))
{
    ch->has_reaper = pthread_create(&ch->reaper, NULL, how, ch) == 0;
}

/* Start to stop.  If the engine's thread is inside NCCL, that thread does the stopping: it reads
 * `aborted` when it comes out. */
void nccl_stop(struct nccl *n)
{
    pthread_mutex_lock(&n->lock);
    if (n->is_up && !n->is_begun && !n->is_stopping) {
        n->is_stopping = 1;
        for (int i = 0; i < COLL_CHANNELS; i++)
            reap_apart(&n->channel[i], abort_main);
    }
    pthread_mutex_unlock(&n->lock);
}

/* The caller may be any thread, so this calls neither CUDA nor NCCL. */
void nccl_abort(struct coll *c)
{
    struct nccl *n = nccl_of(c);

    nccl_poison(n);
    atomic_store(&n->aborted, 1);
    nccl_stop(n);
}

static int64_t stop_until_ns(int64_t ms)
{
    const int64_t now = clock_mono_ns();

    return ms < (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

/* 1: the channel's thread has ended in time. */
static int is_reaped(struct nccl_channel *ch)
{
    const int64_t until_ns = stop_until_ns(ch->coll->o.stop_ms);
    int is_late = 0, is_done;

    if (!ch->has_reaper)
        return 0;
    pthread_mutex_lock(&ch->coll->lock);
    while (!ch->is_reaped && !is_late)
        is_late = cond_wait_until(&ch->coll->reaped, &ch->coll->lock, until_ns);
    is_done = ch->is_reaped;
    pthread_mutex_unlock(&ch->coll->lock);
    if (!is_done)
        return 0;
    pthread_join(ch->reaper, NULL);
    ch->has_reaper = 0;
    return 1;
}

static void stop_declare_lost(struct nccl *n, const char *why)
{
    struct err text;

    err_set(&text, ERR_DEVICE,
            "rank %d of %s cannot get rid of its communicator: %s; this process must end, and "
            "be started again",
            n->base.rank, n->o.name, why);
    n->state = NCCL_LOST;
    n->o.stuck(n->o.arg, text.msg);
}

/* ---- quiesce ---- */

/* 1: something still runs; 0: nothing; <0: the device has failed. */
static int is_busy(struct nccl *n, struct err *err)
{
    const cudaStream_t all[] = {n->cuda->stream, n->channel[COLL_BULK].stream,
                                n->channel[COLL_URGENT].stream};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const cudaError_t st = cudaStreamQuery(all[i]);

        if (st == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* no error: it must not be found after the next launch */
            return 1;
        }
        if (st != cudaSuccess)
            return nccl_cuda(st, "finish what is queued", err);
    }
    return 0;
}

/* Let a coll that works finish what is queued.  0, or < 0. */
static int stop_finish(struct nccl *n, int64_t deadline_ms, struct err *err)
{
    const int64_t until = stop_until_ns(deadline_ms);

    for (int pauses = 0;;) {
        const int busy = is_busy(n, err), rc = busy < 0 ? busy : nccl_poll(&n->base, err);

        if (rc < 0 || !busy)
            return rc;
        if (clock_mono_ns() >= until)
            return err_set(err, ERR_TIMEOUT, "what rank %d has queued has not ended after %lld ms",
                           n->base.rank, (long long)deadline_ms);
        nccl_pause(&pauses);
    }
}

/* Wait until nothing runs.  0: nothing does; 1: something still does; <0: the device has failed. */
static int settle_down(struct nccl *n, struct err *err)
{
    const int64_t until = stop_until_ns(n->o.stop_ms);
    int busy, pauses = 0;

    while ((busy = is_busy(n, err)) > 0 && clock_mono_ns() < until)
        nccl_pause(&pauses);
    return busy;
}

/* Stop the coll after the failure in *err.  A failure of the device replaces any other. */
static int nccl_stop_now(struct nccl *n, struct err *err)
{
    struct err device;
    int rc;

    nccl_poison(n);
    nccl_stop(n);
    rc = settle_down(n, &device);
    if (rc < 0 && err->code != ERR_DEVICE)
        *err = device;
    if (rc == 1)
        stop_declare_lost(n, "aborting it has not stopped its kernels");
    return err_wrap(err, "%s", rc == 1 ? "not stopped" : "stopped by aborting");
}

int nccl_quiesce(struct coll *c, int64_t deadline_ms, struct err *err)
{
    struct nccl *n = nccl_of(c);
    int rc = nccl_standing(n, err);

    if (n->state == NCCL_UP) {
        if (rc == 0)
            rc = stop_finish(n, deadline_ms, err);
        if (rc < 0) {
            nccl_fail(n, err);
            rc = nccl_stop_now(n, err);
        }
        pthread_mutex_lock(&n->lock);
        n->is_up = 0;
        pthread_mutex_unlock(&n->lock);
        if (n->state == NCCL_UP)
            n->state = NCCL_QUIET;
    }
    return rc;
}

/* ---- the end ---- */

/* 1: the communicators were finalized in the normal way, together with the other ranks. */
static int is_finalized(struct nccl *n)
{
    const int64_t until = stop_until_ns(n->o.stop_ms);
    ncclResult_t st = ncclSuccess;
    int at_work;

    nccl_deregister(n); /* is_up is 0: no other thread calls NCCL */
    for (int i = 0; i < COLL_CHANNELS && (st == ncclSuccess || st == ncclInProgress); i++)
        st = ncclCommFinalize(n->channel[i].comm);
    if (st != ncclSuccess && st != ncclInProgress)
        return 0;
    for (int pauses = 0; (st = nccl_async(n, &at_work)) == ncclInProgress; nccl_pause(&pauses))
        if (clock_mono_ns() >= until)
            return 0;
    return st == ncclSuccess;
}

/* End the communicators.  nccl_quiesce came before, so no other thread starts a reaper now.  The
 * bulk channel's communicator ends first, because until then NCCL may still be making the urgent
 * channel's. */
void nccl_end(struct nccl *n)
{
    void *(*how)(void *arg) = abort_main;

    if (n->state == NCCL_LOST)
        return;
    if (!n->is_stopping && n->state == NCCL_QUIET && is_finalized(n))
        how = destroy_main;
    for (int i = COLL_BULK; i < COLL_CHANNELS; i++) {
        struct nccl_channel *ch = &n->channel[i];

        if (!ch->comm)
            continue;
        if (!n->is_stopping)
            reap_apart(ch, how);
        if (!is_reaped(ch)) {
            stop_declare_lost(n, "ending it has not come to an end");
            return;
        }
        ch->comm = NULL;
    }
}
