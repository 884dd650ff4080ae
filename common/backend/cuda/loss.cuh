/* loss - adds the rows' losses to the metrics.
 *
 * Each row's result is first put into the scratch; then one block adds them up.  Only the number of
 * rows decides the order.  The twin is cpu/loss.h. */
#ifndef BACKEND_CUDA_LOSS_CUH
#define BACKEND_CUDA_LOSS_CUH

#include "backend/cuda/device.cuh"

struct row_loss {
    double loss;
    float weight;
    int32_t correct, top5, ignored;
};

static __global__ void loss_count(const struct row_loss *row, int64_t rows, double *metrics,
                                  enum loss_part part, double factor)
{
    double loss = 0, correct = 0, bad = 0, targets = 0, weight = 0, top5 = 0;

    for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
        if (row[i].ignored)
            continue;
        const bool finite = fabs(row[i].loss) <= 1.7976931348623157e308; /* false for NaN, too */

        loss += finite ? row[i].loss : 0.0;
        bad += finite ? 0.0 : 1.0;
        correct += (double)row[i].correct;
        targets += 1.0;
        weight += (double)row[i].weight;
        top5 += (double)row[i].top5;
    }
    loss = block_sum(loss);
    correct = block_sum(correct);
    bad = block_sum(bad);
    targets = block_sum(targets);
    weight = block_sum(weight);
    top5 = block_sum(top5);
    if (threadIdx.x == 0) {
        metrics[METRIC_LOSS_SUM] += part == LOSS_IS_COUNTED ? 0.0 : loss * factor;
        metrics[METRIC_NONFINITE] += bad;
    }
    if (threadIdx.x == 0 && part != LOSS_IS_MORE) {
        metrics[METRIC_CORRECT] += correct;
        metrics[METRIC_TARGETS] += targets;
        metrics[METRIC_WEIGHT] += weight;
        metrics[METRIC_TOP5] += top5;
    }
}

static inline void loss_run_count(const struct own *p, void *metrics)
{
    const int threads = p->rows > THREADS ? WARP * WARPS_MAX : THREADS;

    LAUNCH(loss_count, 1, threads, p, (const struct row_loss *)p->scratch, p->rows,
           (double *)metrics, p->attr.loss.part, (double)loss_factor(&p->attr));
}

/* The scratch for an input x, whose first dimension is the number of rows. */
static inline size_t loss_scratch(const struct shape *x)
{
    return (size_t)x->dim[0] * sizeof(struct row_loss);
}

#endif
