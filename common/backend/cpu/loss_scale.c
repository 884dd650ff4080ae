#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const double *check = p->in[1];

    scaler_step(&p->attr.scale, check[1] != 0.0, p->in[2], p->out[0]);
}

int cpu_make_loss_scale(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}
