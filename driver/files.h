/* files - does this process get the open files that its ranks need?
 *
 * Its limit has been raised as far as it may be (daemon_process_setup). */
#ifndef DRIVER_FILES_H
#define DRIVER_FILES_H

#include "driver/options.h"
#include "job/job.h"

/* ERR_CONFIG: too few, with the remedy. */
int files_check(const struct options *o, const struct job *job, struct err *err);

/* How many connections there may be beside those of the ranks: `wanted`, or what is left. */
int files_for_strangers(const struct options *o, const struct job *job, int wanted);

#endif
