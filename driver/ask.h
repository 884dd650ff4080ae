/* ask - `dpdriver --status`: the live table of a driver that runs on this machine. */
#ifndef DRIVER_ASK_H
#define DRIVER_ASK_H

#include "driver/options.h"

/* Of the driver of --run-dir, which may be just the NAME of runs/NAME; without it, of the one that
 * runs below runs/.  On standard output, as JSON with --log-format json.  Returns the exit status:
 * STATUS_REFUSED when no driver is running there, STATUS_USAGE when it is not clear which. */
int ask_run(const struct options *o);

#endif
