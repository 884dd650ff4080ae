/* effort - where the time of threads that read batches goes: computing, waiting for a processor, or
 * waiting for anything else, which is the disk.
 *
 * Threads: effort_begin and effort_end belong to the thread that works in between; effort_read may
 *          come from any. */
#ifndef DATA_EFFORT_H
#define DATA_EFFORT_H

#include <stdatomic.h>
#include <stdint.h>

/* Sums over the work that was measured, in ns.  The rest of `wall` was spent blocked. */
struct effort {
    int64_t wall_ns, cpu_ns;
    int64_t queued_ns; /* ready to run, and no processor was free */
};

struct effort_sums { /* zeroes to begin with */
    _Atomic int64_t wall_ns, cpu_ns, queued_ns;
};

/* The moment at which a piece of work begins, on this thread. */
struct effort effort_begin(void);
/* The work that began at `since` has ended: add its times. */
void effort_end(struct effort_sums *s, const struct effort *since);

struct effort effort_read(const struct effort_sums *s);

#endif
