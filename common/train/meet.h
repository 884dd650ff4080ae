/* meet - brings replicas that differ to one state.
 *
 * If each rank updates by its own gradients (strategy_promises.updates_are_own), the replicas
 * differ.  So the ranks meet now and then: all take the mean over the ranks of parameters, running
 * statistics and the optimizer's slots.  These are all replicated slots of floats, except for those
 * of the strategy itself.  Afterwards the replicas are equal, so they can be compared, validated
 * and saved like those of any other strategy.
 *
 * A meeting that breaks off leaves each element of a rank either as it was or as the mean.  Both
 * are states from which training may go on, so a meeting needs no copy of the state.
 *
 * Threads: the engine's. */
#ifndef TRAIN_MEET_H
#define TRAIN_MEET_H

#include "base/err.h"

struct trainer;

/* All ranks meet between two steps.  Does nothing if the strategy's replicas are equal anyway, or
 * if the ranks have not made a step since they held the same state. */
int meet(struct trainer *t, struct err *err);

/* A formation begins: the ranks that hold a replica meet before all ranks take the state of rank
 * `source`, which holds the newest step.  A rank's replica counts if it is of that step or of the
 * step before it, because a loss may leave some ranks one step behind. */
int meet_again(struct trainer *t, int source, struct err *err);

/* Note that all ranks hold the same state now, and tell the strategy (strategy_ops.met). */
int meet_is_over(struct trainer *t, struct err *err);

#endif
