/* scaler - dynamic loss scaling: the loss scale and its counters, a slot of the state, and the rule
 * by which op/loss_scale.c changes them.
 *
 * A gradient in float16 vanishes below 2^-24 and overflows above 65504.  So the loss' gradient is
 * multiplied by a scale, and the optimizer divides the parameters' gradients by it.  The scale is
 * searched for.  It is halved when a gradient overflows; that step is applied on no rank, because
 * all ranks read the same reduced gradient.  It is doubled after a window of steps without an
 * overflow.
 *
 * Threads: pure. */
#ifndef OP_SCALER_H
#define OP_SCALER_H

#include "ir/graph.h" /* struct scaler_rule */
#include "op/control.h"

enum {
    SCALER_SCALE,      /* a power of two */
    SCALER_GOOD,       /* steps since the last overflow; 1 again after a doubling */
    SCALER_HYSTERESIS, /* overflows until the scale is halved; 1: the next one halves it */
    SCALER_STUCK,      /* 1: the last step overflowed with the scale at its minimum */
    SCALER_LEN
};

#define SCALER_NAME "loss_scaler" /* in optimizer.safetensors */
#define SCALER_MAX  0x1p24f       /* never doubled beyond */

/* The state s after a step whose gradient overflowed. */
OP_BOTH static inline void scaler_overflow(const struct scaler_rule *r, float *s)
{
    s[SCALER_GOOD] = 0.0f;
    if (s[SCALER_HYSTERESIS] > 1.0f)
        s[SCALER_HYSTERESIS] -= 1.0f;
    else if (s[SCALER_SCALE] > r->min)
        s[SCALER_SCALE] *= 0.5f;
    else
        s[SCALER_STUCK] = 1.0f;
}

/* The state s after a step whose gradient did not overflow. */
OP_BOTH static inline void scaler_good(const struct scaler_rule *r, float *s)
{
    s[SCALER_GOOD] += 1.0f;
    if (s[SCALER_GOOD] - 1.0f < (float)r->window)
        return;
    s[SCALER_GOOD] = 1.0f;
    s[SCALER_HYSTERESIS] = (float)r->hysteresis;
    if (s[SCALER_SCALE] < SCALER_MAX)
        s[SCALER_SCALE] *= 2.0f;
}

/* The operator loss_scale: s becomes the state for the next step.  `control` is reduced. */
OP_BOTH static inline void scaler_step(const struct scaler_rule *r, int overflowed,
                                       const float *control, float *s)
{
    if (control[CONTROL_VOID] > 0.0f)
        return;
    s[SCALER_STUCK] = 0.0f;
    if (control[CONTROL_NONFINITE] > 0.0f)
        return;
    if (overflowed)
        scaler_overflow(r, s);
    else
        scaler_good(r, s);
}

#endif
