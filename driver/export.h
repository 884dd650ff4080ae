/* export - dpdriver --export: the network of a checkpoint as a file that other programs run.
 *
 * It owns no run directory, and writes nothing to the run, which may still be training.
 *
 * Threads: main's. */
#ifndef DRIVER_EXPORT_H
#define DRIVER_EXPORT_H

#include "ckpt/ckpt.h"
#include "driver/evaluate.h"
#include "job/job.h"

/* Write o->export, log what it is, and return the exit status.  job: NULL for a state dict, which
 * needs neither job nor data. */
int export_run(const struct options *o, const struct evaluation *e, const struct job *job);

/* Open the checkpoint that is meant, with the averaged weights if --weights asks for them. */
int export_load(const struct options *o, const struct evaluation *e, struct ckpt **out,
                struct err *err);

#endif
