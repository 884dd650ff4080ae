/* update - the part that the optimizers' CPU kernels share: it cuts an update into ranges of
 * elements with equal settings.
 *
 * Every operation is rounded by itself, so every rank gets the same bits on every machine
 * (backend/cpu/plain.h).  The twin is backend/cuda/update.cuh. */
#ifndef BACKEND_CPU_UPDATE_H
#define BACKEND_CPU_UPDATE_H

#include "backend/cpu/plain.h"
#include "op/update.h"

struct cpu_update {
    float unscale, clip; /* the gradient is multiplied by unscale and then by clip */
    float rate, decay;   /* the settings of this range */
    int64_t from, n;     /* the range's first element and length */
    const float *grad;   /* [n]: the range's gradient, in F32 */
};

/* Where the range begins in an F32 array of the node. */
static inline float *update_at(void *array, const struct cpu_update *u)
{
    return (float *)array + u->from;
}

typedef void update_range(const struct plain *p, const struct cpu_update *u);

/* Calls `range` for each range of elements [from, to), and then makes their working copies. */
void update_ranges(const struct plain *p, int64_t from, int64_t to, update_range *range);

/* If the step is applied, runs `part`, which calls update_ranges, for all elements on all threads.
 * `work` is the number of vector instructions for 16 elements, roughly. */
void update_run(const struct plain *p, int64_t work, plain_part *part);

#endif
