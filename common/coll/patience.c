/* patience - looks, then yields.  patience.h says why.
 *
 * A rank that sleeps is late for those that yield, so they all would fall asleep one after another,
 * if YIELD_NS were shorter than a small sum takes among sleepers (0.1 ms with 8 ranks on 2 cores).
 */
#include "coll/patience.h"

#include <sched.h>

#include "base/clock.h"
#include "base/util.h"

enum {
    LOOKS = 4,             /* how often a thread looks before it yields */
    YIELD_NS = 200 * 1000, /* how long it yields */
    LONG_NS = 500 * 1000,  /* ranks that wait give a yielded processor back sooner */
    TOOK_MOST_NS = 50 * 1000 * 1000,
};

static void processor_rests(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void patience_level(struct patience *p, int doublings)
{
    atomic_store_explicit(&p->doublings, doublings, memory_order_relaxed);
    atomic_store_explicit(&p->n_good, 0, memory_order_relaxed);
}

/* Threads may overwrite what others have learned in the same moment; nothing depends on it. */
void patience_learn(struct patience *p, int is_good, int64_t now, int64_t took_ns)
{
    const int doublings = atomic_load_explicit(&p->doublings, memory_order_relaxed);
    const int64_t rest_ns = min_i64(took_ns, TOOK_MOST_NS) << doublings;

    if (!is_good) {
        atomic_store_explicit(&p->rest_until_ns, now + rest_ns, memory_order_relaxed);
        patience_level(p, doublings + (doublings < PATIENCE_DOUBLINGS));
    } else if (doublings && atomic_fetch_add_explicit(&p->n_good, 1, memory_order_relaxed) >=
                                PATIENCE_GOOD - 1) {
        patience_level(p, doublings - 1);
    }
}

int patience_rests(const struct patience *p, int64_t now)
{
    return now < atomic_load_explicit(&p->rest_until_ns, memory_order_relaxed);
}

/* Yield until it is over, for YIELD_NS at most. */
static int yield_until(struct patience *p, patience_fn *is_over, const void *arg, int64_t begun)
{
    int64_t now = begun, took = 0;
    int over = 0;

    while (!over && now < begun + YIELD_NS) {
        sched_yield();
        over = is_over(arg);
        took = clock_mono_ns() - now;
        now += took;
    }
    patience_learn(p, over && took <= LONG_NS, now, now - begun);
    return over;
}

int patience_wait(struct patience *p, patience_fn *is_over, const void *arg)
{
    int64_t now;

    for (int i = 0; i < LOOKS; i++) {
        if (is_over(arg))
            return 1;
        processor_rests();
    }
    now = clock_mono_ns();
    if (patience_rests(p, now))
        return 0;
    return yield_until(p, is_over, arg, now);
}
