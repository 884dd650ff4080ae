/* coll/host - the comm thread: collectives of CPU memory, run one after another in queueing order.
 *
 * A kind of coll embeds struct coll_host first and provides struct host_ops, whose functions
 * block; this file makes tickets, waiting, abort and statistics of them.  One rank needs no thread
 * and no host_ops->run.
 *
 * Life:    host_init -> host_start (from when on collectives may be queued) -> coll calls ->
 *          coll_free, which stops the thread and then calls host_ops->free.
 * Threads: as coll.h; the ops run on the comm thread, `interrupt` on any.
 * Lock:    `lock` guards everything below it. */
#ifndef COLL_HOST_H
#define COLL_HOST_H

#include <pthread.h>
#include <stdbool.h>

#include "coll/impl.h"

struct coll_host;

struct host_ops {
    const char *name;
    /* Run one collective to its end, blocking. */
    int (*run)(struct coll_host *h, const struct coll_job *job, struct err *err);
    /* Make a run() now or later fail soon.  May come before host_start and more than once. */
    void (*interrupt)(struct coll_host *h);
    /* Free what this kind added, and h itself. */
    void (*free)(struct coll_host *h);
};

struct coll_host {
    struct coll base; /* first: a struct coll * is one of these */
    const struct host_ops *ops;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* to the comm thread: queued, failed or stop changed */
    pthread_cond_t done; /* to the engine: completed changed */
    bool started;        /* host_start was called */
    bool threaded;       /* and made a thread */
    bool stop;
    bool aborted;
    int64_t queued;                  /* the last ticket given out */
    int64_t completed;               /* the last that ended, well or not */
    int64_t failed;                  /* the first that failed (all after it did), or 0 */
    struct err cause;                /* of failed, or of the abort */
    struct coll_job jobs[COLL_RING]; /* ticket t is at t % COLL_RING */
    struct coll_stats stats;
    struct coll_head head;
};

void host_init(struct coll_host *h, const struct host_ops *ops, int rank, int size);
int host_start(struct coll_host *h, struct err *err);
bool host_aborted(struct coll_host *h);

/* The error of an aborted coll. */
int host_canceled(struct err *err);

#endif
