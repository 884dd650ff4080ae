/* attested - --verify RUN: checks a run that has ended against its record.json (report/attest.h),
 * and computes some of its steps again, drawn at random.
 *
 * Threads: main's. */
#ifndef DRIVER_ATTESTED_H
#define DRIVER_ATTESTED_H

#include "driver/options.h"

/* 1: the value of --verify is a run, and no list of numbers of ranks. */
int attested_is_run(const char *text);

/* The exit status: 0: all is as recorded; 1: something differs, or the signature is not that of the
 * key; 2: it cannot be checked. */
int attested_run(const struct options *o);

#endif
