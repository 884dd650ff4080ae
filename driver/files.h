/* files - checks whether this process may open as many files as its ranks need.
 *
 * Each connection is an open file, and a relay's connection (net/mux.h) is one for all of its
 * ranks. Nobody knows beforehand how many followers come by relays; --relays says so.
 * daemon_process_setup has already raised the process's limit as far as the system allows.
 *
 * Threads: main's. */
#ifndef DRIVER_FILES_H
#define DRIVER_FILES_H

#include "driver/options.h"
#include "job/job.h"

/* Fails with ERR_CONFIG if the limit is too low; the message has the remedy. */
int files_check(const struct options *o, const struct job *job, struct err *err);

/* The most connections by which the followers come. */
int64_t files_n_connections(const struct options *o, const struct job *job);

/* The number of connections that are allowed in addition to those of the ranks: `wanted`, or fewer
 * if the limit leaves no more. */
int files_for_strangers(const struct options *o, const struct job *job, int wanted);

#endif
