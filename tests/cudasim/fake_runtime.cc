/* fake_runtime - the simulator's CUDA runtime: streams that keep their work until it is asked for,
 * device memory that is closed to the host, calls that are counted and can fail. */
#include "sim.h"

#include <cuda_runtime.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "host_work.h"
#include "sim_impl.hh"

struct CUgraph_st {
    std::deque<struct cudasim::work> work;
};

struct CUgraphExec_st {
    std::deque<struct cudasim::work> work;
};

struct CUstream_st {
    std::deque<struct cudasim::work> todo;
    cudaGraph_t capture;       /* NULL: work is queued, not captured */
    bool spoilt;               /* a call was made that a capture forbids */
    uint64_t n_queued, n_done; /* pieces of work since the stream was made */
};

struct CUevent_st {
    cudaStream_t stream;
    uint64_t at;                /* the event is complete when the stream has done so many pieces */
    std::shared_ptr<double> us; /* the clock at that moment; NULL: the event tells no time */
};

namespace
{

struct runtime {
    std::map<void *, size_t> device; /* mapped memory, which is open only while work is done */
    std::map<void *, size_t> pinned; /* memory of the host */
    std::set<void *> others;         /* streams, events, graphs */
    uint64_t n_calls = 0, fail_in = 0, n_launches = 0, n_allocs = 0, n_waits = 0;
    int n_open = 0;                    /* drains under way, in which the device's memory is open */
    cudaError_t last = cudaSuccess;    /* for cudaGetLastError */
    double us = 0.0;                   /* the device's clock */
    bool has_no_clock = false;         /* events tell no time (sim_stop_clock) */
    bool is_broken = false;            /* every call fails from now on (sim_break) */
    std::string text;                  /* the text of cudaErrorLaunchFailure */
    std::vector<cudaStream_t> streams; /* all streams, in the order in which they were made */
    uint64_t order = 0;                /* random state from sim_set_order's seed; 0: no order */
} rt;

size_t whole_pages(size_t n_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (n_bytes + page - 1) / page * page;
}

/* Opens or closes device memory.  It counts, since work of one stream may wait for another stream,
 * whose work is then done meanwhile.  Pieces of memory that lie side by side take one call. */
void protect(int how)
{
    rt.n_open += how == PROT_NONE ? -1 : 1;
    if (rt.n_open != (how == PROT_NONE ? 0 : 1))
        return;
    for (auto piece = rt.device.begin(); piece != rt.device.end();) {
        char *from = (char *)piece->first, *to = from;

        for (; piece != rt.device.end() && piece->first == to; ++piece)
            to += piece->second;
        if (mprotect(from, (size_t)(to - from), how) < 0)
            abort();
    }
}

/* Every call starts here: counts the call, and fails it if that is due.  An error is returned, and
 * kept for cudaGetLastError. */
cudaError_t called(cudaError_t otherwise = cudaErrorUnknown)
{
    rt.n_calls++;
    if (rt.is_broken)
        return rt.last = cudaErrorIllegalAddress;
    if (rt.fail_in && --rt.fail_in == 0)
        return rt.last = otherwise;
    return cudaSuccess;
}

bool is_in(const std::map<void *, size_t> &memory, const void *p, size_t n_bytes)
{
    auto next = memory.upper_bound(const_cast<void *>(p));

    if (next == memory.begin())
        return false;
    --next;
    return (const char *)p + n_bytes <= (const char *)next->first + next->second;
}

bool in_device(const void *p, size_t n_bytes) { return is_in(rt.device, p, n_bytes); }

/* The device reaches these bytes by itself: its own, and pinned ones of the host. */
bool in_reach(const void *p, size_t n_bytes)
{
    return in_device(p, n_bytes) || is_in(rt.pinned, p, n_bytes);
}

cudaError_t drain(cudaStream_t s, uint64_t until)
{
    cudaError_t result = cudaSuccess;

    if (s->capture) {
        s->spoilt = true;
        return rt.last = cudaErrorStreamCaptureUnsupported;
    }
    if (s->n_done >= until)
        return cudaSuccess;
    protect(PROT_READ | PROT_WRITE);
    while (s->n_done < until && !rt.is_broken) {
        const struct cudasim::work w = s->todo.front();

        s->todo.pop_front();
        s->n_done++;
        if (w.threads == 0) {
            w.thread();
            continue;
        }
        rt.n_launches++;
        const std::string failure = cudasim::run_launch(w);
        if (!failure.empty()) {
            rt.text = failure;
            result = rt.last = cudaErrorLaunchFailure;
        }
    }
    protect(PROT_NONE);
    return rt.is_broken ? rt.last = cudaErrorIllegalAddress : result;
}

/* Host work that is queued by itself takes at least the time of a launch, in which the device may
 * be idle.  The pieces of a recording follow each other at once. */
std::function<void()> as_launched(cudaStream_t s, std::function<void()> work)
{
    const double launch_us = 50.0;

    if (s->capture)
        return work;
    return [=] {
        const double from = rt.us;

        work();
        rt.us = std::max(rt.us, from + launch_us);
    };
}

/* Each stream does a part of its work. */
void run_some()
{
    for (cudaStream_t s : rt.streams) {
        rt.order = rt.order * 6364136223846793005u + 1442695040888963407u;
        const uint64_t n = s->n_queued - s->n_done, pick = rt.order >> 33;

        if (!s->capture && pick % 3)
            (void)drain(s, s->n_done + (pick % 3 == 1 ? n : pick / 3 % (n + 1)));
    }
}

void put(cudaStream_t s, struct cudasim::work w)
{
    if (s->capture) {
        s->capture->work.push_back(std::move(w));
        return;
    }
    s->todo.push_back(std::move(w));
    s->n_queued++;
    if (rt.order)
        run_some();
}

} /* namespace */

void cudasim::enqueue(const char *name, int64_t blocks, int64_t threads, cudaStream_t s,
                      std::function<void()> thread)
{
    if (called(cudaErrorLaunchFailure) != cudaSuccess)
        return;
    if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > 1024) {
        rt.last = cudaErrorInvalidConfiguration;
        return;
    }
    put(s, {name, blocks, threads, std::move(thread)});
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t last = rt.last;

    rt.last = cudaSuccess;
    return last;
}

const char *cudaGetErrorName(cudaError_t e)
{
    static char name[32];

    snprintf(name, sizeof name, "cudaError%d", (int)e);
    return e == cudaSuccess ? "cudaSuccess" : name;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorLaunchFailure    ? rt.text.c_str()
           : e == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                          : "simulated";
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return called(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    const cudaError_t e = called(cudaErrorInvalidDevice);

    return e != cudaSuccess || device == 0 ? e : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    (void)attr, (void)device;
    *value = 1; /* so few that kernels go round their loops several times */
    return called();
}

cudaError_t cudaMalloc(void **p, size_t n_bytes)
{
    rt.n_allocs++;
    const size_t size = whole_pages(n_bytes ? n_bytes : 1);

    if (called(cudaErrorMemoryAllocation) != cudaSuccess)
        return cudaErrorMemoryAllocation;
    *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*p == MAP_FAILED)
        return rt.last = cudaErrorMemoryAllocation;
    memset(*p, 0xee, size); /* undefined content */
    mprotect(*p, size, PROT_NONE);
    rt.device[*p] = size;
    return cudaSuccess;
}

/* Unlike the real one it does not wait for the device: work that still uses p crashes. */
cudaError_t cudaFree(void *p)
{
    rt.n_allocs++;
    if (p) {
        munmap(p, rt.device.at(p));
        rt.device.erase(p);
    }
    return called();
}

cudaError_t cudaMallocHost(void **p, size_t n_bytes)
{
    rt.n_allocs++;
    if (called(cudaErrorMemoryAllocation) != cudaSuccess)
        return cudaErrorMemoryAllocation;
    *p = malloc(n_bytes);
    rt.pinned[*p] = n_bytes;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    rt.n_allocs++;
    if (rt.pinned.erase(p) != 1)
        abort();
    free(p);
    return called();
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = (size_t)1 << 30;
    *total_bytes = (size_t)2 << 30;
    return called();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    rt.n_allocs++;
    (void)flags;
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    *s = new CUstream_st{};
    rt.others.insert(*s);
    rt.streams.push_back(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    rt.n_allocs++;
    drain(s, s->n_queued);
    rt.others.erase(s);
    rt.streams.erase(std::find(rt.streams.begin(), rt.streams.end(), s));
    delete s;
    return called();
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    rt.n_waits++;
    const cudaError_t e = called();

    return e != cudaSuccess ? e : drain(s, s->n_queued);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    cudaError_t e = called();

    if (e == cudaSuccess && s->n_done < s->n_queued)
        e = drain(s, s->n_done + 1);
    if (e != cudaSuccess || s->n_done == s->n_queued)
        return e;
    return rt.last = cudaErrorNotReady;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    s->capture = new CUgraph_st{};
    s->spoilt = false;
    rt.others.insert(s->capture);
    return cudaSuccess;
}

/* Ends the capture on failure, too, and then gives no graph. */
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    const cudaError_t e = called();
    cudaGraph_t captured = s->capture;

    s->capture = NULL;
    *graph = NULL;
    if (e != cudaSuccess || s->spoilt) {
        cudaGraphDestroy(captured);
        return rt.last = e != cudaSuccess ? e : cudaErrorStreamCaptureInvalidated;
    }
    *graph = captured;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    rt.n_allocs++;
    (void)flags;
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    *exec = new CUgraphExec_st{graph->work};
    rt.others.insert(*exec);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    rt.others.erase(graph);
    delete graph;
    return called();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    for (const auto &w : exec->work)
        put(s, w);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    rt.n_allocs++;
    rt.others.erase(exec);
    delete exec;
    return called();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    rt.n_allocs++;
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    *e = new CUevent_st{};
    if (!(flags & cudaEventDisableTiming))
        (*e)->us = std::make_shared<double>(0.0);
    rt.others.insert(*e);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    rt.n_allocs++;
    rt.others.erase(e);
    delete e;
    return called();
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    if (const std::shared_ptr<double> us = e->us)
        put(s, {"time", 0, 0, [=] { *us = rt.us; }});
    e->stream = s;
    e->at = s->n_queued;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    if (rt.has_no_clock || !from->us || !to->us || !from->stream || !to->stream)
        return rt.last = cudaErrorInvalidValue;
    if (to->stream->n_done < to->at)
        return rt.last = cudaErrorNotReady;
    *ms = (float)(1e-3 * (*to->us - *from->us));
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    rt.n_waits++;
    const cudaError_t st = called();

    return st != cudaSuccess || !e->stream ? st : drain(e->stream, e->at);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    cudaError_t st = called();

    if (st != cudaSuccess || !e->stream)
        return st;
    if (e->stream->n_done < e->at)
        st = drain(e->stream, e->stream->n_done + 1);
    if (st != cudaSuccess || e->stream->n_done >= e->at)
        return st;
    return rt.last = cudaErrorNotReady;
}

/* Waits for the event as it is now; a later record of the event changes nothing. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    const struct CUevent_st at = *e;

    (void)flags;
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    if (s->capture) {
        s->spoilt = true;
        return rt.last = cudaErrorStreamCaptureUnsupported;
    }
    if (at.stream && at.stream != s)
        put(s, {"wait", 0, 0, [=] { (void)drain(at.stream, at.at); }});
    return cudaSuccess;
}

/* Each address must be in the memory that `kind` names.  Unlike the real one this does not notice
 * host memory that is not pinned, of which a copy is not asynchronous and cannot be captured;
 * except with cudaMemcpyDefault, which takes any memory that the device reaches. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;

    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    if (kind == cudaMemcpyDefault
            ? !in_reach(to, n_bytes) || !in_reach(from, n_bytes)
            : in_device(to, n_bytes) != to_device || in_device(from, n_bytes) != from_device)
        return rt.last = cudaErrorInvalidValue;
    put(s, {"copy", 0, 0, [=] { memcpy(to, from, n_bytes); }});
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n_bytes, cudaStream_t s)
{
    if (called() != cudaSuccess)
        return cudaErrorUnknown;
    if (!in_device(p, n_bytes))
        return rt.last = cudaErrorInvalidValue;
    put(s, {"set", 0, 0, [=] { memset(p, value, n_bytes); }});
    return cudaSuccess;
}

void sim_host_work(struct CUstream_st *s, void (*fn)(void *arg), void *arg)
{
    put(s, {"host work", 0, 0, as_launched(s, [=] { fn(arg); })});
}

int sim_is_device(const void *p) { return in_device(p, 1); }

size_t sim_device_bytes(void)
{
    size_t n = 0;

    for (const auto &piece : rt.device)
        n += piece.second;
    return n;
}

void sim_host_work_owned(struct CUstream_st *s, void (*fn)(void *arg), void *arg,
                         void (*release)(void *arg))
{
    const std::shared_ptr<void> held(arg, release);

    put(s, {"host work", 0, 0, as_launched(s, [=] { fn(held.get()); })});
}

void sim_spend(double us) { rt.us += us; }

uint64_t sim_launches(void) { return rt.n_launches; }

uint64_t sim_calls(void) { return rt.n_calls; }

uint64_t sim_allocs(void) { return rt.n_allocs; }

uint64_t sim_waits(void) { return rt.n_waits; }

void sim_set_order(uint64_t seed) { rt.order = seed; }

void sim_fail_at(uint64_t n) { rt.fail_in = n; }

void sim_break(void) { rt.is_broken = true; }

void sim_stop_clock(int stopped) { rt.has_no_clock = stopped; }

int sim_open_things(void) { return (int)(rt.device.size() + rt.pinned.size() + rt.others.size()); }
