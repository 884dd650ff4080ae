/* bias - adds a vector to every row (the last dimension).
 *
 * bias       x [..,C], b [C] -> y = x + b (may be in place of x)
 * bias_grad  dy [..,C] -> db [C], the sum of dy over all rows */
#include "op/infer.h"

static int bias_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int rc = op_want(g, n, BIAS_X, DTYPE_F32, -1, err);

    if (rc < 0 ||
        (rc = op_want_shape(g, n, BIAS_B, SHAPE(op_last_dim(op_shape(g, n, BIAS_X))), err)) < 0)
        return rc;
    op_out(out, BIAS_Y, DTYPE_F32, *op_shape(g, n, BIAS_X));
    return 0;
}

static int bias_infer_grad(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want(g, n, BIAS_GRAD_DY, DTYPE_F32, -1, err);

    if (rc == 0)
        op_out(out, BIAS_GRAD_DB, DTYPE_F32, SHAPE(op_last_dim(op_shape(g, n, BIAS_GRAD_DY))));
    return rc;
}

static int bias_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                         const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    din[BIAS_X] = dout[BIAS_Y];
    if (!want[BIAS_B])
        return 0;
    din[BIAS_B] = op_grad_out(g, n->in[BIAS_B]);
    return graph_node(g, OP_bias_grad, NULL, (int[]){dout[BIAS_Y]}, 1, &din[BIAS_B],
                      op_name(g, n, "grad"), err);
}

const struct op_def op_bias = {
    .infer = bias_infer,
    .grad = bias_backward,
    OP_SIGNATURE(bias),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1u << BIAS_X | 1u << BIAS_B,
    .typed_out = 1u << BIAS_Y,
};

const struct op_def op_bias_grad = {
    .infer = bias_infer_grad,
    OP_SIGNATURE(bias_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << BIAS_GRAD_DY,
    .wide_out = 1u << BIAS_GRAD_DB,
};
