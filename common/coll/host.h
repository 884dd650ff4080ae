/* coll/host - the comm threads, which run collectives of CPU memory.  Each channel has a thread of
 * its own, which runs the channel's collectives one after another in queueing order.  A small
 * collective can be left to the engine's thread, because to wake another thread twice takes longer
 * than the collective: queueing it begins it, and waiting for it ends it.
 *
 * A kind of coll (coll/tcp.c, the tests' coll/local.c) embeds struct coll_host as its first member
 * and provides struct host_ops, whose functions block.  This file adds tickets, waiting, abort and
 * statistics.
 *
 * A failure on one channel fails everything that is queued on both channels.  It does not interrupt
 * a collective that runs on the other channel; that one is ended by its peers or by coll_abort.  A
 * coll of one rank needs neither threads nor host_ops->run.
 *
 * Life:    host_init -> host_start (from then on collectives may be queued) -> coll calls ->
 *          coll_free, which stops the threads and then calls host_ops->free.
 * Threads: as coll.h; `begin` is called on the engine's thread, `interrupt` on any.  `run` is
 *          called on the channel's thread, or on the engine's, never on both at a time.
 * Lock:    `lock` guards all members of struct coll_host behind it, and the lanes. */
#ifndef COLL_HOST_H
#define COLL_HOST_H

#include <pthread.h>

#include "coll/impl.h"

struct coll_host;

struct host_ops {
    const char *name;
    /* Begin a small collective, while no other is outstanding on its channel, and do not block.  1:
     * it has begun, so no other rank waits for this one any more, and `run`, with job->has_begun,
     * only ends it; 0: `run` does all of it; or an error.  NULL: `run` always does. */
    int (*begin)(struct coll_host *h, const struct coll_job *job, struct err *err);
    /* Run one collective of job->channel to its end, blocking. */
    int (*run)(struct coll_host *h, const struct coll_job *job, struct err *err);
    /* Make each run(), present or later, fail soon.  May be called before host_start, and more than
     * once. */
    void (*interrupt)(struct coll_host *h);
    /* Free what this kind added, and h itself. */
    void (*free)(struct coll_host *h);
    /* Fill the statistics that the queues do not know.  NULL: there are none. */
    void (*stats)(struct coll_host *h, struct coll_stats *out);
};

/* The queue of one channel. */
struct host_lane {
    struct coll_host *host;
    pthread_t thread;
    int has_thread;
    pthread_cond_t work;             /* to the comm thread: queued, failed or stop changed */
    pthread_cond_t done;             /* to the engine: completed changed */
    int is_left;                     /* the only outstanding collective has begun, and is left to
                                        the engine's thread */
    int64_t queued;                  /* the number of the last collective that was queued */
    int64_t completed;               /* the number of the last one that ended, well or not */
    int64_t failed;                  /* the number of the first one that failed, or 0; all later
                                        ones failed, too */
    struct coll_job jobs[COLL_RING]; /* number n is at n % COLL_RING */
};

struct coll_host {
    struct coll base; /* first: a struct coll * is one of these */
    const struct host_ops *ops;
    pthread_mutex_t lock;
    int started; /* host_start succeeded */
    int stop;
    int aborted;
    int has_failed;   /* a collective of either channel failed: no further one is begun */
    struct err cause; /* the first failure */
    struct coll_stats stats;
    struct host_lane lane[COLL_CHANNELS];
};

void host_init(struct coll_host *h, const struct host_ops *ops, int rank, int size);
int host_start(struct coll_host *h, struct err *err);
int host_aborted(struct coll_host *h);

/* Fill err with the error of an aborted coll, and return its code. */
int host_canceled(struct err *err);

#endif
