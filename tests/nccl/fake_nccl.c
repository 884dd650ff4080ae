/* fake_nccl - the stand-in for NCCL, as far as coll/nccl calls it: communicators that form cliques,
 * windows, collectives and messages between the ranks of a clique. */
#include "fake_impl.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { MAX_CLIQUES = 64, POLLS = 2 };

static struct {
    struct clique clique[MAX_CLIQUES];
    int n_cliques, n_comms, version, gives_no_windows;
    uint64_t n_ids;
    enum fake_hang hang;
    int error_of[MAX_DEVICES];
} nccl;

/* The text that ncclGetLastError gives: each thread gets that of its own calls.  NULL: none. */
static _Thread_local const char *last_words;

void fake_nccl_reset(void)
{
    const enum fake_hang none = FAKE_HANG_NONE;

    for (int i = 0; i < nccl.n_cliques; i++)
        free(nccl.clique[i].of);
    memset(&nccl, 0, sizeof nccl);
    nccl.hang = none;
    nccl.version = NCCL_VERSION_CODE;
}

int fake_nccl_open(void) { return nccl.n_comms; }

void fake_hang(enum fake_hang what)
{
    pthread_mutex_lock(&fake_lock);
    nccl.hang = what;
    pthread_mutex_unlock(&fake_lock);
}

void fake_version(int version) { nccl.version = version; }
void fake_windows(int are_given) { nccl.gives_no_windows = !are_given; }

void fake_async_error(int device)
{
    pthread_mutex_lock(&fake_lock);
    nccl.error_of[device] = 1;
    pthread_mutex_unlock(&fake_lock);
}

/* ---- being called ---- */

static ncclResult_t leave(ncclComm_t c, ncclResult_t r)
{
    if (c)
        c->is_inside = 0;
    pthread_mutex_unlock(&fake_lock);
    return r;
}

/* Enter a communicator, and assert that no other thread is inside it.  The lock is released for a
 * moment, so that a second thread has a chance to break the rule. */
static int enter(ncclComm_t c, const char *name)
{
    pthread_mutex_lock(&fake_lock);
    if (c) {
        ASSERT(!c->is_inside);
        ASSERT(!c->is_destroying);
        c->is_inside = 1;
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        pthread_mutex_lock(&fake_lock);
    }
    return fake_called(name);
}

#define BEGIN(c)              \
    if (enter((c), __func__)) \
    return leave((c), ncclSystemError)

const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclRemoteError          ? "remote process exited or there was a network error"
           : r == ncclUnhandledCudaError ? "unhandled cuda error"
                                         : "unhandled system error";
}

const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return last_words ? last_words : "";
}

ncclResult_t ncclGetVersion(int *version)
{
    BEGIN(NULL);
    *version = nccl.version;
    return leave(NULL, ncclSuccess);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    BEGIN(NULL);
    memset(id, 0x11, sizeof *id);
    nccl.n_ids++;
    memcpy(id->internal, &nccl.n_ids, sizeof nccl.n_ids);
    return leave(NULL, ncclSuccess);
}

/* ---- life ---- */

static struct clique *clique_of(const ncclUniqueId *id, int size, int n_ids)
{
    for (int i = 0; i < nccl.n_cliques; i++)
        if (!memcmp(&nccl.clique[i].id, id, sizeof *id)) {
            ASSERT(nccl.clique[i].size == size && nccl.clique[i].n_ids == n_ids);
            return &nccl.clique[i];
        }
    ASSERT(nccl.n_cliques < MAX_CLIQUES);
    nccl.clique[nccl.n_cliques] = (struct clique){
        .id = *id,
        .size = size,
        .n_ids = n_ids,
        .of = xcalloc((size_t)size, sizeof *nccl.clique[0].of),
    };
    return &nccl.clique[nccl.n_cliques++];
}

static ncclComm_t new_comm(const ncclUniqueId *id, int size, int rank, int n_ids)
{
    ncclComm_t c = xcalloc(1, sizeof *c);

    c->clique = clique_of(id, size, n_ids);
    c->clique->n_members++;
    c->device = c->rank = rank;
    c->connecting = -1;
    nccl.n_comms++;
    return c;
}

/* Each id is one that ncclGetUniqueId has made, and they are in order. */
static void check_ids(const ncclUniqueId *ids, int n_ids)
{
    for (int i = 0; i < n_ids; i++) {
        uint64_t first, number;

        memcpy(&first, ids[0].internal, sizeof first);
        memcpy(&number, ids[i].internal, sizeof number);
        ASSERT(number == first + (uint64_t)i && 0 < number && number <= nccl.n_ids);
    }
}

/* The blocks of all the communicators of a device fit on a GPU with 40 multiprocessors. */
static void check_config(const ncclConfig_t *config)
{
    ASSERT(config->blocking == 0 && config->commName && *config->commName);
    ASSERT(0 < config->maxCTAs && config->maxCTAs <= 32);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int size, int rank, int n_ids,
                                      ncclUniqueId *ids, ncclConfig_t *config)
{
    *out = NULL;
    BEGIN(NULL);
    check_config(config);
    check_ids(ids, n_ids);
    ASSERT(rank == fake_device() && rank < size && size <= MAX_DEVICES);
    *out = new_comm(&ids[0], size, rank, n_ids);
    (*out)->n_in_progress = POLLS;
    return leave(NULL, ncclInProgress);
}

/* The new communicator is stored when the split is done, or when the old one ends before. */
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
    ncclUniqueId id = c->clique->id;

    BEGIN(c);
    check_config(config);
    ASSERT(color == 0 && key == c->rank && config->splitShare == 0 && config->maxCTAs <= 8);
    ASSERT(!c->n_in_progress && !c->child);
    id.internal[sizeof id.internal - 1]++;
    c->child = new_comm(&id, c->clique->size, c->rank, c->clique->n_ids);
    c->child->is_split = 1;
    c->child_at = out;
    c->n_in_progress = POLLS;
    return leave(c, ncclInProgress);
}

static void give_child(ncclComm_t c)
{
    if (c->child)
        __atomic_store_n(c->child_at, c->child, __ATOMIC_RELEASE);
    c->child = NULL;
}

/* The communicator connects, splits, or registers a window, and other ranks have not come to that
 * yet. */
static int is_alone(const struct ncclComm *c)
{
    const struct clique *q = c->clique;

    for (int r = 0; r < q->size && c->window; r++)
        if (q->of[r].n_windows < q->of[c->rank].n_windows)
            return 1;
    if (c->connecting >= 0 && q->n_called[c->connecting] < q->size)
        return 1;
    if (c->child && (c->child->clique->n_members < q->size || nccl.hang == FAKE_HANG_SPLIT))
        return 1;
    return q->n_members < q->size || nccl.hang == FAKE_HANG_INIT || c->is_hanging ||
           (nccl.hang == FAKE_HANG_FINALIZE && c->is_finalized);
}

static void give_window(ncclComm_t c)
{
    if (!c->window)
        return;
    *c->window = (ncclWindow_t)c->window_at;
    c->window = NULL;
}

/* A failure here is the result of the work that the communicator's own thread did in the
 * background: the work has then ended. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *st)
{
    int has_to_wait;

    if (enter(c, __func__)) {
        c->n_in_progress = 0;
        give_child(c);
        return leave(c, ncclSystemError);
    }
    fake_progress();
    if (nccl.error_of[c->device] && !c->is_split)
        c->error = ncclRemoteError;
    if (c->error == ncclSuccess && c->n_in_progress > 0 && !is_alone(c))
        c->n_in_progress--;
    if (!c->n_in_progress) {
        give_window(c);
        give_child(c);
        c->connecting = -1;
    }
    *st = c->error != ncclSuccess ? c->error : c->n_in_progress ? ncclInProgress : ncclSuccess;
    has_to_wait = *st == ncclInProgress && is_alone(c);
    (void)leave(c, ncclSuccess);
    fake_nap(has_to_wait);
    return ncclSuccess;
}

/* ---- memory that is shared ---- */

ncclResult_t ncclMemAlloc(void **p, size_t n_bytes)
{
    const int is_bad = enter(NULL, __func__);

    *p = is_bad ? NULL : fake_share(n_bytes); /* every failure here has the same text */
    last_words = *p ? NULL : "Cuda failure 2 'out of memory'";
    return leave(NULL, *p ? ncclSuccess : ncclUnhandledCudaError);
}

ncclResult_t ncclMemFree(void *p)
{
    const int is_bad = enter(NULL, __func__);

    fake_unshare(p);
    return leave(NULL, is_bad ? ncclSystemError : ncclSuccess);
}

/* Registering is a collective: it is done when all ranks have come; only then is there a handle. */
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *x, size_t n_bytes, ncclWindow_t *window,
                                    int flags)
{
    struct clique *q = c->clique;
    int is_first = 1;

    BEGIN(c);
    ASSERT(flags == NCCL_WIN_COLL_SYMMETRIC && !c->n_in_progress && !c->window);
    if (nccl.gives_no_windows)
        return leave(c, ncclSuccess);
    fake_register(x, 1);
    q->of[c->rank].n_windows++;
    for (int r = 0; r < q->size; r++)
        is_first &= r == c->rank || q->of[r].n_windows < q->of[c->rank].n_windows;
    ASSERT(is_first || q->window_bytes == n_bytes); /* the same size on all ranks */
    q->window_bytes = n_bytes;
    c->n_registered++;
    c->n_in_progress = POLLS;
    c->window = window;
    c->window_at = x;
    return leave(c, ncclInProgress);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window)
{
    const int is_bad = enter(c, __func__);

    ASSERT(window && window == (ncclWindow_t)c->window_at);
    ASSERT(!c->is_finalized && c->n_registered > 0 && !c->n_queued);
    fake_register(window, -1);
    c->n_registered--;
    return leave(c, is_bad ? ncclSystemError : ncclSuccess);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    BEGIN(c);
    ASSERT(!c->n_queued && !c->n_registered);
    c->is_finalized = 1;
    c->n_in_progress = POLLS;
    return leave(c, ncclInProgress);
}

static void wait_unlocked(void)
{
    fake_progress();
    pthread_mutex_unlock(&fake_lock);
    sched_yield();
    pthread_mutex_lock(&fake_lock);
}

static ncclResult_t end(ncclComm_t c, int is_bad)
{
    c->clique->is_dead = 1;
    c->is_destroying = 1;
    while (nccl.hang == FAKE_HANG_DESTROY)
        wait_unlocked();
    if (c->n_registered) /* the communicator's end also ends its window */
        fake_register(c->window_at, -1);
    fake_forget(c);
    free(c);
    nccl.n_comms--;
    pthread_mutex_unlock(&fake_lock);
    return is_bad ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    const int is_bad = enter(c, __func__);

    ASSERT(c->is_finalized);
    ASSERT(!c->n_queued);
    ASSERT(!c->n_graphs); /* the real NCCL would wait for ever */
    return end(c, is_bad);
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    const int is_bad = enter(c, __func__);

    ASSERT(fake_is_poisoned(c->device) || (!c->n_queued && !c->n_graphs));
    c->is_aborted = c->is_destroying = 1;
    c->clique->is_dead = 1;
    give_child(c);
    while (c->n_graphs > 0 || c->n_queued > 0)
        wait_unlocked();
    return end(c, is_bad);
}

void fake_hold(struct CUgraph_st *g, int by)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].kind == WORK_COLL)
            g->node[i].m.comm->n_graphs += by;
}

/* ---- meeting ---- */

static int garbage(const struct meeting *m)
{
    for (int i = 0; i < m->n_calls; i++)
        if (m->call[i].recv)
            memset(m->call[i].recv, 0x5a, m->call[i].n_bytes);
    m->comm->n_queued--;
    return 1;
}

static int returns_early(const struct ncclComm *c)
{
    return c->is_aborted && nccl.hang != FAKE_HANG_KERNELS;
}

int fake_meet(const struct meeting *m)
{
    ncclComm_t c = m->comm;
    struct clique *q = c->clique;
    const int r = c->rank;

    if (!q->of[r].is_served && returns_early(c))
        return garbage(m);
    if (!q->of[r].is_served && !q->of[r].is_posted && !q->is_dead) {
        q->of[r].posted = *m;
        q->of[r].is_posted = 1;
        fake_serve(q, r);
    }
    if (!q->of[r].is_served)
        return 0;
    q->of[r].is_served = 0;
    c->n_queued--;
    return 1;
}

/* ---- calls ---- */

/* Connect the ranks for the first collective of each kind.  Messages connect two ranks alone. */
static void connect_for(ncclComm_t c, const struct call *k)
{
    unsigned *called = &c->clique->of[c->rank].called;

    c->connecting = fake_is_message(k) || (*called & 1u << k->kind) ? -1 : (int)k->kind;
    c->clique->n_called[k->kind] += !(*called & 1u << k->kind);
    *called |= 1u << k->kind;
}

/* A thread's group: its calls since ncclGroupStart. */
static _Thread_local struct {
    int is_open, is_bad;
    struct meeting m;
    cudaStream_t stream;
} group;

static ncclResult_t put_meeting(cudaStream_t s, const struct meeting *m)
{
    ncclComm_t c = m->comm;

    ASSERT(!c->n_in_progress && !c->is_finalized);
    ASSERT(s->priority == (c->is_split ? -5 : -4)); /* the urgent channel goes before */
    connect_for(c, &m->call[0]);
    ASSERT(!s->capture || c->connecting < 0);
    s->comm = NULL;
    c->n_queued += !s->capture;
    c->n_graphs += s->capture != NULL;
    c->is_hanging = s->capture && nccl.hang == FAKE_HANG_RECORD;
    fake_put(s, (struct work){.kind = WORK_COLL, .m = *m});
    s->comm = c;
    c->stream = s;
    c->n_in_progress = POLLS;
    return ncclInProgress;
}

/* n_sent, n_received: how many bytes of k's buffers must be device memory. */
static ncclResult_t queue(cudaStream_t s, ncclComm_t c, struct call k, size_t n_sent,
                          size_t n_received)
{
    struct meeting m = {.comm = c, .call = {k}, .n_calls = 1};

    ASSERT(!n_sent || fake_is_memory(k.send, n_sent));
    ASSERT(!n_received || fake_is_memory(k.recv, n_received));
    ASSERT(group.is_open || !fake_is_message(&k)); /* our messages are always in a group */
    if (!group.is_open)
        return leave(c, put_meeting(s, &m));
    if (group.m.n_calls) {
        ASSERT(group.m.comm == c && group.stream == s && group.m.n_calls < MAX_CALLS);
        ASSERT(fake_is_message(&group.m.call[0]) == fake_is_message(&k));
    }
    group.m.comm = c;
    group.stream = s;
    group.m.call[group.m.n_calls++] = k;
    return leave(c, ncclSuccess);
}

/* NCCL declares these two without their (void). */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    BEGIN(NULL);
    ASSERT(!group.is_open);
    memset(&group, 0, sizeof group);
    group.is_open = 1;
    return leave(NULL, ncclSuccess);
}

/* If a call of the group failed, nothing of the group is queued. */
ncclResult_t ncclGroupEnd(void)
{
    const int is_bad = enter(NULL, __func__) || group.is_bad;
    const ncclResult_t st = is_bad            ? ncclSystemError
                            : group.m.n_calls ? put_meeting(group.stream, &group.m)
                                              : ncclSuccess;

    ASSERT(group.is_open);
    group.is_open = 0;
    return leave(NULL, st);
}

#define BEGIN_CALL(c)                       \
    if (enter((c), __func__)) {             \
        group.is_bad = 1;                   \
        return leave((c), ncclSystemError); \
    }

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    ASSERT(op == ncclSum && send == recv);
    return queue(s, c, (struct call){FAKE_ALLREDUCE, send, recv, n_bytes, type, 0, 0}, n_bytes,
                 n_bytes);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    ASSERT(op == ncclSum && send == recv && n > 0);
    return queue(s, c, (struct call){FAKE_REDUCE, send, recv, n_bytes, type, root, 0}, n_bytes,
                 n_bytes);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    ASSERT(op == ncclSum && recv == (const char *)send + (size_t)c->rank * n_bytes);
    return queue(s, c, (struct call){FAKE_REDUCE_SCATTER, send, recv, n_bytes, type, 0, 0},
                 n_bytes * (size_t)c->clique->size, n_bytes);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t n, ncclDataType_t type, int root,
                           ncclComm_t c, cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    return queue(s, c, (struct call){FAKE_BROADCAST, send, recv, n_bytes, type, root, 0}, n_bytes,
                 n_bytes);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t n, ncclDataType_t type,
                           ncclComm_t c, cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    return queue(s, c, (struct call){FAKE_ALLGATHER, send, recv, n_bytes, type, 0, 0}, n_bytes,
                 n_bytes * (size_t)c->clique->size);
}

ncclResult_t ncclSend(const void *send, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    ASSERT(peer != c->rank);
    return queue(s, c, (struct call){FAKE_SEND, send, NULL, n_bytes, type, peer, 0}, n_bytes, 0);
}

ncclResult_t ncclRecv(void *recv, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    const size_t n_bytes = n * fake_size_of(type);

    BEGIN_CALL(c);
    ASSERT(peer != c->rank);
    return queue(s, c, (struct call){FAKE_RECV, NULL, recv, n_bytes, type, peer, 0}, 0, n_bytes);
}
