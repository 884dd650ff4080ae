/* coll - collective communication among the ranks of one run.
 *
 * A coll joins `size` ranks, numbered 0..size-1.  All ranks call the same collectives in the same
 * order with the same sizes; they run in that order.  Makers: coll_gloo_prepare (coll/gloo.h, TCP
 * between processes), coll_new_local (coll/local.h, threads of one process, for tests) and
 * coll_device_new (coll/device.h, memory of GPUs, where some calls mean something else).
 * A coll of one rank is legal everywhere: its collectives change nothing and complete at once.
 *
 * Life:    made -> allreduce, wait, broadcast, ... -> free.  The first failure is final: that call
 *          and all later ones fail with the first cause; then abort (harmless, and frees the other
 *          ranks), free, and make a new one.  Before a free that is not after a failure, wait for
 *          every ticket.
 * Threads: one engine thread per coll.  From any other thread, while the coll exists: coll_abort,
 *          coll_head, coll_stats, coll_rank, coll_size.
 * Memory:  no call allocates (Gloo itself does); queueing uses a fixed ring.
 * Errors:  0 ok; <0 failed and *err says why.  err is never NULL. */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

struct coll; /* opaque */

enum coll_red {
    COLL_SUM,
    COLL_MAX, /* NaN if any rank's element is NaN */
};

enum {
    COLL_RING = 64, /* all-reduces that can be outstanding; queueing one more blocks */
};

/* Tags of what is not tagged by the caller, as coll_head shows them. */
enum coll_tag {
    COLL_TAG_NONE = -1,
    COLL_TAG_BROADCAST = -2,
    COLL_TAG_ALLGATHER = -3,
    COLL_TAG_BARRIER = -4,
};

int coll_rank(const struct coll *c);
int coll_size(const struct coll *c);
int coll_is_device(const struct coll *c); /* 1: as coll/device.h says */

/* Reduce x element-wise over all ranks, in place; all ranks get the same bytes.
 *
 * x     n elements of `dtype` (DTYPE_F32, DTYPE_F64 or DTYPE_BF16; of a device also DTYPE_F16),
 *       contiguous; n may be 0; n, dtype and red equal on every rank.  Sums of BF16 are rounded at
 *       each rank that is added, in rank order: (size - 1) times half a unit in the last place.
 *       Borrowed: keep it alive, and do not touch it, until coll_wait returns for its ticket.
 * red   COLL_SUM (no average: the loss gradient already carries 1/global batch) or COLL_MAX.
 * tag   >= 0, the caller's name for it; only shown by coll_head and told to coll_watch.
 *
 * Queues the work to the coll's comm thread and returns its ticket, > 0 and rising by one per
 * collective.  Blocks only while COLL_RING all-reduces are outstanding.
 * The order of the sum is fixed by (size, n) alone: every run gives the same bits.
 * Fails with ERR_ARG (dtype, n), or as coll_wait once the coll has failed. */
int64_t coll_allreduce(struct coll *c, void *x, int64_t n, enum dtype dtype, enum coll_red red,
                       int64_t tag, struct err *err);

/* Block until the collective of `ticket`, and so all before it, are complete.  A ticket may be
 * waited for more than once, in any order.
 * Fails with ERR_PEER (a rank left: which, where known), ERR_TIMEOUT (no progress), ERR_CANCELED
 * (coll_abort), ERR_DEVICE (the library), ERR_ARG (no such ticket). */
int coll_wait(struct coll *c, int64_t ticket, struct err *err);

/* Without blocking: <0 if the coll is known to have failed.  A coll of host memory says so only
 * where one waits. */
int coll_poll(struct coll *c, struct err *err);

/* The blocking collectives; they queue behind the all-reduces outstanding and wait.
 * Fail as coll_wait does. */

/* Copy root's n_bytes at x to x on every rank. */
int coll_broadcast(struct coll *c, void *x, size_t n_bytes, int root, struct err *err);

/* Every rank's n_bytes at `mine`, in rank order, into all[size * n_bytes]; they may not overlap. */
int coll_allgather(struct coll *c, const void *mine, size_t n_bytes, void *all, struct err *err);

/* Return once every rank has entered. */
int coll_barrier(struct coll *c, struct err *err);

enum coll_moment { COLL_BEGINS, COLL_ENDS, COLL_FAILS };

/* Be told when each all-reduce of a tag >= 0 begins and ends, on the thread that runs it; what is
 * called must not block nor call back.  Before the first collective; `watch` NULL: nobody. */
void coll_watch(struct coll *c,
                void (*watch)(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns),
                void *arg);

/* Leave: whatever is pending, connecting or called later fails with ERR_CANCELED (or with the
 * failure that came before), within milliseconds, also if the comm thread is stuck waiting for
 * a rank.  Another rank fails with ERR_PEER once it waits for this one; while it waits for a third
 * that is alive and late it does not notice, so whoever knows (the control plane) aborts all.
 * Any thread, any number of times. */
void coll_abort(struct coll *c);

/* Stop the comm thread and free everything; what is still pending is aborted first.  Never blocks
 * on other ranks.  c may be NULL.  The engine thread, with no other thread inside c. */
void coll_free(struct coll *c);

struct coll_stats {
    int64_t wait_ns; /* time callers were blocked in here: communication that nothing hid */
    int64_t busy_ns; /* time the comm thread was inside collectives, waiting for peers included */
    int64_t n_bytes; /* payload handed to completed collectives (not what travelled) */
    int64_t n_calls; /* collectives completed */
};

/* What the comm thread is doing, for heartbeats. */
struct coll_head {
    int64_t ticket;   /* the collective now running, or 0: idle */
    int64_t tag;      /* its tag (a coll_tag if negative) */
    int64_t n_bytes;  /* its payload */
    int64_t since_ns; /* when it was begun (clock_mono_ns); idle: when the last one ended */
};

void coll_stats(struct coll *c, struct coll_stats *out); /* sums since the coll was made */
void coll_head(struct coll *c, struct coll_head *out);

#endif
