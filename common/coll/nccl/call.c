#include <sched.h>
#include <time.h>

#include "base/clock.h"
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

void nccl_enter(struct nccl *n) { pthread_mutex_lock(&n->lock); }

/* coll_abort that finds the lock taken leaves the revoking to whoever holds it: it has set
 * `aborted` before, which is read here after the unlock. */
void nccl_leave(struct nccl *n)
{
    pthread_mutex_unlock(&n->lock);
    if (atomic_load(&n->aborted))
        nccl_revoke(n);
}

/* What ends the kernels that wait for a lost rank.  The poison word is set before. */
void nccl_revoke(struct nccl *n)
{
    if (pthread_mutex_trylock(&n->lock) != 0)
        return; /* see nccl_leave */
    if (n->is_up && !n->is_revoked) {
        const ncclResult_t st = ncclCommRevoke(n->comm, NCCL_REVOKE_DEFAULT);

        n->is_revoked = 1;
        n->is_refused = st != ncclSuccess && st != ncclInProgress;
    }
    pthread_mutex_unlock(&n->lock);
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

int nccl_async(struct nccl *n, ncclResult_t *st)
{
    ncclResult_t asked;

    nccl_enter(n);
    asked = ncclCommGetAsyncError(n->comm, st);
    nccl_leave(n);
    if (asked != ncclSuccess)
        *st = asked;
    return asked == ncclSuccess ? 0 : -1;
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

static int settle(struct nccl *n, const char *what, int64_t until_ns, struct err *err)
{
    for (int pauses = 0;;) {
        ncclResult_t st = ncclSuccess;

        (void)nccl_async(n, &st);
        if (nccl_standing(n, err) < 0)
            return err->code;
        if (st != ncclInProgress)
            return nccl_rc(st, what, err);
        if (clock_mono_ns() >= until_ns)
            return err_set(err, ERR_TIMEOUT, "cannot %s: NCCL has not done it in time", what);
        nccl_pause(&pauses);
    }
}

int nccl_begun(struct nccl *n, ncclResult_t st, const char *what, int64_t until_ns, struct err *err)
{
    const int rc = nccl_rc(st, what, err);

    nccl_leave(n);
    if (atomic_load(&n->aborted))
        return nccl_standing(n, err);
    return rc < 0 ? rc : settle(n, what, until_ns, err);
}
