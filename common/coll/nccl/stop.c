/* How collectives are stopped.
 *
 * Nothing that NCCL has queued ends by itself when a rank is gone: its kernels wait, and so does
 * all that is queued behind them, in recordings too.  So, in this order:
 *   1. the poison word is set: whatever is queued from the latch on reads that it must not apply;
 *   2. the communicator is revoked: its kernels return, with garbage in the gradients;
 *   3. both streams run empty;
 *   4. the engine frees its recordings, which hold the communicator;
 *   5. the communicator is destroyed.
 * 1 and 2 come from the first who knows: nccl_poll or nccl_abort.  nccl_quiesce sees to 3, nccl_end
 * does 5.  If 2 does not help in time, the communicator is aborted, in a thread of its own: it may
 * wait until 4, for the recordings, but once revoked it need not, and may take memory away under
 * kernels that still run.  That fails the device, which 3 then sees.  If so, or if the streams stay
 * busy, or the thread does not end after 4, nothing is left but the end of the process
 * (options.stuck).  Quiesce's error tells which of the two was the last resort. */
#include "base/clock.h"
#include "base/util.h"
#include "coll/nccl/impl.h"

void nccl_abort(struct coll *c)
{
    struct nccl *n = nccl_of(c);
    int before = n->cuda->device;

    nccl_poison(n);
    atomic_store(&n->aborted, 1);
    (void)cudaGetDevice(&before); /* this thread may be the loop's */
    (void)cudaSetDevice(n->cuda->device);
    nccl_revoke(n);
    (void)cudaSetDevice(before);
}

/* ---- threads apart ---- */

static void *abort_main(void *arg)
{
    struct nccl *n = arg;

    (void)cudaSetDevice(n->cuda->device);
    (void)ncclCommAbort(n->comm);
    atomic_store(&n->reaped, 1);
    return NULL;
}

static void *destroy_main(void *arg)
{
    struct nccl *n = arg;

    (void)cudaSetDevice(n->cuda->device);
    (void)ncclCommDestroy(n->comm);
    atomic_store(&n->reaped, 1);
    return NULL;
}

static void reap_apart(struct nccl *n, void *(*how)(void *arg))
{
    n->has_reaper = pthread_create(&n->reaper, NULL, how, n) == 0;
}

static int64_t in_ms(int64_t ms)
{
    const int64_t now = clock_mono_ns();

    return ms < (INT64_MAX - now) / 1000000 ? now + ms * 1000000 : INT64_MAX;
}

/* 1: it has ended in time. */
static int is_reaped(struct nccl *n)
{
    const int64_t until = in_ms(n->o.stop_ms);

    if (!n->has_reaper)
        return 0;
    for (int pauses = 0; !atomic_load(&n->reaped); nccl_pause(&pauses))
        if (clock_mono_ns() >= until)
            return 0;
    pthread_join(n->reaper, NULL);
    n->has_reaper = 0;
    return 1;
}

static void lose(struct nccl *n, const char *why)
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
    const cudaStream_t all[] = {n->cuda->stream, n->stream};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const cudaError_t st = cudaStreamQuery(all[i]);

        if (st == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* no error: not to be found behind the next launch */
            return 1;
        }
        if (st != cudaSuccess)
            return nccl_cuda(st, "finish what is queued", err);
    }
    return 0;
}

/* Let a coll that stands finish: 0, or <0. */
static int finish(struct nccl *n, int64_t deadline_ms, struct err *err)
{
    const int64_t until = in_ms(deadline_ms);

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

/* Until nothing runs, and (with_comm) the communicator itself is at rest: 0; 1: not in time. */
static int settle_down(struct nccl *n, int with_comm, struct err *err)
{
    const int64_t until = in_ms(n->o.stop_ms);

    for (int pauses = 0;; nccl_pause(&pauses)) {
        ncclResult_t st = ncclSuccess;
        int busy = is_busy(n, err);

        if (busy < 0)
            return busy;
        if (with_comm)
            (void)nccl_async(n, &st);
        if (!busy && st != ncclInProgress)
            return 0;
        if (clock_mono_ns() >= until)
            return 1;
    }
}

/* What did it, for the error. */
static const char *stop(struct nccl *n)
{
    const char *how = "stopped by revoking";
    struct err err;
    int rc;

    nccl_poison(n);
    nccl_revoke(n);
    rc = n->is_refused ? 1 : settle_down(n, 1, &err);
    if (rc == 1) {
        nccl_enter(n);
        n->is_up = 0;
        pthread_mutex_unlock(&n->lock);
        reap_apart(n, abort_main);
        how = "stopped by aborting, since revoking did not help";
        rc = settle_down(n, 0, &err);
    }
    if (rc < 0)
        lose(n, err.msg);
    else if (rc == 1)
        lose(n, "neither revoking nor aborting it has stopped its kernels");
    return rc == 0 ? how : "not stopped";
}

int nccl_quiesce(struct coll *c, int64_t deadline_ms, struct err *err)
{
    struct nccl *n = nccl_of(c);
    int rc = nccl_standing(n, err);

    if (n->state == NCCL_UP) {
        if (rc == 0)
            rc = finish(n, deadline_ms, err);
        if (rc < 0) {
            nccl_fail(n, err);
            err_wrap(err, "%s", stop(n));
        }
        nccl_enter(n);
        n->is_up = 0;
        pthread_mutex_unlock(&n->lock);
        if (n->state == NCCL_UP)
            n->state = NCCL_QUIET;
    }
    return rc;
}

/* ---- the end ---- */

/* 1: in order, with the other ranks. */
static int is_finalized(struct nccl *n)
{
    const int64_t until = in_ms(n->o.stop_ms);
    ncclResult_t st;

    nccl_deregister(n);
    nccl_enter(n);
    st = ncclCommFinalize(n->comm);
    pthread_mutex_unlock(&n->lock);
    if (st != ncclSuccess && st != ncclInProgress)
        return 0;
    for (int pauses = 0;; nccl_pause(&pauses)) {
        (void)nccl_async(n, &st);
        if (st != ncclInProgress)
            return st == ncclSuccess;
        if (clock_mono_ns() >= until)
            return 0;
    }
}

void nccl_end(struct nccl *n)
{
    if (!n->comm || n->state == NCCL_LOST)
        return;
    if (!n->has_reaper) {
        const int can_destroy =
            n->is_revoked ? !n->is_refused : n->state == NCCL_QUIET && is_finalized(n);

        reap_apart(n, can_destroy ? destroy_main : abort_main);
    }
    if (is_reaped(n))
        n->comm = NULL;
    else
        lose(n, "ending it has not come to an end");
}
