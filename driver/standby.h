/* standby - dpdriver --standby: waits beside the driver of another process, and leads in its place
 * once it is lost.
 *
 * Life: standby_run does it all, and returns the process's exit status. */
#ifndef DRIVER_STANDBY_H
#define DRIVER_STANDBY_H

#include "driver/options.h"

/* o: its number of ranks and its run's name are set from the driver's job. */
int standby_run(struct options *o, int argc, char **argv, int64_t start_ns);

#endif
