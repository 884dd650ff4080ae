/* coll/patience - how a thread waits for a rank of the same machine before it sleeps: it looks a
 * few times, and then yields its processor to other threads between two looks.
 *
 * The other rank needs a processor.  Where ranks outnumber processors, to yield hands one over
 * within a microsecond; to sleep and be woken takes several times as long.  But a thread that
 * computes keeps a yielded processor for milliseconds, where a sleeper is woken sooner; and long
 * yielding wastes power.  So after a try that failed, or that took long, a thread only looks and
 * sleeps for PATIENCE_REST times as long: such tries take at most 2 % of its time.  Tries that
 * succeed are not bounded: they use up processor time where nobody else wants the processor.
 *
 * Threads: any; one that rests makes the others of the struct rest, too. */
#ifndef COLL_PATIENCE_H
#define COLL_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

enum { PATIENCE_REST = 50 };

/* Zeros are right at first. */
struct patience {
    _Atomic int64_t rest_until_ns; /* no yielding before this time */
};

typedef int patience_fn(const void *arg);

/* Wait until is_over(arg), but not long.  1: it is over; 0: it is not, so the caller is to sleep.
 */
int patience_wait(struct patience *p, patience_fn *is_over, const void *arg);

#endif
