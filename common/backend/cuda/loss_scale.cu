/* loss_scale - the loss scale of the next step, by one thread.
 *
 * op/scaler.h has the rule; the twin is cpu/loss_scale.c. */
#include "backend/cuda/device.cuh"

static __global__ void next_scale(struct scaler_rule rule, const double *check,
                                  const float *control, float *scaler)
{
    if (grid_first() == 0)
        scaler_step(&rule, check[1] != 0.0, control, scaler);
}

static void cuda_loss_scale_run(const struct own *p)
{
    LAUNCH(next_scale, 1, WARP, p, p->attr.scale, (const double *)p->in[LOSS_SCALE_CHECK],
           (const float *)p->in[LOSS_SCALE_CONTROL], (float *)p->out[LOSS_SCALE_NEW_SCALER]);
}

extern "C" int cuda_make_loss_scale(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_loss_scale_run, 0, out, err);
}
