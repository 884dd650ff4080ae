/* pool2d - maximum or average over windows, as torch.nn.functional.max_pool2d and avg_pool2d.
 *
 * pool2d       x [N,H,W,C] -> y [N,H',W',C], which? I32, shape of y (POOL_MAX only)
 *   H' = (H + 2*pad - kernel) / stride + 1, and W' likewise.
 *   With attr.pool.ceil_mode (POOL_MAX only) the quotient is rounded up, but a window that would
 *   begin in the padding at the end is left out; what lies beyond the padding is padding, too.
 *   attr.pool: kind, kernel, stride, pad (at most half the kernel), count_pad.
 *   POOL_MAX: the maximum is never padding; of equal elements it is the first in row order; a NaN
 *   counts as the greatest.
 *   POOL_AVG: the sum over the window, divided by kernel[0]*kernel[1] with count_pad, else by the
 *   number of elements inside the image.  With a kernel as large as the image this is the global
 *   average pool.
 *   which says where the maxima lie, in a form that only the same backend's pool2d_grad reads.
 * pool2d_grad  dy [N,H',W',C], which? (POOL_MAX), y_act? [N,H,W,C] -> dx [N,H,W,C]
 *   attr.pool.in_image = H, W.  dx is overwritten; overlapping windows add up.
 *   With a fused activation, attr.pool.act is relu, tanh or sigmoid, and y_act is its output, which
 *   was the pool's input; dx is then multiplied by act'(y_act).  Otherwise attr.pool.act is
 *   ACT_NONE, and there is no y_act. */
#include "op/infer.h"

#include <string.h>

static int pool2d_check_attr(const struct node *n, struct err *err)
{
    for (int i = 0; i < 2; i++) {
        const int kernel = n->attr.pool.kernel[i], stride = n->attr.pool.stride[i];
        const int pad = n->attr.pool.pad[i];

        if (kernel < 1 || stride < 1)
            return op_fail(n, err, "kernel %d and stride %d must be at least 1", kernel, stride);
        if (pad < 0 || 2 * pad > kernel)
            return op_fail(n, err, "padding %d must be from 0 to half the kernel, %d", pad, kernel);
    }
    return 0;
}

static int pool2d_y_shape(const struct node *n, const struct shape *x, struct shape *y,
                          struct err *err)
{
    char text[SHAPE_TEXT_LEN];

    *y = *x;
    if (n->attr.pool.ceil_mode && n->attr.pool.kind != POOL_MAX)
        return op_fail(n, err,
                       "an average pool whose extents are rounded up is another operator's");
    for (int i = 0; i < 2; i++) {
        y->dim[1 + i] = op_window_extent(x->dim[1 + i], n->attr.pool.kernel[i],
                                         n->attr.pool.stride[i], n->attr.pool.pad[i], 1);
        if (y->dim[1 + i] < 1)
            return op_fail(n, err, "kernel %dx%d is larger than the image %s with padding %d",
                           n->attr.pool.kernel[0], n->attr.pool.kernel[1], shape_text(x, text),
                           n->attr.pool.pad[i]);
        if (n->attr.pool.ceil_mode)
            y->dim[1 + i] =
                op_window_ceil(x->dim[1 + i], n->attr.pool.kernel[i], n->attr.pool.stride[i],
                               n->attr.pool.pad[i], n->attr.pool.pad[i]);
    }
    return 0;
}

static int pool2d_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    struct shape y;
    int rc;

    if ((rc = pool2d_check_attr(n, err)) < 0 ||
        (rc = op_want(g, n, POOL2D_X, DTYPE_F32, 4, err)) < 0 ||
        (rc = pool2d_y_shape(n, op_shape(g, n, POOL2D_X), &y, err)) < 0)
        return rc;
    op_out(out, POOL2D_Y, DTYPE_F32, y);
    if (n->attr.pool.kind == POOL_MAX)
        op_out(out, POOL2D_WHICH, DTYPE_I32, y);
    return 0;
}

/* Check the inputs other than dy, for these shapes of x and y. */
static int check_saved(const struct graph *g, const struct node *n, struct shape x, struct shape y,
                       struct err *err)
{
    int rc;

    if (op_has(n, POOL2D_GRAD_WHICH) != (n->attr.pool.kind == POOL_MAX))
        return op_fail(n, err, "which belongs to a maximum pool, and to no other");
    if (op_has(n, POOL2D_GRAD_Y_ACT) != (n->attr.pool.act != ACT_NONE) ||
        activation_saves_x(n->attr.pool.act))
        return op_fail(n, err, "a fused relu, tanh or sigmoid needs y_act, and nothing else does");
    rc = op_want(g, n, POOL2D_GRAD_WHICH, DTYPE_I32, 4, err);
    if (rc < 0)
        return rc;
    if (op_has(n, POOL2D_GRAD_WHICH) && !shape_equal(op_shape(g, n, POOL2D_GRAD_WHICH), &y))
        return op_fail(n, err, "which has not the shape of dy");
    return op_want_shape(g, n, POOL2D_GRAD_Y_ACT, x, err);
}

static int pool2d_infer_grad(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape x, y;
    int rc;

    if ((rc = pool2d_check_attr(n, err)) < 0 ||
        (rc = op_want(g, n, POOL2D_GRAD_DY, DTYPE_F32, 4, err)) < 0)
        return rc;
    x = *op_shape(g, n, POOL2D_GRAD_DY);
    memcpy(&x.dim[1], n->attr.pool.in_image, sizeof n->attr.pool.in_image);
    if ((rc = pool2d_y_shape(n, &x, &y, err)) < 0 ||
        (rc = op_want_shape(g, n, POOL2D_GRAD_DY, y, err)) < 0 ||
        (rc = check_saved(g, n, x, y, err)) < 0)
        return rc;
    op_out(out, POOL2D_GRAD_DX, DTYPE_F32, x);
    return 0;
}

static int pool2d_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[POOL2D_GRAD_DY] = dout[POOL2D_Y],
                      [POOL2D_GRAD_WHICH] =
                          n->attr.pool.kind == POOL_MAX ? n->out[POOL2D_WHICH] : NO_VALUE};
    union node_attr attr = n->attr;

    (void)want;
    attr.pool.in_image[0] = op_shape(g, n, POOL2D_X)->dim[1];
    attr.pool.in_image[1] = op_shape(g, n, POOL2D_X)->dim[2];
    din[POOL2D_X] = op_grad_out(g, n->in[POOL2D_X]);
    return graph_node(g, OP_pool2d_grad, &attr, in, 2, &din[POOL2D_X], op_name(g, n, "grad"), err);
}

const struct op_def op_pool2d = {
    .infer = pool2d_infer,
    .grad = pool2d_backward,
    OP_SIGNATURE(pool2d),
    .flags = OP_ROWS,
    .typed_in = 1u << POOL2D_X,
    .typed_out = 1u << POOL2D_Y,
};

const struct op_def op_pool2d_grad = {
    .infer = pool2d_infer_grad,
    OP_SIGNATURE(pool2d_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << POOL2D_GRAD_DY | 1u << POOL2D_GRAD_Y_ACT,
    .typed_out = 1u << POOL2D_GRAD_DX,
};
