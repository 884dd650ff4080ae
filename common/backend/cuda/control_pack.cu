/* control_pack - packs a step's metrics and requests into the control vector, by one thread.
 *
 * op/control.c has the formula; the twin is cpu/control_pack.c. */
#include "backend/cuda/device.cuh"

static __device__ void cuda_control_pack_put_digits(uint64_t v, float *to, int n_digits)
{
    for (int i = 0; i < n_digits; i++, v >>= 8)
        to[i] = (float)(v & 255);
}

static __device__ void cuda_control_pack_put_loss(double loss, float *to)
{
    const int n = CONTROL_CORRECT - CONTROL_LOSS;
    const double size = fabs(loss), limit = 0x1p39;

    cuda_control_pack_put_digits(size < limit ? (uint64_t)(size * 0x1p24) : UINT64_MAX, to, n);
    for (int i = 0; i < n && loss < 0; i++)
        to[i] = 0.0f - to[i];
}

static __global__ void cuda_control_pack(const double *metrics, const struct step_scalars *s,
                                         float *v)
{
    const double loss = metrics[METRIC_LOSS_SUM];
    const bool finite = fabs(loss) <= 1.7976931348623157e308;
    const unsigned requests = (unsigned)s->requests;

    if (grid_first() != 0)
        return;
    for (int i = 0; i < CONTROL_LEN; i++)
        v[i] = 0.0f;
    if (finite)
        cuda_control_pack_put_loss(loss, v + CONTROL_LOSS);
    cuda_control_pack_put_digits((uint64_t)metrics[METRIC_CORRECT], v + CONTROL_CORRECT,
                                 CONTROL_TARGETS - CONTROL_CORRECT);
    cuda_control_pack_put_digits((uint64_t)metrics[METRIC_TARGETS], v + CONTROL_TARGETS,
                                 CONTROL_NONFINITE - CONTROL_TARGETS);
    cuda_control_pack_put_digits((uint64_t)(metrics[METRIC_WEIGHT] * WEIGHT_UNITS),
                                 v + CONTROL_WEIGHT, CONTROL_WEIGHT_DIGITS);
    v[CONTROL_NONFINITE] =
        !finite || metrics[METRIC_NONFINITE] > 0 || (requests >> 4 & 1) ? 1.0f : 0.0f;
    v[CONTROL_STOP] = (float)(requests & 1);
    v[CONTROL_CHECKPOINT] = (float)(requests >> 1 & 1);
    v[CONTROL_REGROUP] = (float)(requests >> 2 & 1);
    v[CONTROL_READY] = (float)(requests >> 3 & 1);
    v[CONTROL_VOID] = s->after != 0.0f && s->clean != s->after ? 1.0f : 0.0f;
}

static void cuda_control_pack_run(const struct own *p)
{
    LAUNCH(cuda_control_pack, 1, WARP, p, (const double *)p->in[CONTROL_PACK_METRICS],
           (const struct step_scalars *)p->in[CONTROL_PACK_SCALARS],
           (float *)p->out[CONTROL_PACK_CONTROL]);
}

extern "C" int cuda_make_control_pack(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_control_pack_run, 0, out, err);
}
