/* server - the driver's session machine with everything around it: connections, engine, record,
 * and the followers of --local.
 *
 * Life:    server_run does it all, and returns the process's exit status.
 * Threads: main's, which is the loop's from then on. */
#ifndef DRIVER_SERVER_H
#define DRIVER_SERVER_H

#include "driver/options.h"
#include "job/job.h"

struct evaluation;

/* e: the weights to evaluate (driver/evaluate.h); NULL: train.  start_ns: the time when the process
 * started. */
int server_run(const struct options *o, const struct job *job, const struct evaluation *e,
               int64_t start_ns);

#endif
