/* watching - `dpdriver status --watch`: shows the status of a running driver each second, until the
 * run ends.
 *
 * On a terminal each status takes the place of the one before, with as many ranks as there is room
 * for.  Elsewhere one follows the other, with an empty line in between; with --log-format json each
 * is a line of JSON.
 *
 * Threads: main's. */
#ifndef DRIVER_WATCHING_H
#define DRIVER_WATCHING_H

/* Watch the driver of `run_dir`.  log_format: enum log_format.  Returns the exit status: STATUS_OK
 * once the run is done, STATUS_FAILED if it failed, STATUS_STOPPED if it was stopped or its driver
 * was killed, STATUS_REFUSED if no driver is running there. */
int watching_run(const char *run_dir, int log_format);

#endif
