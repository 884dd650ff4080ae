/* verify - --verify 1,2,4: trains the first steps of the job on each number of ranks here, and
 * tells whether losses and hashes are the same.  --verify RUN: driver/attested.h.
 *
 * Threads: main's. */
#ifndef DRIVER_VERIFY_H
#define DRIVER_VERIFY_H

#include "driver/options.h"

/* The exit status: 0: they are the same, or to rounding; 1: they differ; 2: the job, the list or
 * an option is wrong. */
int verify_run(const struct options *o);

#endif
