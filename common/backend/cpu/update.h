/* update - the part that the optimizers' CPU kernels share: it cuts an update into ranges of
 * elements with equal settings.
 *
 * Every operation is rounded by itself, so every rank gets the same bits on every machine
 * (backend/cpu/plain.h).  The twin is backend/cuda/update.cuh.
 *
 * Threads: update_run is for the engine's; any part of a plain_split may call the others. */
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

/* The address of the range's first element in an F32 array of the node. */
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

/* The gradient of elements [from, from + n), in F32, scaled and clipped as update_of says.  It is
 * in `room` [n]. */
void update_gradient(const struct plain *p, const struct cpu_update *u, float *room);

/* The settings that all ranges share, unscale and clip, beside zeroes. */
struct cpu_update update_of(const struct plain *p);

/* The sum of the squares of x [n], in double.  Element i is added to lane i % 16; the lanes are
 * then added in order. */
double update_squares(const float *x, int64_t n);

/* Parameters [from, from + n), whose values were before[0..n), were updated: those that are not
 * finite now get their value back, and are noted (op/update.c). */
void update_keep(const struct plain *p, const float *before, int64_t from, int64_t n);

/* Rounds elements [from, to) of the parameters to their working copies, if there are any. */
void update_copies(const struct plain *p, int64_t from, int64_t to);

#endif
