/* activation - relu, tanh, sigmoid, the gelus, silu and leaky_relu, element by element.
 *
 * activation       x [..] -> y (may be in place of x)
 *   attr.act.kind chooses:
 *     relu       x < 0 ? 0 : x, so that a NaN stays one, as in PyTorch
 *     tanh
 *     sigmoid    1/(1+e^-x)
 *     gelu       x*Phi(x) with the exact normal distribution (erf), torch.nn.GELU's default
 *     gelu_tanh  its approximation (GPT-2's), x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
 *     silu       x/(1+e^-x)
 *     leaky_relu x if x > 0, else 0.01*x, torch.nn.LeakyReLU's default
 * activation_grad  x?, y?, dy -> dx (may be in place of dy)
 *   relu, tanh, sigmoid and leaky_relu get y and no x:  dx = y <= 0 ? 0 : dy;  dy*(1-y*y);
 *   dy*y*(1-y);  y > 0 ? dy : 0.01*dy.
 *   silu, gelu and gelu_tanh get x and no y.  With s = 1/(1+e^-x) silu's is dx = dy*s*(1+x*(1-s));
 *   for the gelus dx = dy*(Phi(x) + x*phi(x)), or dy times the
 *   approximation's derivative.  So an activation that is fused into the operator that made x loses
 *   the x that a gelu's gradient reads, while the gradients of the others still have their y. */
#include "op/infer.h"

static int activation_check_kind(const struct node *n, struct err *err)
{
    if (n->attr.act.kind > ACT_NONE && n->attr.act.kind <= ACT_LEAKY_RELU)
        return 0;
    return op_fail(
        n, err, "activation %d is none of relu, tanh, sigmoid, gelu, gelu_tanh, silu, leaky_relu",
        (int)n->attr.act.kind);
}

static int activation_infer(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc;

    if ((rc = activation_check_kind(n, err)) < 0 ||
        (rc = op_want(g, n, ACTIVATION_X, DTYPE_F32, -1, err)) < 0)
        return rc;
    op_out(out, ACTIVATION_Y, DTYPE_F32, *op_shape(g, n, ACTIVATION_X));
    return 0;
}

static int activation_infer_grad(const struct graph *g, const struct node *n,
                                 struct value out[NODE_MAX_OUT], struct err *err)
{
    const int by_x = activation_saves_x(n->attr.act.kind);
    const int saved = by_x ? ACTIVATION_GRAD_X : ACTIVATION_GRAD_Y;
    const int other = by_x ? ACTIVATION_GRAD_Y : ACTIVATION_GRAD_X;
    int rc;

    if ((rc = activation_check_kind(n, err)) < 0 ||
        (rc = op_want(g, n, ACTIVATION_GRAD_DY, DTYPE_F32, -1, err)) < 0)
        return rc;
    if (!op_has(n, saved) || op_has(n, other))
        return op_fail(n, err,
                       "a gelu's or silu's gradient takes x alone, that of the others y alone");
    rc = op_want_shape(g, n, saved, *op_shape(g, n, ACTIVATION_GRAD_DY), err);
    if (rc < 0)
        return rc;
    op_out(out, ACTIVATION_GRAD_DX, DTYPE_F32, *op_shape(g, n, ACTIVATION_GRAD_DY));
    return 0;
}

static int activation_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                               const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int by_x = activation_saves_x(n->attr.act.kind);
    const int in[] = {[ACTIVATION_GRAD_X] = by_x ? n->in[ACTIVATION_X] : NO_VALUE,
                      [ACTIVATION_GRAD_Y] = by_x ? NO_VALUE : n->out[ACTIVATION_Y],
                      [ACTIVATION_GRAD_DY] = dout[ACTIVATION_Y]};

    (void)want;
    din[ACTIVATION_X] = op_grad_out(g, n->in[ACTIVATION_X]);
    return graph_node(g, OP_activation_grad, &n->attr, in, 3, &din[ACTIVATION_X],
                      op_name(g, n, "grad"), err);
}

const struct op_def op_activation = {
    .infer = activation_infer,
    .grad = activation_backward,
    OP_SIGNATURE(activation),
    .flags = OP_ROWS | OP_INPLACE | OP_CHEAP,
    .typed_in = 1u << ACTIVATION_X,
    .typed_out = 1u << ACTIVATION_Y,
};

const struct op_def op_activation_grad = {
    .infer = activation_infer_grad,
    OP_SIGNATURE(activation_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .inplace_in = ACTIVATION_GRAD_DY,
    .typed_in = 1u << ACTIVATION_GRAD_X | 1u << ACTIVATION_GRAD_Y | 1u << ACTIVATION_GRAD_DY,
    .typed_out = 1u << ACTIVATION_GRAD_DX,
};
