/* shares - a method of summing gradients that gives the same bits for any number of ranks.
 *
 * Strategy allreduce chooses this method if its key `shards` is above 0.  shares.c explains it.
 *
 * Threads: the engine's. */
#ifndef STRATEGY_SHARES_H
#define STRATEGY_SHARES_H

#include "strategy/strategy.h"

extern const struct strategy_ops shares_allreduce;

#endif
