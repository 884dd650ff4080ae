/* update - what the CPU kernels of optimizers share: an update is cut into ranges with one setting.
 *
 * All operations round by themselves, and every rank gets the same bits on every machine
 * (backend/cpu/plain.h). */
#ifndef BACKEND_CPU_UPDATE_H
#define BACKEND_CPU_UPDATE_H

#include "backend/cpu/plain.h"
#include "op/update.h"

struct cpu_update {
    float unscale, clip; /* what the gradient is multiplied by, one after the other */
    float rate, decay;   /* of this range */
    int64_t from, n;     /* the range */
};

/* The range of an array that is in[i], out[i] of the node. */
static inline float *update_at(void *array, const struct cpu_update *u)
{
    return (float *)array + u->from;
}

typedef void update_range(const struct plain *p, const struct cpu_update *u);

/* Elements [from, to) of the node's parameters, range by range; then their copies. */
void update_ranges(const struct plain *p, int64_t from, int64_t to, update_range *range);

/* Run `part`, which calls update_ranges, for all elements on all threads, unless the step is not
 * applied.  `work`: vector instructions for each element, roughly. */
void update_run(const struct plain *p, int64_t work, plain_part *part);

#endif
