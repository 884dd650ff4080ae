/* loss - helpers of the losses' kernels: the predicted class, and adding a sample to the metrics.
 *
 * Threads: any; no state. */
#ifndef BACKEND_CPU_LOSS_H
#define BACKEND_CPU_LOSS_H

#include <math.h>

#include "ir/graph.h"
#include "tensor/sample.h"

static inline int64_t loss_first_largest(const float *v, int64_t c)
{
    int64_t best = 0;

    for (int64_t i = 1; i < c; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* One target; `weight` as in METRIC_WEIGHT. */
static inline void loss_count(const union node_attr *a, double *metrics, double loss, double weight,
                              int correct)
{
    const enum loss_part part = a->loss.part;

    if (!isfinite(loss))
        metrics[METRIC_NONFINITE] += 1;
    else if (part != LOSS_IS_COUNTED)
        metrics[METRIC_LOSS_SUM] += loss * (double)loss_factor(a);
    if (part == LOSS_IS_MORE)
        return;
    metrics[METRIC_CORRECT] += correct;
    metrics[METRIC_TARGETS] += 1;
    metrics[METRIC_WEIGHT] += weight;
}

#endif
