/* coll/patience - how a thread waits for a rank of the same machine before it sleeps: it looks a
 * few times, and then yields its processor to other threads between two looks.
 *
 * The other rank needs a processor.  Where ranks outnumber processors, to yield hands one over
 * within a microsecond; to sleep and be woken takes several times as long.  But a thread that
 * computes keeps a yielded processor for milliseconds, where a sleeper is woken sooner; and long
 * yielding wastes power.  So after a try that failed, or that took long, a thread only looks and
 * sleeps for as long as the try took.  Each further failure doubles that rest, up to 64 times, so
 * where tries keep failing they take at most 2 % of a thread's time; PATIENCE_GOOD tries that
 * succeed halve it.  A try counts as one of 50 ms at most: a process that was stopped in it
 * (SIGSTOP) would else rest for as long again, or 64 times as long.  Tries that succeed are not
 * bounded: they use up processor time where nobody else wants the processor.
 *
 * Threads: any; one that rests makes the others of the struct rest, too. */
#ifndef COLL_PATIENCE_H
#define COLL_PATIENCE_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    PATIENCE_GOOD = 8,
    PATIENCE_DOUBLINGS = 6,
};

/* Zeros are right at first. */
struct patience {
    _Atomic int64_t rest_until_ns; /* no yielding before this time */
    atomic_int doublings;          /* of the rest after the next failure */
    atomic_int n_good;             /* tries that succeeded since `doublings` changed */
};

typedef int patience_fn(const void *arg);

/* Wait until is_over(arg), but not long.  1: it is over; 0: it is not, so the caller is to sleep.
 */
int patience_wait(struct patience *p, patience_fn *is_over, const void *arg);

/* A try ended at the time now, after took_ns, and was good or failed: patience_wait calls this. */
void patience_learn(struct patience *p, int is_good, int64_t now, int64_t took_ns);

/* 1: a thread rests at the time now. */
int patience_rests(const struct patience *p, int64_t now);

#endif
