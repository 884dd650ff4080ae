/* parting - finds the first step at which two runs are not the same, by their hashes.csv and
 * metrics.csv.
 *
 * Threads: main's. */
#ifndef DRIVER_PARTING_H
#define DRIVER_PARTING_H

#include "driver/options.h"

/* --compare: prints where the two runs part.  The exit status: 0: nowhere; 1: somewhere; 2: they
 * cannot be compared. */
int parting_run(const struct options *o);

#endif
