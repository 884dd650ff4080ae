/* shares - the way of summing gradients that gives the same bits for any number of ranks.
 *
 * Strategy allreduce chooses it by its key `shards`.  Threads: the engine's. */
#ifndef STRATEGY_SHARES_H
#define STRATEGY_SHARES_H

#include "strategy/strategy.h"

extern const struct strategy_ops shares_allreduce;

#endif
