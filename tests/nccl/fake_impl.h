/* fake_impl - the types and functions that the stand-ins for the CUDA runtime and NCCL share:
 * queued work, recordings, streams, communicators. */
#ifndef TESTS_NCCL_FAKE_IMPL_H
#define TESTS_NCCL_FAKE_IMPL_H

#include <nccl.h>
#include <pthread.h>
#include <stddef.h>

#include "base/util.h"
#include "fake.h"

enum { MAX_DEVICES = FAKE_DEVICES, MAX_WORK = 1024, MAX_CALLS = 8 };

enum work_kind { WORK_RECORD, WORK_WAIT, WORK_COPY, WORK_SET, WORK_CALL, WORK_COLL, WORK_GRAPH };

enum coll_kind {
    FAKE_ALLREDUCE,
    FAKE_REDUCE,
    FAKE_REDUCE_SCATTER,
    FAKE_BROADCAST,
    FAKE_ALLGATHER,
    FAKE_SEND, /* sending and receiving need only the ranks that they name */
    FAKE_RECV,
    FAKE_KINDS
};

struct call {
    enum coll_kind kind;
    const void *send;
    void *recv;
    size_t n_bytes; /* that a rank sends; REDUCE_SCATTER: that it receives */
    ncclDataType_t type;
    int root; /* or the peer */
    int is_done;
};

struct meeting { /* one rank's side of a collective, or of a group of them */
    ncclComm_t comm;
    struct call call[MAX_CALLS];
    int n_calls;
};

struct work {
    enum work_kind kind;
    cudaEvent_t event;
    int64_t nth; /* RECORD, WAIT: the event's n-th record */
    int before;  /* WAIT in a recording: the node that it waits for */
    int lane;    /* in a recording: the number of its stream */
    void *to;
    const void *from; /* COPY */
    size_t n_bytes;
    int value; /* SET */
    void (*fn)(void *arg);
    void *arg;
    struct meeting m;
    struct run *run; /* GRAPH */
};

struct CUgraph_st {
    struct work node[256];
    int n_nodes, n_lanes;
    cudaStream_t lane[4]; /* lane 0 began the capture */
    int is_joined[4];     /* lane 0 waits for this lane's last node */
    int is_spoilt;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph; /* a copy */
};

struct run { /* one launch */
    const struct CUgraph_st *graph;
    unsigned char done[256];
};

struct CUstream_st {
    int device;
    struct work todo[MAX_WORK];
    int head, tail;
    struct CUgraph_st *capture; /* NULL: the stream is not captured */
    int lane;
    int priority;    /* 0, or that of cudaStreamCreateWithPriority: lower runs first */
    ncclComm_t comm; /* the last communicator that queued here */
};

struct CUevent_st {
    int device;
    int64_t n_recorded, n_done;
    struct CUgraph_st *capture; /* where the event was last recorded, as node `node` */
    int node;
};

struct ncclComm {
    struct clique *clique;
    int device, rank;
    int is_split;      /* made by ncclCommSplit */
    int n_in_progress; /* how many polls until the communicator is ready */
    ncclResult_t error;
    int is_inside, is_hanging, is_aborted, is_finalized, is_destroying;
    int n_registered, n_graphs, n_queued;
    cudaStream_t stream;  /* where it queued last; NULL: the stream is gone */
    ncclWindow_t *window; /* where the handle of the window being registered goes */
    void *window_at;
    struct ncclComm *child; /* the communicator that a split is making, and where it goes */
    ncclComm_t *child_at;
    int connecting; /* the kind of collective whose first call is in progress; -1: none */
};

struct member {      /* one rank of a clique */
    unsigned called; /* bit k: the rank has called a collective of kind k */
    int n_windows;   /* how many windows the rank has asked for */
    struct meeting posted;
    int is_posted;
    int is_served; /* the posted meeting is done; its rank has not seen that yet */
};

struct clique {
    ncclUniqueId id;
    int size, n_members, n_ids;
    struct member *of;        /* [size] */
    int n_called[FAKE_KINDS]; /* how many ranks have called a collective of each kind */
    size_t window_bytes;      /* the size of the last window that a rank asked for */
    int is_dead;              /* a member has left: no rank is served any more */
};

extern pthread_mutex_t fake_lock; /* guards all state of the stand-ins */

/* Each call begins with this, with the lock held.  1: the call must fail. */
int fake_called(const char *name);
int fake_device(void);
static inline void fake_enter(void) { pthread_mutex_lock(&fake_lock); }
cudaError_t fake_leave(cudaError_t e); /* releases the lock; e is remembered as the last error */

/* To be called without the lock: do what fake_strike_at asked for, if this is the call. */
void fake_strike(void);

/* The begin of each call of the runtime.  A call that frees does so even if it fails. */
#define RUNTIME_CALL           \
    fake_strike();             \
    fake_enter();              \
    if (fake_called(__func__)) \
    return fake_leave(cudaErrorUnknown)
#define RUNTIME_FREE \
    fake_enter();    \
    const cudaError_t result = fake_called(__func__) ? cudaErrorUnknown : cudaSuccess

void fake_put(cudaStream_t s, struct work w);
void fake_progress(void);
/* To be called without the lock.  If the caller has to wait for other ranks, and they are thousands
 * of threads, let it sleep: its polls would only keep the others from working. */
void fake_nap(int has_to_wait);
int fake_meet(const struct meeting *m);   /* 1: done; 0: not yet */
void fake_serve(struct clique *q, int r); /* do what rank r's last meeting completes */
size_t fake_size_of(ncclDataType_t t);
int fake_is_message(const struct call *k);
int fake_is_memory(const void *p, size_t n_bytes); /* 1: allocated memory of a device */
int fake_is_poisoned(int device);
void fake_fill(void *p, int value, size_t n_bytes); /* as memset; see fake_fill_at_most */
void *fake_share(size_t n_bytes);                   /* memory of ncclMemAlloc; NULL: no room */
void fake_unshare(void *p);                         /* asserts that it is not registered */
void fake_register(const void *p, int by);    /* asserts that it is the start of a fake_share */
void fake_hold(struct CUgraph_st *g, int by); /* adds `by` to n_graphs of g's communicators */
void fake_memory_reset(void);
int fake_memory_open(void);
void fake_nccl_reset(void);
int fake_nccl_open(void);
void fake_forget(const struct ncclComm *c); /* c ends: no stream names it any more */

#endif
