/* conv2d - two-dimensional convolution (cross-correlation), as torch.nn.functional.conv2d.
 *
 * conv2d         x [N,H,W,C], w [K,C/groups,R,S], b? [K], add? [N,H',W',K] -> y [N,H',W',K]
 *                (may be in place of add)
 *   H' = (H + 2*pad - dilation*(R-1) - 1) / stride + 1, and W' likewise.
 *   y[n,p,q,k] = act(b[k] + sum over r,s and the C/groups channels c of k's group of
 *                x[n, p*stride - pad + r*dilation, q*stride - pad + s*dilation, c] * w[k,c,r,s]
 *                + add[n,p,q,k])
 *   x outside the image is 0.  attr.conv: stride, pad, dilation, groups, act.
 * conv2d_grad_x  w, dy [N,H',W',K] -> dx [N,H,W,C];  attr.conv.in_image = H, W
 * conv2d_grad_w  x, dy -> dw, db? [K] (sum of dy over n, p, q);  attr.conv.kernel = R, S
 * Both gradients overwrite their outputs, and their attr.conv.act is ACT_NONE. */
#include "op/infer.h"

#include "base/util.h"

enum { N, H, W, C };

static int conv2d_check_attr(const struct node *n, struct err *err)
{
    for (int i = 0; i < 2; i++) {
        if (n->attr.conv.stride[i] < 1 || n->attr.conv.dilation[i] < 1)
            return op_fail(n, err, "stride %d and dilation %d must be at least 1",
                           n->attr.conv.stride[i], n->attr.conv.dilation[i]);
        if (n->attr.conv.pad[i] < 0)
            return op_fail(n, err, "padding %d is negative", n->attr.conv.pad[i]);
    }
    if (n->attr.conv.groups < 1)
        return op_fail(n, err, "groups is %d, want at least 1", n->attr.conv.groups);
    return 0;
}

/* The shape of y for x and a filter of these shapes; fails if the two do not fit each other. */
static int conv2d_y_shape(const struct node *n, const struct shape *x, const struct shape *w,
                          struct shape *y, struct err *err)
{
    const int groups = n->attr.conv.groups;
    char text[2][SHAPE_TEXT_LEN];

    if (w->dim[1] * groups != x->dim[C] || w->dim[0] % groups)
        return op_fail(n, err, "filter %s does not fit x %s in %d groups", shape_text(w, text[0]),
                       shape_text(x, text[1]), groups);
    *y = SHAPE(x->dim[N], 0, 0, w->dim[0]);
    for (int i = 0; i < 2; i++) {
        y->dim[H + i] = op_window_extent(x->dim[H + i], (int)w->dim[2 + i], n->attr.conv.stride[i],
                                         n->attr.conv.pad[i], n->attr.conv.dilation[i]);
        if (w->dim[2 + i] < 1 || y->dim[H + i] < 1)
            return op_fail(n, err,
                           "filter %s with dilation %d is larger than the image %s with padding %d",
                           shape_text(w, text[0]), n->attr.conv.dilation[i], shape_text(x, text[1]),
                           n->attr.conv.pad[i]);
    }
    return 0;
}

static int conv2d_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    struct shape y;
    int rc;

    if ((rc = conv2d_check_attr(n, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_X, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_W, DTYPE_F32, 4, err)) < 0 ||
        (rc = conv2d_y_shape(n, op_shape(g, n, CONV2D_X), op_shape(g, n, CONV2D_W), &y, err)) < 0 ||
        (rc = op_want_shape(g, n, CONV2D_B, SHAPE(y.dim[C]), err)) < 0 ||
        (rc = op_want_shape(g, n, CONV2D_ADD, y, err)) < 0)
        return rc;
    op_out(out, CONV2D_Y, DTYPE_F32, y);
    return 0;
}

/* Check that in[dy] of a gradient has the shape that conv2d gives for x and w. */
static int check_dy(const struct graph *g, const struct node *n, int dy, const struct shape *x,
                    const struct shape *w, struct err *err)
{
    struct shape y;
    int rc = conv2d_y_shape(n, x, w, &y, err);

    return rc < 0 ? rc : op_want_shape(g, n, dy, y, err);
}

static int conv2d_infer_grad_x(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape x;
    int rc;

    if ((rc = conv2d_check_attr(n, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_GRAD_X_W, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_GRAD_X_DY, DTYPE_F32, 4, err)) < 0)
        return rc;
    x = SHAPE(op_shape(g, n, CONV2D_GRAD_X_DY)->dim[N], n->attr.conv.in_image[0],
              n->attr.conv.in_image[1],
              op_shape(g, n, CONV2D_GRAD_X_W)->dim[1] * n->attr.conv.groups);
    rc = check_dy(g, n, CONV2D_GRAD_X_DY, &x, op_shape(g, n, CONV2D_GRAD_X_W), err);
    if (rc < 0)
        return rc;
    op_out(out, CONV2D_GRAD_X_DX, DTYPE_F32, x);
    return 0;
}

static int conv2d_infer_grad_w(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    struct shape w;
    int rc;

    if ((rc = conv2d_check_attr(n, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_GRAD_W_X, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, CONV2D_GRAD_W_DY, DTYPE_F32, 4, err)) < 0)
        return rc;
    w = SHAPE(op_shape(g, n, CONV2D_GRAD_W_DY)->dim[C],
              op_shape(g, n, CONV2D_GRAD_W_X)->dim[C] / n->attr.conv.groups, n->attr.conv.kernel[0],
              n->attr.conv.kernel[1]);
    rc = check_dy(g, n, CONV2D_GRAD_W_DY, op_shape(g, n, CONV2D_GRAD_W_X), &w, err);
    if (rc < 0)
        return rc;
    op_out(out, CONV2D_GRAD_W_DW, DTYPE_F32, w);
    op_out(out, CONV2D_GRAD_W_DB, DTYPE_F32, SHAPE(w.dim[0]));
    return 0;
}

/* Only the bias is trained: its gradient is a sum of dy. */
static int conv2d_grad_bias_alone(struct graph *g, const struct node *n, int dy,
                                  int din[NODE_MAX_IN], struct err *err)
{
    din[CONV2D_B] = op_grad_out(g, n->in[CONV2D_B]);
    return graph_node(g, OP_bias_grad, NULL, &dy, 1, &din[CONV2D_B], op_name(g, n, "grad_b"), err);
}

static int conv2d_backward_w(struct graph *g, const struct node *n, int dy,
                             const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const struct shape w = *op_shape(g, n, CONV2D_W);
    union node_attr attr = n->attr;
    const int in[] = {[CONV2D_GRAD_W_X] = n->in[CONV2D_X], [CONV2D_GRAD_W_DY] = dy};
    int out[] = {[CONV2D_GRAD_W_DW] = op_grad_out(g, n->in[CONV2D_W]),
                 [CONV2D_GRAD_W_DB] = op_grad_wanted(g, n, want, CONV2D_B)};
    int rc;

    attr.conv.kernel[0] = (int)w.dim[2];
    attr.conv.kernel[1] = (int)w.dim[3];
    rc = graph_node(g, OP_conv2d_grad_w, &attr, in, 2, out, op_name(g, n, "grad_w"), err);
    din[CONV2D_W] = out[CONV2D_GRAD_W_DW];
    din[CONV2D_B] = out[CONV2D_GRAD_W_DB];
    return rc;
}

static int conv2d_backward_x(struct graph *g, const struct node *n, int dy, int din[NODE_MAX_IN],
                             struct err *err)
{
    const struct shape x = *op_shape(g, n, CONV2D_X);
    const int in[] = {[CONV2D_GRAD_X_W] = n->in[CONV2D_W], [CONV2D_GRAD_X_DY] = dy};
    union node_attr attr = n->attr;

    attr.conv.in_image[0] = x.dim[H];
    attr.conv.in_image[1] = x.dim[W];
    din[CONV2D_X] = op_grad_out(g, n->in[CONV2D_X]);
    return graph_node(g, OP_conv2d_grad_x, &attr, in, 2, &din[CONV2D_X], op_name(g, n, "grad_x"),
                      err);
}

static int conv2d_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    int rc = 0;

    ASSERT(n->attr.conv.act == ACT_NONE && !op_has(n, CONV2D_ADD)); /* fusion comes later */
    if (want[CONV2D_W])
        rc = conv2d_backward_w(g, n, dout[CONV2D_Y], want, din, err);
    else if (want[CONV2D_B])
        rc = conv2d_grad_bias_alone(g, n, dout[CONV2D_Y], din, err);
    if (rc == 0 && want[CONV2D_X])
        rc = conv2d_backward_x(g, n, dout[CONV2D_Y], din, err);
    return rc;
}

/* The gradient of conv2d_grad_x, which as a forward operator is the transposed convolution of its
 * dy: dx is linear in both operands, so the gradient of dy is the convolution of dx's gradient. */
static int grad_transposed(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const struct shape w = *op_shape(g, n, CONV2D_GRAD_X_W);
    const int ddx = dout[CONV2D_GRAD_X_DX];
    const int in[] = {[CONV2D_X] = ddx, [CONV2D_W] = n->in[CONV2D_GRAD_X_W]};
    const int in_w[] = {[CONV2D_GRAD_W_X] = ddx, [CONV2D_GRAD_W_DY] = n->in[CONV2D_GRAD_X_DY]};
    int out[] = {[CONV2D_GRAD_W_DW] = op_grad_wanted(g, n, want, CONV2D_GRAD_X_W),
                 [CONV2D_GRAD_W_DB] = NODE_NO_OUT};
    union node_attr attr = n->attr;
    int rc = 0;

    attr.conv.kernel[0] = (int)w.dim[2];
    attr.conv.kernel[1] = (int)w.dim[3];
    if (want[CONV2D_GRAD_X_W])
        rc = graph_node(g, OP_conv2d_grad_w, &attr, in_w, 2, out, op_name(g, n, "grad_w"), err);
    if (want[CONV2D_GRAD_X_W])
        din[CONV2D_GRAD_X_W] = out[CONV2D_GRAD_W_DW];
    if (rc < 0 || !want[CONV2D_GRAD_X_DY])
        return rc;
    din[CONV2D_GRAD_X_DY] = op_grad_out(g, n->in[CONV2D_GRAD_X_DY]);
    return graph_node(g, OP_conv2d, &n->attr, in, 2, &din[CONV2D_GRAD_X_DY],
                      op_name(g, n, "grad_x"), err);
}

const struct op_def op_conv2d = {
    .infer = conv2d_infer,
    .grad = conv2d_backward,
    OP_SIGNATURE(conv2d),
    .flags = OP_ROWS | OP_INPLACE,
    .inplace_in = CONV2D_ADD,
    .typed_in = 1u << CONV2D_X | 1u << CONV2D_W | 1u << CONV2D_B | 1u << CONV2D_ADD,
    .typed_out = 1u << CONV2D_Y,
};

const struct op_def op_conv2d_grad_x = {
    .infer = conv2d_infer_grad_x,
    .grad = grad_transposed,
    OP_SIGNATURE(conv2d_grad_x),
    .flags = OP_ROWS,
    .typed_in = 1u << CONV2D_GRAD_X_W | 1u << CONV2D_GRAD_X_DY,
    .typed_out = 1u << CONV2D_GRAD_X_DX,
};

const struct op_def op_conv2d_grad_w = {
    .infer = conv2d_infer_grad_w,
    OP_SIGNATURE(conv2d_grad_w),
    .flags = OP_ROWS,
    .typed_in = 1u << CONV2D_GRAD_W_X | 1u << CONV2D_GRAD_W_DY,
    .wide_out = 1u << CONV2D_GRAD_W_DW | 1u << CONV2D_GRAD_W_DB,
};
