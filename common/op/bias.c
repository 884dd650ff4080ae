/* bias - adds a vector along the last dimension.
 *
 * bias       in: 0 x [..,C]  1 b [C]     out: 0 y = x + b (may be in place of x)
 * bias_grad  in: 0 dy [..,C]             out: 0 db [C], the sum of dy over all rows */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc < 0 || (rc = op_want_shape(g, n, 1, SHAPE(op_last_dim(op_shape(g, n, 0))), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return 0;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc == 0)
        op_out(out, 0, DTYPE_F32, SHAPE(op_last_dim(op_shape(g, n, 0))));
    return rc;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    din[0] = dout[0];
    if (!want[1])
        return 0;
    din[1] = op_grad_out(g, n->in[1]);
    return graph_node(g, OP_bias_grad, NULL, (int[]){dout[0]}, 1, &din[1], op_name(g, n, "grad"),
                      err);
}

const struct op_def op_bias = {
    .name = "bias",
    .n_in = 2,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1 << 0 | 1 << 1,
    .typed_out = 1 << 0,
    .in_name = {"x", "b"},
    .out_name = {"y"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_bias_grad = {
    .name = "bias_grad",
    .n_in = 1,
    .n_out = 1,
    .flags = OP_ROWS,
    .typed_in = 1 << 0,
    .wide_out = 1 << 0,
    .in_name = {"dy"},
    .out_name = {"db"},
    .infer = infer_grad,
};
