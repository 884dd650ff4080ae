/* straggler - which ranks are slower than the others by their own work.
 *
 * A rank tells how many training steps it has made and how long it was busy in them, without the
 * time spent waiting in collectives (struct progress).  Over a window, its mean busy time of a
 * step is compared with the median of all ranks; of an even number of ranks with the lower
 * median, so that of two ranks the faster is the measure.  A rank that reaches `limit` times the
 * median is a straggler, until it falls below the middle between 1 and `limit`.
 *
 * Pure. */
#ifndef SESSION_STRAGGLER_H
#define SESSION_STRAGGLER_H

#include <stdint.h>

enum { STRAGGLER_LEAST_STEPS = 8 }; /* each rank makes in a window; the window goes on until then */

struct work { /* one rank in a window */
    int64_t n_steps, busy_ns;
    double factor; /* set by straggler_compare; 0: not measured */
};

/* 1: all `n` ranks have made enough steps; their factors are set, and *median_ns is the median
 * they are compared with.  0: the window is too short. */
int straggler_compare(struct work *w, int n, double *median_ns);

/* Whether a rank is a straggler now. */
int straggler_is(int was, double factor, double limit);

#endif
