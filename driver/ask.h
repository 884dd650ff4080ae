/* ask - `dpdriver --status` and `--drain`: talking to a driver that runs on this machine. */
#ifndef DRIVER_ASK_H
#define DRIVER_ASK_H

#include "driver/options.h"

/* The driver of --run-dir, which may be just the NAME of runs/NAME; without it, the one that runs
 * below runs/.  Its answer goes to standard output, as JSON with --log-format json.  Returns the
 * exit status: STATUS_REFUSED when no driver is running there, or it will not, STATUS_USAGE when it
 * is not clear which is meant. */
int ask_run(const struct options *o);

#endif
