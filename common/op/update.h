/* update - what the operators of optimizers have in common, on every backend.
 *
 * One node updates the whole flat space of trained parameters.  Settings that differ between
 * parameters stand in a table of ranges, `segments`: neighbours with equal settings are one row.
 *
 * Threads: pure. */
#ifndef OP_UPDATE_H
#define OP_UPDATE_H

#include <math.h>

#include "ir/graph.h" /* struct step_scalars */
#include "op/control.h"
#include "op/scaler.h"

/* A row of `segments`, F64 [rows, SEGMENT_COLUMNS]: the settings of the elements from the end of
 * the row before up to this row's end.  The last row ends at n. */
enum {
    SEGMENT_END,
    SEGMENT_RATE,  /* times the step's learning rate */
    SEGMENT_DECAY, /* weight decay */
    SEGMENT_COLUMNS
};

/* The row that element i belongs to. */
OP_BOTH static inline int64_t update_row(const double *segments, int64_t n_rows, int64_t i)
{
    int64_t low = 0, high = n_rows - 1;

    while (low < high) {
        const int64_t middle = (low + high) / 2;

        if (i < (int64_t)segments[middle * SEGMENT_COLUMNS + SEGMENT_END])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* So many times too large is the gradient.  scaler NULL: it is as large as it should be. */
OP_BOTH static inline float update_scale(const float *scaler)
{
    return scaler ? scaler[SCALER_SCALE] : 1.0f;
}

/* The factor of the gradient by which its norm is at most clip_norm. */
OP_BOTH static inline float update_clip(const double *check, const struct step_scalars *s,
                                        const float *scaler)
{
    const double norm = sqrt(check[0]) / (double)update_scale(scaler);

    return s->clip_norm > 0.0f ? (float)fmin(1.0, (double)s->clip_norm / (norm + 1e-6)) : 1.0f;
}

/* base^n by products alone, in one order: pow() has other last digits from library to library. */
OP_BOTH static inline double update_power(double base, int64_t n)
{
    double power = 1.0;

    for (; n > 0; n >>= 1) {
        if (n & 1)
            power *= base;
        base *= base;
    }
    return power;
}

/* The infer of an optimizer's operator: every slot is as long as the parameters, and an output is
 * the input that it updates. */
int op_update_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                    struct err *err);

#endif
