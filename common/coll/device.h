/* coll/device - collectives of a device's memory, in the order of a backend's queue.  They are made
 * with NCCL, by the plugin that also made the backend.
 *
 * A device coll answers the calls of coll/coll.h, with these meanings:
 *
 *   coll_allreduce, and all others that are queued.  The collective starts when all that the
 *       backend has queued so far is done, on a queue of the coll's own (of high priority), so that
 *       what the backend queues next overlaps it.  Sums are of F32, F64, BF16 or F16.  Only the
 *       first one of its kind and size blocks on other ranks.  Between backend_record_begin and
 *       record_end it is recorded with the kernels; one of its size must have been done before (the
 *       library connects then what it needs for that size, which it cannot while recording).  The
 *       parts of coll_all_to_all are read when it is queued.
 *   channels  Each has its own communicator and its own queue, so that an urgent sum does not wait
 *       for the buckets that were queued before it.  An exception to coll/coll.h: the first
 *       collective of its kind and size on a channel connects what it needs, and its call returns
 *       when all ranks have made it.  So all ranks queue the first ones, and those that are
 *       recorded, in one and the same order over both channels, as ranks do that run one program.
 *   coll_wait  Does not block: what the backend queues from now on starts when the collective is
 *       done (a join, which a recording needs for each collective before it ends).
 *   coll_broadcast, coll_allgather  Block, polling; x and `mine` may be memory of the host or of
 *       the device.  Not while recording.
 *   coll_poll  Says whether the coll still works.  Call it as often as the backend is polled, and
 *       never wait for the backend without it: when a rank is lost, queued work ends only after
 *       coll_poll has noticed the loss, or coll_abort was called.  Also call it after the backend
 *       has run empty, because an abort makes it run empty, too.
 *   coll_abort  Any thread, at any moment; never blocks, and calls neither CUDA nor NCCL on it.
 *       Sets the poison word, then makes what is queued, and what is queued later, return
 *       (ncclCommAbort, by a thread apart), with garbage in its buffers: see coll_device_latch.
 *   coll_watch  Reports nothing.
 *   coll_stats  Counts what the host queued; a recording counts once.
 *
 * Life:    coll_device_alloc, of what will be reduced; rank 0: coll_device_make_ids, which the
 *          control plane carries to all ranks -> coll_device_new (at Prepare) ->
 *          coll_device_connect (at Form) -> coll_device_register -> train, record, train ... ->
 *          coll_device_quiesce -> free the recordings that hold its collectives -> coll_free ->
 *          close the backend.
 *
 *          That order holds after a failure, too.  If the coll was connected, coll_free asserts
 * that quiesce came before it, because NCCL waits for ever for recordings that still hold its
 *          communicator.
 *
 * Threads: as coll/coll.h.  The thread that opened the backend makes, uses and frees the coll.
 *
 * Errors:  ERR_PEER (a rank was lost), ERR_TIMEOUT, ERR_CANCELED (coll_abort), ERR_DEVICE (NCCL's
 *          or CUDA's text), ERR_PROTO (ids). */
#ifndef COLL_DEVICE_H
#define COLL_DEVICE_H

#include "backend/backend.h"
#include "coll/coll.h"

enum {
    COLL_ID_BYTES = 128, /* one id, opaque */
    /* A thread of the process that made an id serves this many ranks as they connect, or more if
     * there would be more ids than COLL_MAX_IDS: every rank is sent all of them, so that the bytes
     * would grow with the square of the ranks. */
    COLL_RANKS_PER_ID = 128,
    COLL_MAX_IDS = 32,
    COLL_NAME_LEN = 64,      /* with NUL */
    COLL_DEVICE_VERSION = 5, /* of struct coll_device_ops and of coll/impl.h */
};

struct coll_device_options {
    int rank, size;
    char name[COLL_NAME_LEN]; /* job and generation, "lenet-mnist/3": shown by NCCL's messages */
    int64_t stop_ms; /* after a failure: the time for running work to return, and again the time
                        for the communicator to end */
    /* Called if NCCL could not be stopped: this process holds a communicator that it can neither
     * use nor free.  The function should report `text` and end the process, so that its supervisor
     * starts another.  If it returns, the communicator is left as it is.  The engine's thread. */
    void (*stuck)(void *arg, const char *text);
    void *arg;
};

/* The table that a plugin offers: struct plugin's `coll`.  Callers use the functions of this
 * header. */
struct coll_device_ops {
    uint32_t version;                              /* COLL_DEVICE_VERSION; first for ever */
    uint32_t layout;                               /* COLL_DEVICE_LAYOUT */
    const char *name;                              /* "nccl" */
    int (*library)(int *version, struct err *err); /* 22809 */
    int (*make_id)(uint8_t id[COLL_ID_BYTES], struct err *err);
    int (*make)(struct backend *b, const struct coll_device_options *o, struct coll **out,
                struct err *err);
    int (*connect)(struct coll *c, const uint8_t *ids, int n_ids, int64_t deadline_ms,
                   struct err *err);
    int (*alloc)(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err);
    void (*free)(struct backend *b, void *p);
    int (*enroll)(struct coll *c, void *x, size_t n_bytes, struct err *err);
    int (*latch)(struct coll *c, float *veto, struct err *err);
    int (*passed)(struct coll *c, int64_t ticket, struct err *err);
    int (*quiesce)(struct coll *c, int64_t deadline_ms, struct err *err);
};

struct plugin;

/* *out: the plugin's collectives.  Checks that the plugin and this program were built from the same
 * source.  Fails with ERR_UNSUPPORTED (no collectives, or those of another version).  Loading the
 * plugin has checked that NCCL is new enough. */
int coll_device_of(const struct plugin *p, const struct coll_device_ops **out, struct err *err);

int coll_device_n_ids(int size); /* 1 for each COLL_RANKS_PER_ID ranks, at most COLL_MAX_IDS */

/* Rank 0: coll_device_n_ids(size) ids, one after the other, into ids[].  This process serves the
 * ranks that connect with them, from a thread of NCCL's; make new ones for each formation. */
int coll_device_make_ids(const struct coll_device_ops *ops, int size, uint8_t *ids,
                         struct err *err);

/* Make a coll, not yet connected, for the memory and the queue of b, a backend of the same plugin.
 * Borrows b until coll_free.  coll_abort works from here on.  Fails with ERR_ARG if size is 1 (use
 * coll/tcp.h then), or if the rank is not in 0 .. size - 1. */
int coll_device_new(const struct coll_device_ops *ops, struct backend *b,
                    const struct coll_device_options *o, struct coll **out, struct err *err);

/* Connect to all ranks, which call this with the same ids.  Blocks for deadline_ms at most.  Fails
 * with ERR_PROTO (n_bytes is not that of coll_device_n_ids(size)), ERR_TIMEOUT, ERR_CANCELED,
 * ERR_PEER, ERR_DEVICE; then the coll can only be freed. */
int coll_device_connect(struct coll *c, const uint8_t *ids, size_t n_bytes, int64_t deadline_ms,
                        struct err *err);

/* Allocate zeroed device memory that may be registered.  b is a backend of the same plugin.  No
 * coll is needed for it.  Fails with ERR_DEVICE. */
int coll_device_alloc(const struct coll_device_ops *ops, struct backend *b, size_t n_bytes,
                      const char *what, void **out, struct err *err);
void coll_device_free(const struct coll_device_ops *ops, struct backend *b, void *p); /* or NULL */

/* Register memory that will be reduced (the gradients) with the library, which then need not copy
 * it.  x is the whole of a coll_device_alloc, and must outlive the coll.  This is a collective: all
 * ranks register the same sizes in the same order, each memory once.  If the library cannot
 * register memory, nothing happens. */
int coll_device_register(struct coll *c, void *x, size_t n_bytes, struct err *err);

/* Queue a kernel of one thread, after all that the backend has queued so far.  It stores 1 at *veto
 * (device memory) if the poison word is set, and does nothing otherwise.  A step queues it after
 * its coll_wait calls, and before all work that applies its gradients, with veto =
 * &control[CONTROL_VOID]. So every later kernel reads the same verdict, and half-reduced gradients
 * are never applied. */
int coll_device_latch(struct coll *c, float *veto, struct err *err);

/* Ask whether a collective is complete, without waiting.  It was queued while nothing was recorded,
 * and is one of the last COLL_RING of its channel.  1: not yet; 0: complete, and its result is
 * whole; < 0: the coll has failed, or was aborted.  An abort ends collectives, too, but it is noted
 * before, so what an abort has ended never counts as complete. */
int coll_device_passed(struct coll *c, int64_t ticket, struct err *err);

/* Wait until nothing of the coll runs any more, and keep new work from starting.
 *
 * A coll that works is given deadline_ms to finish what is queued.  A coll that failed, was
 * aborted, or does not finish in time is aborted (within stop_ms).  If even that fails,
 * options.stuck is called.  Returns 0 if all queued work is done and was not poisoned.  Returns < 0
 * with the first failure, or with ERR_DEVICE if the device itself has failed, which then runs
 * nothing any more.  In both cases the recordings may be freed afterwards, and then the coll. */
int coll_device_quiesce(struct coll *c, int64_t deadline_ms, struct err *err);

#endif
