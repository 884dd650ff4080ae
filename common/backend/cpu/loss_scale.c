/* loss_scale - the next loss scale, by scaler_step of op/scaler.h.
 *
 * The twin is cuda/loss_scale.cu. */
#include "backend/cpu/plain.h"

static void cpu_loss_scale_run(const struct plain *p)
{
    const double *check = p->in[LOSS_SCALE_CHECK];

    scaler_step(&p->attr.scale, check[1] != 0.0, p->in[LOSS_SCALE_CONTROL],
                p->out[LOSS_SCALE_NEW_SCALER]);
}

int cpu_make_loss_scale(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_loss_scale_run, 0, out, err);
}
