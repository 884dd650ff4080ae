/* seal - the numbers that a step leaves for the host, one float each, in one of several slots.
 *
 * op/seal.c describes the operator; the host reads the slot in train/flight.c. */
#ifndef OP_SEAL_H
#define OP_SEAL_H

#include "op/control.h"
#include "op/scaler.h"

enum { SEALED_SLOTS = 2 }; /* steps that may be under way at once */

enum {
    SEALED_STAMP,        /* scalars.stamp: whose results these are */
    SEALED_BAD_LOSSES,   /* of this rank's samples, how many were not finite */
    SEALED_BAD_GRAD,     /* 1: the reduced gradient is not finite */
    SEALED_WAITED_NS,    /* for collectives, with nothing else to do (a device's; else 0) */
    SEALED_SCALER = 4,   /* [SCALER_LEN]; 0 where there is none */
    SEALED_CONTROL = 16, /* [CONTROL_LEN] */
    SEALED_LEN = SEALED_CONTROL + CONTROL_LEN,
};

struct seal {
    const double *check, *metrics;
    const float *control, *scaler; /* scaler NULL: none */
    const struct step_scalars *scalars;
    const int64_t *waits; /* [1]: ns */
};

OP_BOTH static inline float seal_value(const struct seal *s, int i)
{
    if (i >= SEALED_CONTROL)
        return s->control[i - SEALED_CONTROL];
    if (i >= SEALED_SCALER && i < SEALED_SCALER + SCALER_LEN)
        return s->scaler ? s->scaler[i - SEALED_SCALER] : 0.0f;
    return i == SEALED_STAMP        ? s->scalars->stamp
           : i == SEALED_BAD_LOSSES ? (float)s->metrics[METRIC_NONFINITE]
           : i == SEALED_BAD_GRAD   ? (float)s->check[1]
           : i == SEALED_WAITED_NS  ? (float)s->waits[1]
                                    : 0.0f;
}

OP_BOTH static inline int seal_is_clean(const struct seal *s)
{
    return control_applies(s->check, s->control) && control_is_quiet(s->control);
}

#endif
