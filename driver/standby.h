/* standby - dpdriver --standby: a process that is connected with the driver, and leads in its place
 * once the driver is lost.
 *
 * Life:    standby_run does it all, and returns the process's exit status.
 * Threads: main's, which is the loop's from then on. */
#ifndef DRIVER_STANDBY_H
#define DRIVER_STANDBY_H

#include "driver/options.h"

/* o: this function sets the number of ranks and the run's name from the driver's job. */
int standby_run(struct options *o, int64_t start_ns);

#endif
