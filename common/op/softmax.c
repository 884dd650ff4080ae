/* softmax - softmax and its logarithm along one dimension.
 *
 * softmax       x [..] -> y:  along attr.softmax.dim  y = e^x / sum(e^x);
 *               with attr.softmax.log its logarithm,  y = x - log(sum(e^x)).  With
 *               attr.softmax.safe y is 0 where all x of the line are -infinity, as in PyTorch's
 *               attention; without it y is NaN there.
 * softmax_grad  y, dy -> dx:  dx = y * (dy - sum(y*dy)), or of the logarithm
 *               dx = dy - e^y * sum(dy), with sums along the dimension.
 *
 * The loss that takes logits is op/softmax_xent.c. */
#include "op/infer.h"

static int check_dim(const struct graph *g, const struct node *n, int in, struct err *err)
{
    const int dim = n->attr.softmax.dim;
    int rc = op_want(g, n, in, DTYPE_F32, -1, err);

    if (rc == 0 && (dim < 0 || dim >= op_shape(g, n, in)->n))
        return op_fail(n, err, "there are %d dimensions, and no dimension %d",
                       op_shape(g, n, in)->n, dim);
    if (rc == 0 && n->attr.softmax.safe && n->attr.softmax.log)
        return op_fail(n, err, "the logarithm of a safe softmax is not defined");
    return rc;
}

static int softmax_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = check_dim(g, n, SOFTMAX_X, err);

    if (rc == 0)
        op_out(out, SOFTMAX_Y, DTYPE_F32, *op_shape(g, n, SOFTMAX_X));
    return rc;
}

static int softmax_infer_grad(const struct graph *g, const struct node *n,
                              struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = check_dim(g, n, SOFTMAX_GRAD_Y, err);

    if (rc < 0 ||
        (rc = op_want_shape(g, n, SOFTMAX_GRAD_DY, *op_shape(g, n, SOFTMAX_GRAD_Y), err)) < 0)
        return rc;
    op_out(out, SOFTMAX_GRAD_DX, DTYPE_F32, *op_shape(g, n, SOFTMAX_GRAD_Y));
    return 0;
}

static int softmax_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                            const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[SOFTMAX_GRAD_Y] = n->out[SOFTMAX_Y], [SOFTMAX_GRAD_DY] = dout[SOFTMAX_Y]};

    (void)want;
    din[SOFTMAX_X] = NODE_NEW_OUT;
    return graph_node(g, OP_softmax_grad, &n->attr, in, 2, &din[SOFTMAX_X], op_name(g, n, "grad"),
                      err);
}

const struct op_def op_softmax = {
    .infer = softmax_infer,
    .grad = softmax_backward,
    OP_SIGNATURE(softmax),
    .flags = OP_ROWS,
    .typed_in = 1u << SOFTMAX_X,
    .typed_out = 1u << SOFTMAX_Y,
};

const struct op_def op_softmax_grad = {
    .infer = softmax_infer_grad,
    OP_SIGNATURE(softmax_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << SOFTMAX_GRAD_Y | 1u << SOFTMAX_GRAD_DY,
    .typed_out = 1u << SOFTMAX_GRAD_DX,
};
