/* activation - activations and their gradients, by oneDNN's element-wise primitives, but for those
 * that lose a NaN there (dn_loses_nan).
 *
 * op/activation.c has the formulas; the twin is cuda/activation.cu. */
#include "backend/cpu/activate.h"
#include "backend/cpu/chain.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

static void cpu_activation_own_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float x_room[PLAIN_PIECE], y_room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        activate_f32(p->attr.act.kind, plain_read(p, ACTIVATION_X, at, n, x_room),
                     plain_dest(p, ACTIVATION_Y, at, y_room), n);
        plain_done(p, ACTIVATION_Y, at, n, y_room);
    }
}

static void cpu_activation_run_own(const struct plain *p)
{
    const int64_t n = shape_elements(&p->out_shape[ACTIVATION_Y]);

    plain_split(p, n, n / 8, cpu_activation_own_part);
}

static void relu_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    float y_room[PLAIN_PIECE], dy_room[PLAIN_PIECE], dx_room[PLAIN_PIECE];

    (void)part;
    for (int64_t at = from; at < to; at += PLAIN_PIECE) {
        const int64_t n = min_i64(to - at, PLAIN_PIECE);

        activate_relu_grad_f32(plain_read(p, ACTIVATION_GRAD_Y, at, n, y_room),
                               plain_read(p, ACTIVATION_GRAD_DY, at, n, dy_room),
                               plain_dest(p, ACTIVATION_GRAD_DX, at, dx_room), n);
        plain_done(p, ACTIVATION_GRAD_DX, at, n, dx_room);
    }
}

static void run_relu_grad(const struct plain *p)
{
    const int64_t n = shape_elements(&p->out_shape[ACTIVATION_GRAD_DX]);

    plain_split(p, n, n / 5, relu_grad_part);
}

int cpu_make_activation(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    if (dn_loses_nan(n->attr.act.kind))
        return plain_new_split(b, g, n, cpu_activation_run_own, 0, 0, out, err);

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
    if (n->attr.act.kind == ACT_RELU)
        return plain_new_split(b, g, n, run_relu_grad, 0, 0, out, err);

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
