/* check - dpdriver --check: would this job run?
 *
 * Opens the job the way rank 0 does: builds the graph, opens the data, makes the layout.  With
 * --local there must be a GPU for each rank, too. */
#ifndef DRIVER_CHECK_H
#define DRIVER_CHECK_H

#include "driver/options.h"
#include "job/job.h"

/* Prints a summary on standard output; returns the exit status, 0 or 2. */
int check_run(const struct options *o, const struct job *job);

#endif
