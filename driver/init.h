/* init - dpdriver --init: a job file made from the data that lie in a folder.
 *
 * The kinds of data are recognised by the names and the first bytes of their files
 * (driver/init_find.h).  The file that is written has a comment for each key, made from the key's
 * own help, and settings that suit a first run.  A file that exists is not replaced.
 *
 * Threads: main's. */
#ifndef DRIVER_INIT_H
#define DRIVER_INIT_H

#include "driver/options.h"

/* Write the job file for o->inits, and print its path and what to do next.  On a terminal up to
 * five questions are asked if the data are not recognised.  Returns the exit status. */
int init_run(const struct options *o);

#endif
