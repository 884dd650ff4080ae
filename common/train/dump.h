/* dump - writes the summed gradients of one step to a file, for report.gradients.
 *
 * RUN/gradients-NNNNNNNN.safetensors has a tensor F32 for each trained parameter, by its name: the
 * gradient of the step's mean loss over the samples of all ranks, as the optimizer got it, but
 * neither clipped nor multiplied by a loss scale; with adasum, powersgd and bytegrad it is what
 * these make of the ranks' gradients.  It is written even if the step is not applied.
 *
 * Threads: the engine's. */
#ifndef TRAIN_DUMP_H
#define TRAIN_DUMP_H

#include <stdint.h>

#include "base/err.h"

struct trainer;

/* Names of files in the run directory, for the number of the step. */
#define DUMP_GRADIENTS "gradients-%08lld.safetensors"
#define DUMP_OPERATORS "operators-%08lld.jsonl"

/* 1: report.gradients asks for the step that is the n_steps-th one.  The same on all ranks. */
int dump_is_due(const struct trainer *t, int64_t n_steps);

/* Rank 0 warns if report.gradients or report.operators asks for a step that will not be made: one
 * that is done already, or none of the job's.  The state is there. */
void dump_doubt(struct trainer *t);

/* This rank has just taken the state of another one, and held step `before` until then.  Rank 0
 * warns if a step that it has not ended itself was to be written.  It says nothing if the file is
 * there, which a driver before may have written. */
void dump_missed(struct trainer *t, int64_t before);

/* Have `write` make a file, and call it NAME in the run directory once it is whole. */
int dump_file(const struct trainer *t, const char *name,
              int (*write)(const char *path, void *arg, struct err *err), void *arg,
              struct err *err);

/* The n_steps-th step has just ended, whether or not the state counts it yet, and nothing is queued
 * behind it: if it is due, write its gradients.  Nothing has computed in their place since.
 * loss_scale: the scale that this step had; 0: none.  All ranks call this alike, because they
 * gather sums that are divided.  A file that cannot be written is a warning of the run.  Fails only
 * if the ranks cannot gather, which is a warning of rank 0, too; the step counts all the same. */
int dump_gradients(struct trainer *t, int64_t n_steps, double loss_scale, struct err *err);

#endif
