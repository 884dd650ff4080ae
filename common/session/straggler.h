/* straggler - finds ranks whose own work takes longer than that of the others.
 *
 * A rank reports how many training steps it has made, and how long it was busy in them, without its
 * waits in collectives (struct progress).  Over a window, its mean busy time of a step is compared
 * with the median of all ranks.  For an even number of ranks the lower median is taken, so of two
 * ranks the faster one is the measure.  A rank that reaches `limit` times the median is a straggler
 * until it falls below the middle between 1 and `limit`.
 *
 * Threads: pure. */
#ifndef SESSION_STRAGGLER_H
#define SESSION_STRAGGLER_H

#include <stdint.h>

enum { STRAGGLER_LEAST_STEPS = 8 }; /* a window lasts until each rank has made this many steps */

struct work { /* one rank in a window */
    int64_t n_steps, busy_ns;
    double factor; /* set by straggler_compare; 0: not measured */
};

/* Returns 1 if all n ranks have made enough steps: sets their factors, and *median_ns, with which
 * they were compared.  Returns 0 if the window is too short. */
int straggler_compare(struct work *w, int n, double *median_ns);

/* 1: a rank with this factor is a straggler now; `was`: 1 if it was one before. */
int straggler_is(int was, double factor, double limit);

#endif
