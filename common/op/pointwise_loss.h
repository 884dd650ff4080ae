/* pointwise_loss - the formulas of losses that compare each output with its own target, the same on
 * every backend (op/pointwise_loss.c).
 *
 * Threads: pure. */
#ifndef OP_POINTWISE_LOSS_H
#define OP_POINTWISE_LOSS_H

#include <math.h>

#include "ir/graph.h"
#include "op/control.h" /* OP_BOTH */

/* The loss of one output y with the target t. */
OP_BOTH static inline double pointwise_value(enum pointwise kind, float y, float t)
{
    const float diff = y - t;

    if (kind == POINTWISE_SQUARED)
        return (double)diff * (double)diff;
    if (kind == POINTWISE_ABSOLUTE)
        return fabs((double)diff);
    if (kind == POINTWISE_GIVEN)
        return (double)y;
    return (y > 0 ? (double)y : 0.0) - (double)y * (double)t + log1p(exp(-fabs((double)y)));
}

/* Its derivative by y, but for pointwise_factor. */
OP_BOTH static inline float pointwise_slope(enum pointwise kind, float y, float t)
{
    const float diff = y - t;

    if (kind == POINTWISE_SQUARED)
        return diff;
    if (kind == POINTWISE_ABSOLUTE)
        return diff > 0 ? 1.0f : diff < 0 ? -1.0f : 0.0f * diff; /* NaN stays */
    if (kind == POINTWISE_GIVEN)
        return 1.0f + 0.0f * y; /* NaN stays */
    return 1.0f / (1.0f + expf(-y)) - t;
}

/* For the mean over c outputs. */
OP_BOTH static inline float pointwise_factor(enum pointwise kind, int64_t c)
{
    return (kind == POINTWISE_SQUARED ? 2.0f : 1.0f) / (float)c;
}

/* 1: the prediction is correct.  The logit y is positive just where the target t, a probability, is
 * above 0.5. */
OP_BOTH static inline int pointwise_agrees(float y, float t) { return (y > 0) == (t > 0.5f); }

#endif
