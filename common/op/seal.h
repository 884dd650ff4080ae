/* seal - the numbers that a step leaves for the host, one float each, in one of several slots.
 *
 * op/seal.c describes the operator; the host reads the slot in step/flight.c.
 *
 * Threads: pure. */
#ifndef OP_SEAL_H
#define OP_SEAL_H

#include <math.h>

#include "op/control.h"
#include "op/scaler.h"
#include "op/update.h"

enum { SEALED_SLOTS = 2 }; /* steps that may be in flight at once */

enum {
    SEALED_STAMP,      /* scalars.stamp: the step that these results belong to */
    SEALED_BAD_LOSSES, /* samples of this rank whose loss is not finite */
    SEALED_BAD_GRAD,   /* 1: the reduced gradient is not finite */
    SEALED_WAITED_NS,  /* how long a device idled for collectives; 0 on the host */
    SEALED_SCALER = 4, /* [SCALER_LEN]; 0 without dynamic loss scaling */
    SEALED_GRAD_NORM = SEALED_SCALER + SCALER_LEN, /* of the reduced gradient, as it was summed */
    SEALED_KEPT,     /* parameters that this rank's update left as they were (op/update.h) */
    SEALED_KEPT_LOW, /* the lowest of them, in two digits of 24 bits */
    SEALED_KEPT_HIGH,
    SEALED_CONTROL = 16, /* [CONTROL_LEN] */
    SEALED_LEN = SEALED_CONTROL + CONTROL_LEN,
};

/* The operands that the results are made of. */
struct seal {
    const double *check, *metrics;
    const float *control, *scaler; /* scaler NULL: none */
    const struct step_scalars *scalars;
    const int64_t *waits; /* [1]: ns */
    const int64_t *kept;  /* NULL: none */
};

/* The i-th number of a step, from SEALED_KEPT on: they tell of the parameters that were kept. */
OP_BOTH static inline float seal_kept(const int64_t *kept, int i)
{
    const int64_t lowest = KEPT_LIMIT - kept[KEPT_LOWEST];

    return i == SEALED_KEPT        ? (float)kept[KEPT_COUNT]
           : i == SEALED_KEPT_LOW  ? (float)(lowest & 0xffffff)
           : i == SEALED_KEPT_HIGH ? (float)(lowest >> 24)
                                   : 0.0f;
}

/* The i-th of the SEALED_LEN numbers of a step. */
OP_BOTH static inline float seal_value(const struct seal *s, int i)
{
    if (i >= SEALED_CONTROL)
        return s->control[i - SEALED_CONTROL];
    if (i >= SEALED_SCALER && i < SEALED_SCALER + SCALER_LEN)
        return s->scaler ? s->scaler[i - SEALED_SCALER] : 0.0f;
    if (i >= SEALED_KEPT)
        return s->kept ? seal_kept(s->kept, i) : 0.0f;
    return i == SEALED_STAMP        ? s->scalars->stamp
           : i == SEALED_BAD_LOSSES ? (float)s->metrics[METRIC_NONFINITE]
           : i == SEALED_BAD_GRAD   ? (float)s->check[1]
           : i == SEALED_WAITED_NS  ? (float)s->waits[1]
           : i == SEALED_GRAD_NORM  ? (float)sqrt(s->check[0])
                                    : 0.0f;
}

/* 1: the step is clean: it was applied, and no rank requested anything. */
OP_BOTH static inline int seal_is_clean(const struct seal *s)
{
    return control_applies(s->check, s->control) && control_is_quiet(s->control);
}

#endif
