/* fake_cuda - the stand-in for the CUDA runtime, as far as coll/nccl and the rig call it: streams,
 * events, recordings.  fake_memory.c has its memory. */
#include "fake_impl.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

enum { MAX_LOG = 1 << 16, MAX_STREAMS = 3 * MAX_DEVICES, LOOKS = 64 };

static struct {
    cudaStream_t stream[MAX_STREAMS];
    int next; /* the stream at which fake_progress begins */
    int n_streams, n_events, n_graphs;
    cudaError_t last;
    int fail_in[MAX_DEVICES], is_broken[MAX_DEVICES];
    const char *failed;
    int n_log; /* of `call_log` */
    struct {
        int device;
        atomic_int left;
        void (*fn)(void *arg);
        void *arg;
    } strike;
} rt;

/* Not in `rt`, which fake_reset clears: this is a megabyte, and n_log tells what of it is used. */
static struct {
    int device;
    const char *name;
} call_log[MAX_LOG];

static _Thread_local int this_device, n_calls_here;

int fake_device(void) { return this_device; }
int fake_calls_here(void) { return n_calls_here; }

cudaError_t fake_leave(cudaError_t e)
{
    if (e != cudaSuccess)
        rt.last = e;
    pthread_mutex_unlock(&fake_lock);
    return e;
}

int fake_called(const char *name)
{
    ASSERT(this_device < MAX_DEVICES);
    n_calls_here++;
    if (!strstr(name, "Query") && !strstr(name, "AsyncError")) {
        if (rt.n_log < MAX_LOG) {
            call_log[rt.n_log].device = this_device;
            call_log[rt.n_log].name = name;
        }
        rt.n_log++;
    }
    if (rt.is_broken[this_device])
        return 1;
    if (rt.fail_in[this_device] == 0 || --rt.fail_in[this_device] > 0)
        return 0;
    rt.failed = name;
    return 1;
}

/* ---- for tests ---- */

void fake_reset(void)
{
    fake_enter();
    for (int i = 0; i < rt.n_streams; i++)
        free(rt.stream[i]);
    memset(&rt, 0, sizeof rt);
    rt.failed = "";
    fake_memory_reset();
    fake_nccl_reset();
    (void)fake_leave(cudaSuccess);
}

int fake_open_things(void)
{
    return fake_memory_open() + rt.n_streams + rt.n_events + rt.n_graphs + fake_nccl_open();
}

void fake_fail_at(int device, int n) { rt.fail_in[device] = n; }
int fake_fail_left(int device) { return rt.fail_in[device]; }
void fake_strike_at(int device, int n, void (*fn)(void *arg), void *arg)
{
    rt.strike.device = device;
    rt.strike.fn = fn;
    rt.strike.arg = arg;
    atomic_store(&rt.strike.left, n);
}

int fake_strike_left(int device)
{
    return rt.strike.device == device ? atomic_load(&rt.strike.left) : 0;
}

void fake_strike(void)
{
    enum { TURNS = 500 };

    if (this_device != rt.strike.device || atomic_load(&rt.strike.left) <= 0 ||
        atomic_fetch_sub(&rt.strike.left, 1) != 1)
        return;
    rt.strike.fn(rt.strike.arg);
    for (int i = 0; i < TURNS; i++)
        sched_yield();
}

const char *fake_failed_call(void) { return rt.failed ? rt.failed : ""; }

char *fake_log(const char *const *words)
{
    struct buf b = {0};
    char *text;

    fake_enter();
    ASSERT(rt.n_log <= MAX_LOG); /* else the log has not all calls */
    for (int i = 0; i < rt.n_log; i++)
        for (const char *const *w = words; *w; w++)
            if (!strcmp(*w, call_log[i].name))
                buf_printf(&b, "%d:%s ", call_log[i].device, call_log[i].name);
    text = xstrdup(buf_cstr(&b));
    (void)fake_leave(cudaSuccess);
    buf_fini(&b);
    return text;
}

/* ---- work ---- */

static int is_node_ready(const struct run *r, int i)
{
    const struct work *w = &r->graph->node[i];

    for (int k = 0; k < i; k++)
        if (r->graph->node[k].lane == w->lane && !r->done[k])
            return 0;
    return w->kind != WORK_WAIT || r->done[w->before];
}

static int do_work(struct work *w);

/* Do at most one node of each lane. */
static int do_run(struct run *r)
{
    int tried[4] = {0}, n_done = 0;

    for (int i = 0; i < r->graph->n_nodes; i++) {
        const struct work *node = &r->graph->node[i];

        if (!r->done[i] && !tried[node->lane]++ && is_node_ready(r, i)) {
            struct work copy = *node;

            r->done[i] = copy.kind == WORK_RECORD || copy.kind == WORK_WAIT || do_work(&copy);
        }
        n_done += r->done[i];
    }
    if (n_done < r->graph->n_nodes)
        return 0;
    free(r);
    return 1;
}

static int do_work(struct work *w)
{
    switch (w->kind) {
    case WORK_RECORD:
        w->event->n_done = w->nth;
        return 1;
    case WORK_WAIT:
        return w->event->n_done >= w->nth;
    case WORK_COPY:
        memcpy(w->to, w->from, w->n_bytes);
        return 1;
    case WORK_SET:
        fake_fill(w->to, w->value, w->n_bytes);
        return 1;
    case WORK_CALL:
        w->fn(w->arg);
        return 1;
    case WORK_COLL:
        return fake_meet(&w->m);
    case WORK_GRAPH:
        return do_run(w->run);
    }
    ASSERT(!"work without its line here");
}

void fake_progress(void)
{
    const int n = rt.n_streams < LOOKS ? rt.n_streams : LOOKS;

    for (int i = 0; i < n; i++) {
        cudaStream_t s = rt.stream[(rt.next + i) % rt.n_streams];

        if (s->head < s->tail && do_work(&s->todo[s->head]))
            s->head++;
        if (s->head == s->tail)
            s->head = s->tail = 0;
    }
    rt.next = n < rt.n_streams ? (rt.next + n) % rt.n_streams : 0;
}

void fake_nap(int has_to_wait)
{
    enum { NAP_US = 100000 };
    int is_crowd;

    if (!has_to_wait)
        return;
    fake_enter();
    is_crowd = rt.n_streams > LOOKS;
    pthread_mutex_unlock(&fake_lock);
    if (is_crowd)
        usleep(NAP_US);
}

void fake_put(cudaStream_t s, struct work w)
{
    struct CUgraph_st *g = s->capture;

    if (s->comm) /* while a communicator is in progress, nothing goes on its stream */
        ASSERT(!s->comm->n_in_progress || s->comm->is_aborted);
    if (!g) {
        ASSERT(s->tail < MAX_WORK);
        s->todo[s->tail++] = w;
        return;
    }
    ASSERT(g->n_nodes < (int)ARRAY_LEN(g->node));
    w.lane = s->lane;
    g->is_joined[s->lane] = w.kind == WORK_RECORD ? g->is_joined[s->lane] : 0;
    g->node[g->n_nodes++] = w;
}

void fake_kernel(cudaStream_t s, void (*fn)(void *arg), void *arg)
{
    fake_enter();
    fake_put(s, (struct work){.kind = WORK_CALL, .fn = fn, .arg = arg});
    (void)fake_leave(cudaSuccess);
}

static void drop(struct work *w)
{
    if (w->kind == WORK_COLL)
        w->m.comm->n_queued--;
    if (w->kind != WORK_GRAPH)
        return;
    for (int i = 0; i < w->run->graph->n_nodes; i++) {
        const struct work *node = &w->run->graph->node[i];

        if (node->kind == WORK_COLL && !w->run->done[i])
            node->m.comm->n_queued--;
    }
    free(w->run);
}

void fake_break(int device)
{
    fake_enter();
    rt.is_broken[device] = 1;
    for (int i = 0; i < rt.n_streams; i++) {
        cudaStream_t s = rt.stream[i];

        while (s->device == device && s->head < s->tail)
            drop(&s->todo[s->head++]);
    }
    (void)fake_leave(cudaSuccess);
}

/* ---- device, errors ---- */

const char *cudaGetErrorName(cudaError_t e) { return e == cudaSuccess ? "none" : "failed"; }
const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "none" : "cuda error"; }

cudaError_t cudaGetLastError(void)
{
    cudaError_t e;

    fake_enter();
    e = rt.last;
    rt.last = cudaSuccess;
    (void)fake_leave(cudaSuccess);
    return e;
}

cudaError_t cudaSetDevice(int device)
{
    this_device = device; /* even if the call fails: the thread's calls must be counted */
    RUNTIME_CALL;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    RUNTIME_CALL;
    *least = 0;
    *greatest = -5;
    return fake_leave(cudaSuccess);
}

void fake_forget(const struct ncclComm *c)
{
    if (c->stream && c->stream->comm == c)
        c->stream->comm = NULL;
}

/* ---- streams, events ---- */

static cudaError_t new_stream(cudaStream_t *s, int priority)
{
    ASSERT(rt.n_streams < MAX_STREAMS);
    *s = xcalloc(1, sizeof **s);
    (*s)->device = this_device;
    (*s)->priority = priority;
    rt.stream[rt.n_streams++] = *s;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    RUNTIME_CALL;
    ASSERT(flags == cudaStreamNonBlocking);
    return new_stream(s, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    RUNTIME_CALL;
    ASSERT(flags == cudaStreamNonBlocking && (priority == -5 || priority == -4));
    return new_stream(s, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    RUNTIME_FREE;
    ASSERT(!s->capture);
    for (int i = 0; i < rt.n_streams; i++)
        if (rt.stream[i] == s)
            rt.stream[i] = rt.stream[--rt.n_streams];
    if (s->comm)
        s->comm->stream = NULL;
    free(s);
    return fake_leave(result);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    int is_ready;

    RUNTIME_CALL;
    if (s->capture) {
        s->capture->is_spoilt = 1;
        return fake_leave(cudaErrorStreamCaptureUnsupported);
    }
    fake_progress();
    is_ready = s->head == s->tail;
    (void)fake_leave(is_ready ? cudaSuccess : cudaErrorNotReady);
    fake_nap(!is_ready);
    return is_ready ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    RUNTIME_CALL;
    ASSERT(!s->capture);
    while (s->head < s->tail) {
        fake_progress();
        pthread_mutex_unlock(&fake_lock);
        sched_yield();
        fake_enter();
    }
    return fake_leave(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    RUNTIME_CALL;
    ASSERT(flags == cudaEventDisableTiming);
    *e = xcalloc(1, sizeof **e);
    (*e)->device = this_device;
    rt.n_events++;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    RUNTIME_FREE;
    rt.n_events--;
    free(e);
    return fake_leave(result);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    RUNTIME_CALL;
    e->capture = s->capture;
    if (s->capture) {
        e->node = s->capture->n_nodes;
        fake_put(s, (struct work){.kind = WORK_RECORD});
    } else {
        fake_put(s, (struct work){.kind = WORK_RECORD, .event = e, .nth = ++e->n_recorded});
    }
    return fake_leave(cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    int is_ready;

    RUNTIME_CALL;
    if (e->capture) {
        e->capture->is_spoilt = 1;
        return fake_leave(cudaErrorCapturedEvent);
    }
    fake_progress();
    is_ready = e->n_done >= e->n_recorded;
    (void)fake_leave(is_ready ? cudaSuccess : cudaErrorNotReady);
    fake_nap(!is_ready);
    return is_ready ? cudaSuccess : cudaErrorNotReady;
}

/* A stream that waits for an event recorded in a capture joins that capture. */
static void join_capture(cudaStream_t s, struct CUgraph_st *g)
{
    if (s->capture)
        return;
    ASSERT(g->n_lanes < (int)ARRAY_LEN(g->lane));
    s->lane = g->n_lanes++;
    g->lane[s->lane] = s;
    s->capture = g;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    struct CUgraph_st *g;

    RUNTIME_CALL;
    ASSERT(flags == 0);
    g = e->capture;
    if (!g != !s->capture && !g)
        return fake_leave(cudaErrorStreamCaptureIsolation);
    if (!g) {
        fake_put(s, (struct work){.kind = WORK_WAIT, .event = e, .nth = e->n_recorded});
        return fake_leave(cudaSuccess);
    }
    join_capture(s, g);
    ASSERT(s->capture == g);
    fake_put(s, (struct work){.kind = WORK_WAIT, .before = e->node});
    if (s->lane == 0)
        g->is_joined[g->node[e->node].lane] = 1;
    return fake_leave(cudaSuccess);
}

/* ---- recordings ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    RUNTIME_CALL;
    ASSERT(mode == cudaStreamCaptureModeThreadLocal && !s->capture);
    s->capture = xcalloc(1, sizeof *s->capture);
    s->capture->n_lanes = 1;
    s->capture->lane[0] = s;
    s->lane = 0;
    rt.n_graphs++;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    struct CUgraph_st *g = s->capture;
    int is_bad;

    fake_enter();
    is_bad = fake_called(__func__) || g->is_spoilt;
    for (int i = 0; i < g->n_lanes; i++) {
        const struct ncclComm *c = g->lane[i]->comm;

        ASSERT(!c || !c->n_in_progress || c->is_hanging || c->is_aborted);
        g->lane[i]->capture = NULL;
        is_bad |= i > 0 && !g->is_joined[i];
    }
    *out = NULL;
    if (is_bad) {
        fake_hold(g, -1);
        free(g);
        rt.n_graphs--;
        return fake_leave(cudaErrorStreamCaptureUnjoined);
    }
    *out = g;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
    RUNTIME_CALL;
    ASSERT(flags == cudaGraphInstantiateFlagUseNodePriority);
    *out = xcalloc(1, sizeof **out);
    (*out)->graph = xcalloc(1, sizeof *g);
    *(*out)->graph = *g;
    fake_hold(g, 1);
    rt.n_graphs++;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s)
{
    struct run *r;

    RUNTIME_CALL;
    r = xcalloc(1, sizeof *r);
    r->graph = e->graph;
    for (int i = 0; i < e->graph->n_nodes; i++)
        if (e->graph->node[i].kind == WORK_COLL)
            e->graph->node[i].m.comm->n_queued++;
    fake_put(s, (struct work){.kind = WORK_GRAPH, .run = r});
    return fake_leave(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    RUNTIME_FREE;
    fake_hold(g, -1);
    free(g);
    rt.n_graphs--;
    return fake_leave(result);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    RUNTIME_FREE;
    fake_hold(e->graph, -1);
    free(e->graph);
    free(e);
    rt.n_graphs--;
    return fake_leave(result);
}
