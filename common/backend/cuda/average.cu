/* average - averaged weights.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/average.c has the formula; the twin is cpu/average.c. */
#include "backend/cuda/device.cuh"

extern "C" {
#include "op/average.h"
}

struct averaging {
    int64_t first, every;
    double decay;
};

static __global__ void cuda_average(struct averaging a, const float *param, const double *check,
                                    const float *control, const struct step_scalars *scalars,
                                    float *avg, int64_t n)
{
    const float w = average_weight(scalars, a.first, a.every, a.decay);

    if (w == 0.0f || !control_applies(check, control))
        return;
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        avg[i] = w == 1.0f ? param[i] : avg[i] + w * (param[i] - avg[i]);
}

static void cuda_average_run(const struct own *p)
{
    struct averaging a = {};

    if (p->n == 0)
        return;
    a.first = (int64_t)p->attr.number[AVERAGE_ATTR_FIRST];
    a.every = (int64_t)p->attr.number[AVERAGE_ATTR_EVERY];
    a.decay = p->attr.number[AVERAGE_ATTR_DECAY];
    LAUNCH(cuda_average, blocks_for(p, p->n, THREADS), THREADS, p, a,
           (const float *)p->in[AVERAGE_PARAM], (const double *)p->in[AVERAGE_CHECK],
           (const float *)p->in[AVERAGE_CONTROL],
           (const struct step_scalars *)p->in[AVERAGE_SCALARS],
           (float *)p->out[AVERAGE_NEW_AVERAGE], p->n);
}

extern "C" int cuda_make_average(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_average_run, 0, out, err);
}
