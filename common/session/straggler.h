/* straggler - which ranks are slower than the others by their own work.
 *
 * A rank tells how many training steps it has made and how long it was busy in them, waiting in
 * collectives excluded (struct progress).  Over a window, its mean busy time of a step is compared
 * with the median of all ranks: of an even number the lower one, so that of two ranks the faster
 * is the measure.  Who reaches `limit` times that is a straggler, until it comes below the middle
 * between 1 and `limit`.
 *
 * Pure. */
#ifndef SESSION_STRAGGLER_H
#define SESSION_STRAGGLER_H

#include <stdint.h>

enum { STRAGGLER_LEAST_STEPS = 8 }; /* of a rank in a window: else it goes on */

struct work { /* of one rank in a window */
    int64_t n_steps, busy_ns;
    double factor; /* set by straggler_compare; 0: not measured */
};

/* 1: all `n` have made enough steps, their factors are set, and *median_ns is what they are
 * measured by; 0: the window is too short. */
int straggler_compare(struct work *w, int n, double *median_ns);

/* Whether a rank is a straggler now. */
int straggler_is(int was, double factor, double limit);

#endif
