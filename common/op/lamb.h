/* lamb - the formula of LAMB's update, which every backend compiles into its kernels (op/lamb.c).
 *
 * Threads: pure. */
#ifndef OP_LAMB_H
#define OP_LAMB_H

#include "op/op.h"
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

/* The terms that all elements share. */
struct lamb_terms {
    float fresh1, beta2, fresh2;   /* 1 - beta1, beta2, 1 - beta2 */
    float lift1, correction2, eps; /* the first two: struct lamb_scales */
    double rate;                   /* factor on the rate */
};

OP_BOTH static inline struct lamb_terms lamb_terms(const double *number, int64_t n_updates)
{
    const double beta1 = number[LAMB_ATTR_BETA1], beta2 = number[LAMB_ATTR_BETA2];
    const struct lamb_scales scales =
        lamb_scales(beta1, beta2, number[LAMB_ATTR_CORRECTS], n_updates + 1);
    struct lamb_terms m;

    m.fresh1 = (float)(1 - beta1);
    m.beta2 = (float)beta2;
    m.fresh2 = (float)(1 - beta2);
    m.lift1 = (float)scales.lift1;
    m.correction2 = (float)scales.correction2;
    m.eps = (float)number[LAMB_ATTR_EPS];
    m.rate = scales.rate;
    return m;
}

/* Bring the moments of an element forward. */
OP_BOTH static inline void lamb_forward(const struct lamb_terms *m, float g, float *avg, float *sq)
{
    *avg = *avg + m->fresh1 * (g - *avg);
    *sq = m->beta2 * *sq + m->fresh2 * (g * g);
}

/* r of an element. */
OP_BOTH static inline float lamb_direction(const struct lamb_terms *m, float param, float avg,
                                           float sq, float decay)
{
    return m->lift1 * avg / (sqrtf(sq) / m->correction2 + m->eps) + decay * param;
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
