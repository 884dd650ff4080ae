/* ask - `dpdriver --status`, `--drain` and the other requests (driver/request.h): sends one to a
 * driver that runs on this machine.
 *
 * The driver answers through its status_socket (driver/answer.h).
 *
 * Threads: main's. */
#ifndef DRIVER_ASK_H
#define DRIVER_ASK_H

#include "driver/options.h"

/* Ask the driver of --run-dir, which may be just the NAME of runs/NAME; without --run-dir, the
 * driver whose run directory is in runs/.  Its answer goes to standard output, as JSON with
 * --log-format json.  Returns the exit status: STATUS_REFUSED if no driver is running there or it
 * refuses, STATUS_USAGE if it is not clear which driver is meant. */
int ask_run(const struct options *o);

/* The run directory that `word` names: a folder, or the NAME of runs/NAME; for free().  NULL: there
 * is none, and an error about `option` is logged. */
char *ask_find_run(const char *option, const char *word);

#endif
