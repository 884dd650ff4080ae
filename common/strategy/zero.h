/* zero - the all-reduce in two halves, between which each rank updates its own shard: the stages
 * 1, 2 and 3 of ZeRO.
 *
 * Threads: constant. */
#ifndef STRATEGY_ZERO_H
#define STRATEGY_ZERO_H

#include "strategy/strategy.h"

enum { ZERO_MOST_STAGE = 3 };

/* The functions and promises of a stage, 1 to ZERO_MOST_STAGE, where each shard has one holder, or
 * with a buddy two. */
const struct strategy_ops *zero_choose(int stage, int buddy);

#endif
