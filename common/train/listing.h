/* listing - gathers what the operators of all ranks read and wrote (step/sights.h), and has rank 0
 * write it.
 *
 * RUN/operators-NNNNNNNN.jsonl has an object a line: `first` and `samples`, which samples of the
 * step's batch the micro-batch had, `micro`, its number on its rank (with strategy.shards 0),
 * `number`, the tensor's among those of the micro-batch, from 1 on, `operator`, `kind`, `tensor`,
 * `given` (true: the operator reads it, and no operator made it), `type`, `shape` and `hash`.
 * RUN/tensor-NNNNNNNN.safetensors has the numbers of the tensor that report.tensor names, as F32:
 * one for each micro-batch, called by its first sample.
 *
 * Threads: the engine's. */
#ifndef TRAIN_LISTING_H
#define TRAIN_LISTING_H

#include <stdint.h>

#include "base/err.h"

struct trainer;

/* 1: nothing is queued behind the n_steps-th step: it is the one that is listed, or that one
 * follows. */
int listing_rests(const struct trainer *t, int64_t n_steps);

/* The n_steps-th step has just ended: if it is due, write its list.  All ranks call this alike.  A
 * file that cannot be written is a warning of the run.  Fails only if the ranks cannot gather; the
 * step counts all the same. */
int listing_tell(struct trainer *t, int64_t n_steps, struct err *err);

#endif
