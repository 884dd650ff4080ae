/* optimizer - what an optimizer of a job declares: its slots, and the operator of its update.
 *
 * Threads: pure. */
#ifndef OPTIM_OPTIMIZER_H
#define OPTIM_OPTIMIZER_H

#include "config/job.h"
#include "optim/slot.h"

enum { OPTIMIZER_MAX_SLOTS = 8 };

/* The slots that the job's optimizer keeps, in *out; returns how many. */
int optimizer_slots(const struct job *job, const struct slot_def *out[OPTIMIZER_MAX_SLOTS]);

#endif
