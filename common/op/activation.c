/* activation - relu, tanh, sigmoid, gelu, gelu_tanh, element by element.
 *
 * activation       in: 0 x [..]                      out: 0 y (may be in place of x)
 *   attr.act.kind: relu max(x,0); tanh; sigmoid 1/(1+e^-x); gelu x*Phi(x) with the exact normal
 *   distribution (erf), as torch.nn.GELU's default; gelu_tanh its approximation (GPT-2's), x/2 *
 *   (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).  relu of NaN is NaN or 0, as the backend's
 *   library has it (oneDNN: 0); infinities stay.
 * activation_grad  in: 0 x?  1 y?  2 dy              out: 0 dx (may be in place of dy)
 *   relu, tanh, sigmoid get y and no x: dy where y > 0; dy*(1-y*y); dy*y*(1-y).  The gelus get x
 *   and no y: dy*(Phi(x) + x*phi(x)), and the approximation's derivative.  So a fused
 *   pre-activation is missed by them alone. */
#include "op/infer.h"

static int check_kind(const struct node *n, struct err *err)
{
    if (n->attr.act.kind > ACT_NONE && n->attr.act.kind <= ACT_GELU_TANH)
        return 0;
    return op_fail(n, err, "activation %d is none of relu, tanh, sigmoid, gelu, gelu_tanh",
                   (int)n->attr.act.kind);
}

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc;

    if ((rc = check_kind(n, err)) < 0 || (rc = op_want(g, n, 0, DTYPE_F32, -1, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return 0;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const int saved = activation_saves_x(n->attr.act.kind) ? 0 : 1;
    int rc;

    if ((rc = check_kind(n, err)) < 0 || (rc = op_want(g, n, 2, DTYPE_F32, -1, err)) < 0)
        return rc;
    if (!op_has(n, saved) || op_has(n, 1 - saved))
        return op_fail(n, err, "a gelu's gradient takes x alone, that of the others y alone");
    if ((rc = op_want_shape(g, n, saved, *op_shape(g, n, 2), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 2));
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int by_x = activation_saves_x(n->attr.act.kind);
    const int in[] = {by_x ? n->in[0] : NO_VALUE, by_x ? NO_VALUE : n->out[0], dout[0]};

    (void)want;
    din[0] = op_grad_out(g, n->in[0]);
    return graph_node(g, OP_activation_grad, &n->attr, in, 3, &din[0], op_name(g, n, "grad"), err);
}

const struct op_def op_activation = {
    .name = "activation",
    .n_in = 1,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"x"},
    .out_name = {"y"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_activation_grad = {
    .name = "activation_grad",
    .n_in = 3,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .optional_in = 1 << 0 | 1 << 1,
    .inplace_in = 2,
    .typed_in = 1 << 0 | 1 << 1 | 1 << 2,
    .typed_out = 1 << 0,
    .in_name = {"x", "y", "dy"},
    .out_name = {"dx"},
    .infer = infer_grad,
};
