/* impl - the types and functions that the files of the NCCL kind of coll share.  No other file
 * includes this.
 *
 * comm.c has the life and the table, memory.c the registered memory, queue.c the collectives,
 * stop.c the stopping of collectives, call.c the handling of NCCL's results.
 *
 * Threads: the engine's, except where a function or a member says another. */
#ifndef COLL_NCCL_IMPL_H
#define COLL_NCCL_IMPL_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/cuda/cuda.h"
#include "coll/device.h"
#include "coll/impl.h"

enum { NCCL_STAGE_BYTES = 4 << 20, NCCL_MAX_ENROLLED = 16 };

enum nccl_state {
    NCCL_NEW,   /* not connected yet, or connecting failed */
    NCCL_UP,    /* collectives may be queued */
    NCCL_QUIET, /* nothing runs any more, and nothing may begin */
    NCCL_LOST,  /* the communicators could not be stopped, and are left as they are */
};

/* One of the two orders of collectives.  A channel has a communicator and a stream of its own, so
 * that its collectives do not wait for the other channel's. */
struct nccl_channel {
    struct nccl *coll;           /* the coll whose channel this is */
    cudaStream_t stream;         /* of high priority: the collectives run here */
    cudaEvent_t done[COLL_RING]; /* collective k ends at done[k % COLL_RING] */
    int64_t queued;              /* the number of the last collective */
    int64_t waited;              /* up to this number the host itself has waited */
    ncclComm_t comm;             /* NULL: none yet, or none any more */
    pthread_t reaper;            /* ends the communicator apart, where that may block */
    int has_reaper;
    int is_reaped; /* the reaper has ended the communicator; guarded by the coll's lock */
};

struct nccl {
    struct coll base;  /* first */
    struct cuda *cuda; /* collectives start after the work in its stream */
    struct coll_device_options o;
    struct nccl_channel channel[COLL_CHANNELS];
    cudaEvent_t fork;                    /* the place in cuda's stream where a collective starts */
    uint32_t *poison, *poison_on_device; /* one pinned word by its two addresses */
    uint8_t *stage, *land;               /* NCCL_STAGE_BYTES pinned, and on the device */
    ncclWindow_t enrolled[NCCL_MAX_ENROLLED];
    int n_enrolled;

    enum nccl_state state;
    int has_failed;
    struct err cause; /* the first failure */
    atomic_int aborted;
    pthread_cond_t reaped; /* by CLOCK_MONOTONIC: a channel's is_reaped was set */
    pthread_mutex_t lock;  /* never held for long; guards these, and the channels' reapers: */
    int is_up;             /* connected, and not yet quiet */
    int is_begun;          /* 1: the engine's thread is inside NCCL, or NCCL's own one is at work */
    int is_stopping;       /* 1: only the reapers may call NCCL with the communicators */

    pthread_mutex_t book; /* guards stats */
    struct coll_stats stats;
};

/* call.c */
int nccl_cuda(cudaError_t st, const char *what, struct err *err);
int nccl_rc(ncclResult_t st, const char *what, struct err *err);
/* Engine's thread.  nccl_enter comes before a call of NCCL, and fails once the communicator is
 * being stopped.  nccl_begun comes after the call, which returned `st`.  It waits until the call's
 * work has ended, until `until_ns`, or until an abort; an abort's error goes before any other. */
int nccl_enter(struct nccl *n, struct err *err);
int nccl_begun(struct nccl *n, ncclResult_t st, const char *what, int64_t until_ns,
               struct err *err);
/* The first failure among the communicators, else ncclInProgress if one of them is at work, else
 * success.  *at_work: 1 if one of them is at work, whether or not another has failed.  Once they
 * are being stopped: success, and none is at work. */
ncclResult_t nccl_async(struct nccl *n, int *at_work);
int nccl_standing(struct nccl *n, struct err *err);   /* < 0: the first failure, or an abort */
int nccl_fail(struct nccl *n, const struct err *err); /* note the failure, if it is the first */
void nccl_poison(struct nccl *n);
void nccl_pause(int *n_pauses); /* between two polls; longer and longer, up to 1 ms */

/* memory.c */
int nccl_alloc(struct backend *b, size_t n_bytes, const char *what, void **out, struct err *err);
void nccl_free_memory(struct backend *b, void *p);
int nccl_enroll(struct coll *c, void *x, size_t n_bytes, struct err *err);
void nccl_deregister(struct nccl *n); /* all memory; nothing may run */

/* queue.c */
int64_t nccl_queue(struct coll *c, const struct coll_job *job, struct err *err);
int nccl_wait(struct coll *c, int64_t ticket, struct err *err);
int nccl_passed(struct coll *c, int64_t ticket, struct err *err);
int nccl_poll(struct coll *c, struct err *err);

/* stop.c */
void nccl_abort(struct coll *c);
void nccl_stop(struct nccl *n); /* start to abort; any thread, never blocks */
int nccl_quiesce(struct coll *c, int64_t deadline_ms, struct err *err);
void nccl_end(struct nccl *n); /* ends the communicators; NCCL_LOST if that fails */

static inline struct nccl *nccl_of(struct coll *c) { return (struct nccl *)c; }

#endif
