/* low_precision_decentralized - the options of this strategy, and a look into it.
 *
 * Threads: the engine's. */
#ifndef STRATEGY_LOW_PRECISION_DECENTRALIZED_H
#define STRATEGY_LOW_PRECISION_DECENTRALIZED_H

#include <stdint.h>

struct low_precision_options {
    int64_t every;
};

struct strategy;

/* This rank's copy of the trained parameters of its left (0) or right (1) neighbour.  A test
 * changes it. */
float *low_precision_copy(struct strategy *s, int side);

#endif
