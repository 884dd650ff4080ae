/* hashes - the rows of hashes.csv: when one is due, and what it says.
 *
 * Threads: the engine's. */
#ifndef TRAIN_HASHES_H
#define TRAIN_HASHES_H

#include <stdint.h>

#include "base/err.h"

struct trainer;

/* 1: checkpoint.hashes asks for a row once so many steps are done. */
int hashes_are_due(const struct trainer *t, int64_t n_steps);

/* Rank 0 reports the row of the step that the state holds, if one is due and the step is known.
 * All ranks call this at the same steps, because they add up the hash of a divided state. */
int hashes_tell(struct trainer *t, struct err *err);

#endif
