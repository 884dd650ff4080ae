/* low_precision_decentralized - the options of this strategy, and access to its state for a test.
 *
 * low_precision_decentralized.c defines the strategy and explains it.
 *
 * Threads: the engine's. */
#ifndef STRATEGY_LOW_PRECISION_DECENTRALIZED_H
#define STRATEGY_LOW_PRECISION_DECENTRALIZED_H

#include <stdint.h>

struct low_precision_options {
    int64_t every; /* steps from one exchange of codes to the next */
};

struct strategy;

/* This rank's copy [n_trained] of the trained parameters of its left (0) or right (1) neighbour.  A
 * test changes the copy, to see that the comparison of hashes notices it. */
float *low_precision_copy(struct strategy *s, int side);

#endif
