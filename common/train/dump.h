/* dump - writes the summed gradients of one step to a file, for report.gradients.
 *
 * RUN/gradients-NNNNNNNN.safetensors has a tensor F32 for each trained parameter, by its name: the
 * gradient of the step's mean loss over the samples of all ranks, as the optimizer got it, but
 * neither clipped nor multiplied by a loss scale.  It is written even if the step is not applied.
 *
 * Threads: the engine's. */
#ifndef TRAIN_DUMP_H
#define TRAIN_DUMP_H

#include <stdint.h>

#include "base/err.h"

struct trainer;

/* 1: report.gradients asks for the step that is the n_steps-th one.  The same on all ranks. */
int dump_is_due(const struct trainer *t, int64_t n_steps);

/* The step that the state counts as its newest has just ended, and nothing is queued behind it: if
 * it is due, write its gradients.  loss_scale: the scale that this step had; 0: none.  All ranks
 * call this alike, because they gather sums that are divided.  A file that cannot be written is a
 * warning of the run; it fails if the ranks cannot gather. */
int dump_gradients(struct trainer *t, double loss_scale, struct err *err);

#endif
