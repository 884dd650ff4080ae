/* add - the sum of two values of one shape: residual connections, gradients of a value with several
 * users.
 *
 * add  a [..], b [..] -> y = a + b (may be in place of a)
 *   Numbers without dimensions are added, too. */
#include "op/infer.h"

static int add_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                     struct err *err)
{
    int rc = op_want(g, n, ADD_A, DTYPE_F32, op_shape(g, n, ADD_A)->n, err);

    if (rc < 0 || (rc = op_want_shape(g, n, ADD_B, *op_shape(g, n, ADD_A), err)) < 0)
        return rc;
    op_out(out, ADD_Y, DTYPE_F32, *op_shape(g, n, ADD_A));
    return 0;
}

static int add_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                        const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)err;
    din[ADD_A] = want[ADD_A] ? dout[ADD_Y] : NO_VALUE;
    din[ADD_B] = want[ADD_B] ? dout[ADD_Y] : NO_VALUE;
    return 0;
}

const struct op_def op_add = {
    .infer = add_infer,
    .grad = add_backward,
    OP_SIGNATURE(add),
    .flags = OP_INPLACE, /* not OP_ROWS: it also adds parameters' gradients, which have no rows */
    .typed_in = 1u << ADD_A | 1u << ADD_B,
    .typed_out = 1u << ADD_Y,
};
