/* replay - --replay RUN --step N: computes a step of a run again, from the checkpoint before it,
 * and tells whether it is the same, and which samples it had.
 *
 * Threads: main's. */
#ifndef DRIVER_REPLAY_H
#define DRIVER_REPLAY_H

#include "driver/options.h"

/* The exit status: 0: the same; 1: it differs, or there is nothing to compare it with; 2: it cannot
 * be computed again. */
int replay_run(const struct options *o);

#endif
