/* lamb - what the update of LAMB takes from its attributes and the number of updates so far, on
 * every backend (op/lamb.c).
 *
 * Threads: pure. */
#ifndef OP_LAMB_H
#define OP_LAMB_H

#include "op/update.h"

enum lamb_correction { LAMB_CORRECTS_DIRECTION, LAMB_CORRECTS_RATE, LAMB_CORRECTS_NOTHING };

/* The bias correction at the t-th update. */
struct lamb_scales {
    double lift1, correction2; /* of the direction: 1 / (1 - beta1^t), sqrt(1 - beta2^t); or 1 */
    double rate;               /* factor on the rate */
};

OP_BOTH static inline struct lamb_scales lamb_scales(double beta1, double beta2, double corrects,
                                                     int64_t t)
{
    struct lamb_scales s = {1, 1, 1};

    if (corrects == LAMB_CORRECTS_DIRECTION) {
        s.lift1 = 1 / (1 - update_power(beta1, t));
        s.correction2 = sqrt(1 - update_power(beta2, t));
    } else if (corrects == LAMB_CORRECTS_RATE) {
        s.rate = sqrt(1 - update_power(beta2, t)) / (1 - update_power(beta1, t));
    }
    return s;
}

/* The ratio of a tensor, from the sums of squares of its parameters and of its direction. */
OP_BOTH static inline double lamb_ratio(double param, double r, double least, double most)
{
    const double ratio = param > 0 && r > 0 ? sqrt(param) / sqrt(r) : 1;

    if (!(param > 0 && r > 0))
        return 1;
    return ratio < least ? least : ratio > most ? most : ratio;
}

#endif
