/* zero - divided state: stages 1, 2 and 3 of ZeRO.
 *
 * Strategy allreduce chooses these methods by its key `zero`.  The all-reduce is done in two
 * halves, and between them each rank updates only its own shard of the parameters.  zero.c explains
 * the stages.
 *
 * Threads: any; all of it is constant. */
#ifndef STRATEGY_ZERO_H
#define STRATEGY_ZERO_H

#include "strategy/strategy.h"

enum { ZERO_MOST_STAGE = 3 };

/* The functions and promises of stage 1 to ZERO_MOST_STAGE.  With `buddy` 1 each shard has two
 * holders, its owner and the next rank; with 0 only its owner. */
const struct strategy_ops *zero_choose(int stage, int buddy);

#endif
