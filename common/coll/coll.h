/* coll - collective communication among the ranks of one formation.
 *
 * A coll joins `size` ranks, numbered 0..size-1.  coll.c checks the arguments of all calls and
 * passes them on to the kind of coll (coll/impl.h).  Two functions make a coll:
 *
 *   coll_tcp_prepare  coll/tcp.h: among processes
 *   coll_device_new   coll/device.h: in the memory of GPUs, where some calls have another meaning
 *
 * (The tests have another one among threads of one process.)
 *
 * A coll of one rank is legal, except on a device; its collectives complete at once.
 *
 * Order:   a coll has two channels.  All ranks queue the same collectives, with the same sizes, in
 *          the same order on each channel; a channel runs them in that order.  The channels do not
 *          wait for each other, so the order between them may differ from rank to rank (on a device
 *          not for the first collectives: coll/device.h).  Only coll_send, coll_recv and
 *          coll_exchange may be queued by some ranks alone.
 * Life:    made -> allreduce, wait, broadcast, ... -> free.  The first failure is final for both
 *          channels: that call and all later ones fail with the first cause.  Then abort (harmless,
 *          and it frees the other ranks), free, and make a new one.  Without a failure, wait for
 *          every ticket before the free.
 * Threads: one engine thread per coll.  From any other thread, while the coll exists: coll_abort,
 *          coll_stats, coll_rank, coll_size.
 * Memory:  no call allocates, except that a link between two ranks may be made at its first use.
 *          Queueing uses a fixed ring.
 * Errors:  0 ok; <0 failed and *err says why.  err is never NULL. */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

struct coll; /* opaque */

enum coll_channel {
    COLL_BULK,   /* large transfers, overlapped with computing: the gradients' buckets */
    COLL_URGENT, /* small transfers that a rank waits for: they do not wait for the bulk */
    COLL_CHANNELS
};

enum {
    COLL_RING = 64,     /* collectives of a channel that can be outstanding; one more blocks */
    COLL_TAG_NONE = -1, /* the tag of a collective that coll_watch does not report */
};

int coll_rank(const struct coll *c);
int coll_size(const struct coll *c);
int coll_is_device(const struct coll *c); /* 1: as coll/device.h says */

/* A run of elements: [at, at + n). */
struct coll_span {
    int64_t at, n;
};

/* Part i of n elements cut into `count` parts, in order: the first n % count have one element more
 * than the rest, and a part may be empty.  A rank's own span of x is coll_span(n, size, rank). */
struct coll_span coll_span(int64_t n, int count, int i);

/* ---- collectives that are queued ----
 *
 * Each queues its work for the channel's comm thread and returns a ticket, > 0 and rising within
 * the channel, for coll_wait.  It blocks only while COLL_RING collectives of the channel are
 * outstanding.  A small sum among few ranks is left to coll_wait, if it comes alone and on the
 * urgent channel, or without a tag; other ranks do not wait for that.
 *
 * x     n elements of `dtype`, contiguous; n may be 0.  Where elements are summed: DTYPE_F32,
 *       DTYPE_F64, DTYPE_BF16 or DTYPE_F16; else any dtype.
 *       Borrowed, as is all other memory handed over: keep it alive, and do not touch it, until
 *       coll_wait has returned for the ticket (or, after a failure, until coll_free has).
 * tag   >= 0: the caller's number for the collective, which coll_watch passes on; or
 *       COLL_TAG_NONE.
 *
 * They fail with ERR_ARG (dtype, n, a rank), or as coll_wait does once the coll has failed. */

/* Sum x element-wise over all ranks, in place; all ranks get the same bytes.
 *
 * The order of the sum is fixed by (size, n) alone: every run gives the same bits.  Sums of BF16
 * are rounded at each rank that is added, in rank order: (size - 1) times half a unit in the last
 * place.  There is no average: the loss gradient already carries 1/global batch. */
int64_t coll_allreduce(struct coll *c, enum coll_channel ch, void *x, int64_t n, enum dtype dtype,
                       int64_t tag, struct err *err);

/* Sum this rank's own span of x over all ranks, in place, with the same bits as coll_allreduce.
 * Afterwards the rest of x holds unspecified values. */
int64_t coll_reduce_scatter(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                            enum dtype dtype, int64_t tag, struct err *err);

/* Copy each rank's own span of x to all others, in place: after a reduce-scatter, an all-reduce. */
int64_t coll_allgather_spans(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                             enum dtype dtype, int64_t tag, struct err *err);

/* Copy root's x to x on every rank. */
int64_t coll_broadcast_async(struct coll *c, enum coll_channel ch, void *x, int64_t n,
                             enum dtype dtype, int root, int64_t tag, struct err *err);

/* Memory with a part for each rank: part[r] is a run of x's elements. */
struct coll_parts {
    void *x;
    const struct coll_span *part;
    int64_t most; /* no part of any rank is longer; the same in `from` and `to`, and on all ranks;
                     0: that is not known */
};

/* Give part r of `from` to rank r, and take part r of `to` from rank r.
 *
 * Parts may be empty and of different sizes, but rank a must take from rank b as many elements as b
 * gives to a.  A rank's part for itself is copied.  `from` and `to` may not overlap.  If `most`
 * says that the parts are small, they may go by way of other ranks, which takes fewer links and
 * messages. */
int64_t coll_all_to_all(struct coll *c, enum coll_channel ch, struct coll_parts from,
                        struct coll_parts to, enum dtype dtype, int64_t tag, struct err *err);

/* A message to one rank, or from it. */
struct coll_message {
    void *x;
    int64_t n;
    int rank; /* the other rank */
};

/* Send one message, or receive one, or both at once (coll_exchange).  Only the ranks concerned call
 * these.  Messages from one rank to another on one channel match in their order.  A message must be
 * as long as its receiver expects.
 *
 * A send is complete when its receiver has taken the message, or earlier.  Sends and receives run
 * in queueing order like all collectives.  So a ring in which every rank queues a send and then a
 * receive would wait for ever.  There, and wherever two ranks send to each other at the same time,
 * use coll_exchange, whose two halves proceed together.  To see whether a pattern of calls is safe,
 * take each call as one meeting of all the ranks that it names: if the pattern ends then, it is
 * safe. */
int64_t coll_send(struct coll *c, enum coll_channel ch, struct coll_message m, enum dtype dtype,
                  int64_t tag, struct err *err);
int64_t coll_recv(struct coll *c, enum coll_channel ch, struct coll_message m, enum dtype dtype,
                  int64_t tag, struct err *err);
int64_t coll_exchange(struct coll *c, enum coll_channel ch, struct coll_message send,
                      struct coll_message recv, enum dtype dtype, int64_t tag, struct err *err);

/* ---- waiting ---- */

/* Block until the collective of `ticket`, and all before it on its channel, are complete.  A ticket
 * may be waited for more than once, and tickets in any order.
 * Fails with ERR_PEER (a rank left; *err names it if it is known), ERR_TIMEOUT (no progress),
 * ERR_CANCELED (coll_abort), ERR_DEVICE (the library), ERR_ARG (no such ticket). */
int coll_wait(struct coll *c, int64_t ticket, struct err *err);

/* < 0 if the coll is known to have failed.  Does not block.  A coll of host memory reports failures
 * only in coll_wait. */
int coll_poll(struct coll *c, struct err *err);

/* ---- blocking collectives, on the bulk channel; they fail as coll_wait does ---- */

/* Copy root's n_bytes at x to x on every rank. */
int coll_broadcast(struct coll *c, void *x, size_t n_bytes, int root, struct err *err);

/* Every rank's n_bytes at `mine`, in rank order, into all[size * n_bytes]; they may not overlap. */
int coll_allgather(struct coll *c, const void *mine, size_t n_bytes, void *all, struct err *err);

/* ---- the life of a coll ---- */

enum coll_moment { COLL_BEGINS, COLL_ENDS, COLL_FAILS };

/* Have `watch` called when each collective with a tag >= 0 begins and ends.  It is called on the
 * thread that runs the collective: its channel's, or the engine's.  Two calls never overlap.
 * The function must not block, nor call coll functions.  Set it before the first collective; NULL:
 * no function is called. */
void coll_watch(struct coll *c,
                void (*watch)(void *arg, int64_t tag, enum coll_moment moment, int64_t now_ns),
                void *arg);

/* Leave the coll.  Everything that is pending, connecting or called later fails within milliseconds
 * with ERR_CANCELED (or with the failure that came before), even if a comm thread is stuck waiting
 * for a rank.
 *
 * Another rank fails with ERR_PEER once it waits for this rank on an existing link.  It does not
 * notice while it waits for a third rank, which is alive but late, or for this rank to connect.  So
 * the control plane aborts all ranks.  Any thread, any number of times. */
void coll_abort(struct coll *c);

/* Stop the comm threads and free everything; what is still pending is aborted first.  Never blocks
 * on other ranks.  c may be NULL.  The engine thread, with no other thread inside c. */
void coll_free(struct coll *c);

struct coll_stats {
    int64_t wait_ns;     /* time that callers were blocked: communication not hidden by computing */
    int64_t busy_ns;     /* time threads were inside collectives, waiting included */
    int64_t n_bytes;     /* payload handed to completed collectives (not what travelled) */
    int64_t n_calls;     /* collectives completed */
    int64_t n_strangers; /* connections to this rank that did not prove to belong to a rank */
};

/* Sums since the coll was made.  Any thread, unless the coll is a device's. */
void coll_stats(struct coll *c, struct coll_stats *out);

#endif
