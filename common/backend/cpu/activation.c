/* activation - activations and their gradients, by oneDNN's element-wise primitives.
 *
 * op/activation.c has the formulas; the twin is cuda/activation.cu. */
#include "backend/cpu/chain.h"

int cpu_make_activation(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    const struct dn_layout all = dn_flat(cpu_in(g, n, ACTIVATION_X));
    struct chain *c = chain_new(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, ACTIVATION_X, all);
    int y = chain_tensor(c, CHAIN_OUT, ACTIVATION_Y, all);
    dnnl_primitive_desc_t pd = NULL;
    int rc;

    if (y != CHAIN_NONE) {
        rc = dn_eltwise(b->dn, n->attr.act.kind, chain_md(c, x), &pd, err);
        chain_add(c, rc, pd, (struct chain_arg[]){{DNNL_ARG_SRC, x, 0}, {DNNL_ARG_DST, y, 1}}, 2);
    }
    return chain_finish(c, out);
}

/* A gelu's gradient is computed from x, the other activations' gradients from y. */
int cpu_make_activation_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    const int by_x = activation_saves_x(n->attr.act.kind);
    const struct dn_layout all = dn_flat(cpu_in(g, n, ACTIVATION_GRAD_DY));
    struct chain *c = chain_new(b, g, n, err);
    int saved = chain_tensor(c, CHAIN_IN, by_x ? ACTIVATION_GRAD_X : ACTIVATION_GRAD_Y, all);
    int dy = chain_tensor(c, CHAIN_IN, ACTIVATION_GRAD_DY, all);
    int dx = chain_tensor(c, CHAIN_OUT, ACTIVATION_GRAD_DX, all);
    dnnl_primitive_desc_t pd = NULL;
    int rc;

    if (dx != CHAIN_NONE) {
        rc = dn_eltwise_grad(b->dn, n->attr.act.kind, chain_md(c, dy), &pd, err);
        chain_add(c, rc, pd,
                  (struct chain_arg[]){{by_x ? DNNL_ARG_SRC : DNNL_ARG_DST, saved, 0},
                                       {DNNL_ARG_DIFF_DST, dy, 0},
                                       {DNNL_ARG_DIFF_SRC, dx, 1}},
                  3);
    }
    return chain_finish(c, out);
}
