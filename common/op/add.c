/* add - the sum of two values of one shape (residual connections, gradients of shared values).
 *
 * add  in: 0 a [..]  1 b [..]     out: 0 y = a + b (may be in place of a) */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc < 0 || (rc = op_want_shape(g, n, 1, *op_shape(g, n, 0), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)err;
    for (int i = 0; i < 2; i++)
        din[i] = want[i] ? dout[0] : NO_VALUE;
    return 0;
}

const struct op_def op_add = {
    .name = "add",
    .n_in = 2,
    .n_out = 1,
    .flags = OP_INPLACE, /* not OP_ROWS: sums of parameters' gradients go through here */
    .typed_in = 1 << 0 | 1 << 1,
    .typed_out = 1 << 0,
    .in_name = {"a", "b"},
    .out_name = {"y"},
    .infer = infer,
    .grad = grad,
};
