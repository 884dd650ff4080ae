/* call - calls of NCCL and CUDA: turns the failures that they return into errors, and waits for
 * calls that go on in NCCL's own thread. */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/util.h"
#include "coll/nccl/impl.h"

int nccl_cuda(cudaError_t st, const char *what, struct err *err)
{
    return cuda_check((int)st, what, err);
}

int nccl_rc(ncclResult_t st, const char *what, struct err *err)
{
    const char *more;

    if (st == ncclSuccess || st == ncclInProgress)
        return 0;
    more = ncclGetLastError(NULL);
    return err_set(err, st == ncclRemoteError ? ERR_PEER : ERR_DEVICE, "cannot %s: NCCL: %s%s%s",
                   what, ncclGetErrorString(st), more && *more ? "; " : "", more ? more : "");
}

int nccl_enter(struct nccl *n, struct err *err)
{
    int may;

    pthread_mutex_lock(&n->lock);
    may = n->is_begun = !n->is_stopping;
    pthread_mutex_unlock(&n->lock);
    return may ? 0 : nccl_standing(n, err);
}

void nccl_poison(struct nccl *n)
{
    if (n->poison)
        __atomic_store_n(n->poison, 1, __ATOMIC_SEQ_CST);
}

int nccl_fail(struct nccl *n, const struct err *err)
{
    if (!n->has_failed) {
        n->has_failed = 1;
        n->cause = *err;
    }
    return n->cause.code;
}

int nccl_standing(struct nccl *n, struct err *err)
{
    if (!n->has_failed && atomic_load(&n->aborted)) {
        struct err canceled;

        err_set(&canceled, ERR_CANCELED, "collectives were canceled (coll_abort)");
        nccl_fail(n, &canceled);
    }
    if (!n->has_failed)
        return 0;
    *err = n->cause;
    return err->code;
}

/* NCCL's own thread stores the urgent channel's communicator once it has made it. */
static ncclResult_t state_of(struct nccl_channel *ch)
{
    ncclComm_t comm = __atomic_load_n(&ch->comm, __ATOMIC_ACQUIRE);
    ncclResult_t asked, st = ncclSuccess;

    if (!comm)
        return ncclSuccess;
    asked = ncclCommGetAsyncError(comm, &st);
    return asked == ncclSuccess ? st : asked;
}

ncclResult_t nccl_async(struct nccl *n, int *at_work)
{
    ncclResult_t st = ncclSuccess;

    *at_work = 0;
    pthread_mutex_lock(&n->lock);
    for (int i = 0; i < COLL_CHANNELS && !n->is_stopping; i++) {
        const ncclResult_t one = state_of(&n->channel[i]);

        *at_work |= one == ncclInProgress;
        if (st == ncclSuccess || (st == ncclInProgress && one != ncclSuccess))
            st = one;
    }
    pthread_mutex_unlock(&n->lock);
    return st;
}

void nccl_pause(int *n_pauses)
{
    enum { YIELDS = 50, LONGEST_US = 1000 };
    const int us = *n_pauses - YIELDS;

    ++*n_pauses;
    if (us < 0)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = 1000L * (us < LONGEST_US ? us : LONGEST_US)}, NULL);
}

/* Wait until NCCL's own threads are done.  After an abort, or a failure of the other communicator,
 * such a thread gets a moment more.  Its work on a stream that is being recorded must not come
 * after the recording's end.  A thread that waits for other ranks goes on until the communicator is
 * aborted; it does nothing to streams then. */
static int call_settle(struct nccl *n, const char *what, int64_t until_ns, struct err *err)
{
    enum { GRACE_MS = 200, LAST_LOOKS = 4 };
    const int64_t grace_ns = n->state == NCCL_UP ? GRACE_MS * INT64_C(1000000) : 0;
    int n_late = 0; /* polls after the deadline: this thread may have stood still until then */
    ncclResult_t st;
    int at_work;

    for (int pauses = 0; st = nccl_async(n, &at_work), at_work; nccl_pause(&pauses)) {
        const int64_t now = clock_mono_ns();

        if (atomic_load(&n->aborted) || st != ncclInProgress)
            until_ns = min_i64(until_ns, now + grace_ns);
        if (now >= until_ns && ++n_late == LAST_LOOKS)
            break;
    }
    if (nccl_standing(n, err) < 0)
        return err->code;
    if (st == ncclInProgress)
        return err_set(err, ERR_TIMEOUT, "cannot %s: NCCL has not done it in time", what);
    return nccl_rc(st, what, err);
}

int nccl_begun(struct nccl *n, ncclResult_t st, const char *what, int64_t until_ns, struct err *err)
{
    int rc = nccl_rc(st, what, err);

    if (rc == 0)
        rc = call_settle(n, what, until_ns, err);
    pthread_mutex_lock(&n->lock);
    n->is_begun = 0;
    pthread_mutex_unlock(&n->lock);
    if (!atomic_load(&n->aborted)) /* read after is_begun is 0: see nccl_stop */
        return rc;
    nccl_stop(n);
    return nccl_standing(n, err);
}
