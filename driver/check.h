/* check - dpdriver --check: would this job run?
 *
 * The job is opened as rank 0 opens it: the graph is built, the data are opened, the layout is
 * made. With --local and --device cuda there must also be a GPU for each rank.
 *
 * Threads: main's. */
#ifndef DRIVER_CHECK_H
#define DRIVER_CHECK_H

#include "driver/options.h"
#include "job/job.h"

/* Prints a summary on standard output; returns the exit status, 0 or 2. */
int check_run(const struct options *o, const struct job *job);

/* Check that this job can go on with the newest checkpoint of the run in `dir`; its data must be
 * those with which the run was trained.  Changes nothing.  Fails as the engine does. */
int check_resume(const struct options *o, const struct job *job, const char *dir, struct err *err);

#endif
