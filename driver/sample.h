/* sample - dpdriver --sample: a language model goes on with a text.
 *
 * It owns no run directory, and writes nothing to the run, which may still be training.
 *
 * Threads: main's. */
#ifndef DRIVER_SAMPLE_H
#define DRIVER_SAMPLE_H

#include "driver/evaluate.h"
#include "job/job.h"

/* Write o->sample and what follows to standard output, log how fast, and return the exit status. */
int sample_run(const struct options *o, const struct evaluation *e, const struct job *job);

#endif
