/* definitions - what both tables of definitions use; no other file includes it. */
#ifndef TESTS_STRATEGY_DEFINITIONS_H
#define TESTS_STRATEGY_DEFINITIONS_H

#include "sim.h"

/* The elements of a bucket of the space, or of a part of it. */
struct range {
    int64_t from, to;
};

int sim_next_bucket(struct range *b); /* {0, 0} before the first one; 0: there is no other */

/* Replace x[from, to) by what its code of 8 bits is read as: Bagua's MinMaxUInt8. */
void sim_through_bytes(double *x, struct range r);

/* Every rank's update uses the sum of all ranks' gradients. */
void sim_allreduce(struct sim *s);

#endif
