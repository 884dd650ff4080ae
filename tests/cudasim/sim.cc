/* sim - runs a kernel's threads as fibers, one block at a time, with barriers and a warp's
 * collectives. */
#include "sim.h"

#include <cuda_runtime.h>

#include <stdlib.h>
#include <sys/mman.h>

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "context.hh"
#include "sim_impl.hh"

#ifdef __SANITIZE_ADDRESS__
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif
#ifdef UNDER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

struct dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

enum { STACK_BYTES = 64 * 1024, WARP_LANES = 32, THREADS_MAX = 1024 };
enum state { RUNNABLE, AT_BARRIER, AT_WARP, ENDED };

/* A fiber is a stack.  Threads that never wait run on it one after another, without a switch. */
struct fiber {
    context saved;
    char *stack; /* made once, used by every block */
    int dirty;   /* a thread has begun on it and not ended */
};

struct thread {
    enum state state;
    struct cudasim::site at; /* where the thread waits */
    int fiber;               /* the fiber that it runs on; -1: not started yet */
};

struct warp {
    int open; /* 1: some lanes wait at `at` */
    struct cudasim::site at;
    unsigned mask, arrived, turn;
    uint64_t value[2][WARP_LANES]; /* by turn: a slow lane may still read the turn before */
};

struct array {
    void *data;
    size_t n_bytes;
};

struct simulator {
    std::vector<struct fiber> fiber;
    std::vector<int> idle; /* fibers without a thread */
    std::vector<struct thread> threads;
    std::vector<struct warp> warp;
    std::deque<int> runnable;
    std::map<std::pair<const char *, int>, struct array> shared; /* this block's, by site */
    const std::function<void()> *work;
    context scheduler;
    int current, n_threads;
    int next; /* a thread that a fiber picked and cannot run itself; or -1 */
    uint64_t seed = 0, random = 0;
    std::string failure;
    void *fake_stack;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
} sim;

bool same(struct cudasim::site a, struct cudasim::site b)
{
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

std::string text(struct cudasim::site at)
{
    const char *slash = strrchr(at.file, '/');

    return std::string(slash ? slash + 1 : at.file) + ":" + std::to_string(at.line);
}

/* A number in [0,n): 0 for seed 0, n-1 for seed 1, random for other seeds. */
int64_t choose(int64_t n)
{
    if (sim.seed <= 1)
        return sim.seed == 0 ? 0 : n - 1;
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (int64_t)((sim.random >> 33) % (uint64_t)n);
}

void switch_to_fiber(struct fiber *f)
{
#ifdef UNDER_ASAN
    __sanitizer_start_switch_fiber(&sim.fake_stack, f->stack, STACK_BYTES);
#endif
    context_switch(&sim.scheduler, &f->saved);
#ifdef UNDER_ASAN
    __sanitizer_finish_switch_fiber(sim.fake_stack, NULL, NULL);
#endif
}

void switch_to_scheduler(struct fiber *f, bool for_good)
{
#ifdef UNDER_ASAN
    void *mine = NULL;

    __sanitizer_start_switch_fiber(for_good ? NULL : &mine, sim.scheduler_stack,
                                   sim.scheduler_stack_bytes);
#endif
    (void)for_good;
    context_switch(&f->saved, &sim.scheduler);
#ifdef UNDER_ASAN
    __sanitizer_finish_switch_fiber(mine, &sim.scheduler_stack, &sim.scheduler_stack_bytes);
#endif
}

struct thread *current_thread() { return &sim.threads[(size_t)sim.current]; }

void make_current(int thread)
{
    sim.current = thread;
    threadIdx = {(unsigned)thread, 0, 0};
}

/* Picks a thread that can run, by the seed; -1 if there is none. */
int pick()
{
    const size_t n = sim.runnable.size();
    const size_t at = n ? (size_t)choose((int64_t)n) : 0;
    int thread;

    if (n == 0)
        return -1;
    thread = sim.runnable[at];
    if (at == 0) {
        sim.runnable.pop_front();
    } else if (sim.seed <= 1) { /* keeps the order */
        sim.runnable.pop_back();
    } else {
        sim.runnable[at] = sim.runnable[n - 1];
        sim.runnable.pop_back();
    }
    return thread;
}

void fiber_main()
{
    const int me = current_thread()->fiber;

#ifdef UNDER_ASAN
    __sanitizer_finish_switch_fiber(NULL, &sim.scheduler_stack, &sim.scheduler_stack_bytes);
#endif
    for (;;) {
        (*sim.work)();
        current_thread()->state = ENDED;
        sim.next = pick();
        if (sim.next < 0 || sim.threads[(size_t)sim.next].fiber >= 0)
            break;
        make_current(sim.next);
        current_thread()->fiber = me;
        sim.next = -1; /* if that thread waits, it must not be run again before it is woken */
    }
    sim.idle.push_back(me);
    sim.fiber[(size_t)me].dirty = 0;
    switch_to_scheduler(&sim.fiber[(size_t)me], true);
}

/* The current thread stops here until it is made runnable again. */
void wait_as(enum state state, struct cudasim::site at)
{
    struct thread *t = current_thread();

    t->state = state;
    t->at = at;
    switch_to_scheduler(&sim.fiber[(size_t)t->fiber], false);
}

/* Gives the launch up: no other thread runs any more. */
void fail(const std::string &what)
{
    if (sim.failure.empty())
        sim.failure = what;
    sim.runnable.clear();
}

void wake(int thread)
{
    sim.threads[(size_t)thread].state = RUNNABLE;
    sim.runnable.push_back(thread);
}

/* Prepares a fiber that starts with the current thread. */
struct fiber *new_fiber()
{
    const int i = sim.idle.back();
    struct fiber *f = &sim.fiber[(size_t)i];

    sim.idle.pop_back();
    if (!f->stack) {
        f->stack = (char *)mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (f->stack == MAP_FAILED)
            abort();
    }
#ifdef UNDER_ASAN
    /* Frames of functions that never returned: at the top, unless a launch was given up. */
    const size_t used = f->dirty ? STACK_BYTES : 4096;
    __asan_unpoison_memory_region(f->stack + STACK_BYTES - used, used);
#endif
    f->dirty = 1;
    context_make(&f->saved, f->stack, STACK_BYTES, fiber_main);
    current_thread()->fiber = i;
    return f;
}

/* No thread can run.  Then all must wait at one barrier, or all have ended.  Returns 1 if there are
 * threads to run again. */
bool release_barrier()
{
    int n_waiting = 0, n_ended = 0, first = -1;

    for (int i = 0; i < sim.n_threads; i++) {
        struct thread *t = &sim.threads[(size_t)i];

        n_ended += t->state == ENDED;
        if (t->state == AT_WARP) {
            fail("thread " + std::to_string(i) + " waits at " + text(t->at) +
                 " for lanes of its warp that never come");
            return false;
        }
        if (t->state != AT_BARRIER)
            continue;
        if (first >= 0 && !same(t->at, sim.threads[(size_t)first].at)) {
            fail("barrier divergence: thread " + std::to_string(i) + " at " + text(t->at) +
                 ", thread " + std::to_string(first) + " at " +
                 text(sim.threads[(size_t)first].at));
            return false;
        }
        first = first < 0 ? i : first;
        n_waiting++;
    }
    if (n_waiting == 0)
        return false;
    if (n_ended > 0) {
        fail("barrier divergence: " + std::to_string(n_waiting) + " threads at " +
             text(sim.threads[(size_t)first].at) + ", " + std::to_string(n_ended) + " have ended");
        return false;
    }
    for (int i = 0; i < sim.n_threads; i++)
        wake(i);
    return true;
}

void run_one(int thread)
{
    struct fiber *f;

    make_current(thread);
    f = current_thread()->fiber < 0 ? new_fiber() : &sim.fiber[(size_t)current_thread()->fiber];
    sim.next = -1;
    switch_to_fiber(f);
}

void run_block(int64_t block)
{
    blockIdx = {(unsigned)block, 0, 0};
    sim.warp.assign((size_t)(sim.n_threads + WARP_LANES - 1) / WARP_LANES, {});
    sim.threads.assign((size_t)sim.n_threads, {RUNNABLE, {}, -1});
    sim.runnable.clear();
    sim.idle.clear();
    for (int i = 0; i < sim.n_threads; i++) {
        sim.runnable.push_back(i);
        sim.idle.push_back(i);
    }
    do {
        sim.next = -1;
        for (int t = pick(); t >= 0; t = sim.next >= 0 ? sim.next : pick())
            run_one(t);
    } while (sim.failure.empty() && release_barrier());
    for (auto &entry : sim.shared)
        free(entry.second.data);
    sim.shared.clear();
}

} /* namespace */

std::string cudasim::run_launch(const struct cudasim::work &w)
{
    std::deque<int64_t> order((size_t)w.blocks);

    sim.failure.clear();
    if (sim.fiber.size() < (size_t)w.threads)
        sim.fiber.resize((size_t)w.threads);
    sim.work = &w.thread;
    sim.n_threads = (int)w.threads;
    sim.random = sim.seed;
    blockDim = {(unsigned)w.threads, 1, 1};
    gridDim = {(unsigned)w.blocks, 1, 1};
    for (size_t i = 0; i < order.size(); i++)
        order[i] = (int64_t)i;
    while (!order.empty() && sim.failure.empty()) {
        const auto pick = order.begin() + choose((int64_t)order.size());
        const int64_t block = *pick;

        order.erase(pick);
        run_block(block);
    }
    if (!sim.failure.empty())
        sim.failure = w.name + ": " + sim.failure;
    return sim.failure;
}

static bool has_real_clock; /* sim_use_real_clock */

int64_t cudasim::now_ns()
{
    static int64_t now;

    if (has_real_clock)
        return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    return now += 1000;
}

void *cudasim::shared(struct cudasim::site at, size_t n_bytes)
{
    struct array *a = &sim.shared[{at.file, at.line}];

    if (!a->data) {
        if (posix_memalign(&a->data, 64, n_bytes)) /* the exact size, so that ASan finds overruns */
            abort();
        a->n_bytes = n_bytes;
        memset(a->data, 0xff, n_bytes);
    } else if (a->n_bytes != n_bytes) {
        abort(); /* two arrays on one line */
    }
    return a->data;
}

void cudasim::barrier(struct cudasim::site at) { wait_as(AT_BARRIER, at); }

unsigned cudasim::lane() { return threadIdx.x % WARP_LANES; }

const uint64_t *cudasim::meet(unsigned mask, uint64_t mine, struct cudasim::site at)
{
    const unsigned me = lane();
    const int first = sim.current - (int)me;
    struct warp *w = &sim.warp[(size_t)sim.current / WARP_LANES];
    uint64_t *value = w->value[w->turn & 1];

    if (!(mask >> me & 1) || (w->open && (!same(w->at, at) || w->mask != mask))) {
        fail("warp divergence: thread " + std::to_string(sim.current) + " at " + text(at) +
             (w->open ? ", lanes of its warp at " + text(w->at) : ", and not in the mask"));
        wait_as(AT_WARP, at);
    }
    w->open = 1;
    w->at = at;
    w->mask = mask;
    w->arrived |= 1u << me;
    value[me] = mine;
    if (w->arrived != mask) {
        wait_as(AT_WARP, at);
        return value;
    }
    w->open = 0;
    w->arrived = 0;
    w->turn++;
    for (int i = 0; i < WARP_LANES; i++)
        if (i != (int)me && mask >> i & 1)
            wake(first + i);
    return value;
}

void sim_set_seed(uint64_t seed) { sim.seed = seed; }

int64_t cudasim::index_limit = INT32_MAX;

void sim_use_real_clock(void) { has_real_clock = true; }

void sim_limit_index(int64_t most) { cudasim::index_limit = most; }

const char *sim_failure(void) { return sim.failure.c_str(); }
