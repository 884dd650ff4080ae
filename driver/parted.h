/* parted - computes again the steps in which two runs part, and tells the first step, and the first
 * tensor and operator, that differ.
 *
 * Threads: main's. */
#ifndef DRIVER_PARTED_H
#define DRIVER_PARTED_H

#include "driver/options.h"
#include "report/series.h"

struct parted {
    const struct options *options;
    const char *run[2];
    const struct series_table *hashes[2]; /* of the runs */
    int64_t past; /* the last step at which they are the same; 0: there is none */
    int64_t step; /* a later one at which they are not */
};

/* Print what that gives, or why it cannot be done.  The exit status: 0, or 4 if a signal ended
 * it. */
int parted_tell(const struct parted *p);

#endif
