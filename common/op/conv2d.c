/* conv2d - two-dimensional convolution (cross-correlation), as torch.nn.functional.conv2d.
 *
 * conv2d         in: 0 x [N,H,W,C]  1 w [K,C/groups,R,S]  2 b? [K]
 *                out: 0 y [N,H',W',K],  H' = (H + 2*pad - dilation*(R-1) - 1) / stride + 1
 *   y[n,p,q,k] = act(b[k] + sum over r,s and the C/groups channels c of k's group of
 *                x[n, p*stride - pad + r*dilation, q*stride - pad + s*dilation, c] * w[k,c,r,s])
 *   x outside the image is 0.  attr.conv: stride, pad, dilation, groups, act.
 * conv2d_grad_x  in: 0 w  1 dy [N,H',W',K]          out: 0 dx [N,H,W,C]; attr.conv.in_image = H, W
 * conv2d_grad_w  in: 0 x  1 dy                      out: 0 dw  1 db? [K] (sum of dy over n, p, q)
 *                attr.conv.kernel = R, S
 * The gradients overwrite their outputs; their attr.conv.act is ACT_NONE. */
#include "op/infer.h"

#include "base/util.h"

enum { N, H, W, C };

static int check_attr(const struct node *n, struct err *err)
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

/* Extents of y for x and a filter of these shapes; fails if they do not fit each other. */
static int y_shape(const struct node *n, const struct shape *x, const struct shape *w,
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
            return op_fail(n, err, "filter %s is larger than the padded image %s",
                           shape_text(w, text[0]), shape_text(x, text[1]));
    }
    return 0;
}

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    struct shape y;
    int rc;

    if ((rc = check_attr(n, err)) < 0 || (rc = op_want(g, n, 0, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, 1, DTYPE_F32, 4, err)) < 0 ||
        (rc = y_shape(n, op_shape(g, n, 0), op_shape(g, n, 1), &y, err)) < 0 ||
        (rc = op_want_shape(g, n, 2, SHAPE(y.dim[C]), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, y);
    return 0;
}

/* For a gradient: dy must be what conv2d gives for x and w. */
static int check_dy(const struct graph *g, const struct node *n, const struct shape *x,
                    const struct shape *w, struct err *err)
{
    struct shape y;
    int rc = y_shape(n, x, w, &y, err);

    return rc < 0 ? rc : op_want_shape(g, n, 1, y, err);
}

static int infer_grad_x(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    struct shape x;
    int rc;

    if ((rc = check_attr(n, err)) < 0 || (rc = op_want(g, n, 0, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, 1, DTYPE_F32, 4, err)) < 0)
        return rc;
    x = SHAPE(op_shape(g, n, 1)->dim[N], n->attr.conv.in_image[0], n->attr.conv.in_image[1],
              op_shape(g, n, 0)->dim[1] * n->attr.conv.groups);
    if ((rc = check_dy(g, n, &x, op_shape(g, n, 0), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, x);
    return 0;
}

static int infer_grad_w(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    struct shape w;
    int rc;

    if ((rc = check_attr(n, err)) < 0 || (rc = op_want(g, n, 0, DTYPE_F32, 4, err)) < 0 ||
        (rc = op_want(g, n, 1, DTYPE_F32, 4, err)) < 0)
        return rc;
    w = SHAPE(op_shape(g, n, 1)->dim[C], op_shape(g, n, 0)->dim[C] / n->attr.conv.groups,
              n->attr.conv.kernel[0], n->attr.conv.kernel[1]);
    if ((rc = check_dy(g, n, op_shape(g, n, 0), &w, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, w);
    op_out(out, 1, DTYPE_F32, SHAPE(w.dim[0]));
    return 0;
}

static int grad_w(struct graph *g, const struct node *n, int dy, int din[NODE_MAX_IN],
                  struct err *err)
{
    const struct shape w = *op_shape(g, n, 1);
    union node_attr attr = n->attr;
    int out[] = {op_grad_out(g, n->in[1]), op_has(n, 2) ? op_grad_out(g, n->in[2]) : NODE_NO_OUT};
    int rc;

    attr.conv.kernel[0] = (int)w.dim[2];
    attr.conv.kernel[1] = (int)w.dim[3];
    rc = graph_node(g, OP_conv2d_grad_w, &attr, (int[]){n->in[0], dy}, 2, out,
                    op_name(g, n, "grad_w"), err);
    din[1] = out[0];
    din[2] = out[1];
    return rc;
}

static int grad_x(struct graph *g, const struct node *n, int dy, int din[NODE_MAX_IN],
                  struct err *err)
{
    const struct shape x = *op_shape(g, n, 0);
    union node_attr attr = n->attr;

    attr.conv.in_image[0] = x.dim[H];
    attr.conv.in_image[1] = x.dim[W];
    din[0] = op_grad_out(g, n->in[0]);
    return graph_node(g, OP_conv2d_grad_x, &attr, (int[]){n->in[1], dy}, 2, &din[0],
                      op_name(g, n, "grad_x"), err);
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    int rc = 0;

    ASSERT(n->attr.conv.act == ACT_NONE); /* differentiate comes before fusion */
    if (want[1] || want[2])
        rc = grad_w(g, n, dout[0], din, err);
    if (rc == 0 && want[0])
        rc = grad_x(g, n, dout[0], din, err);
    return rc;
}

const struct op_def op_conv2d = {
    .name = "conv2d",
    .n_in = 3,
    .n_out = 1,
    .flags = OP_ROWS,
    .optional_in = 1 << 2,
    .typed_in = 1 << 0 | 1 << 1 | 1 << 2,
    .typed_out = 1 << 0,
    .in_name = {"x", "w", "b"},
    .out_name = {"y"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_conv2d_grad_x = {
    .name = "conv2d_grad_x",
    .n_in = 2,
    .n_out = 1,
    .flags = OP_ROWS,
    .typed_in = 1 << 0 | 1 << 1,
    .typed_out = 1 << 0,
    .in_name = {"w", "dy"},
    .out_name = {"dx"},
    .infer = infer_grad_x,
};

const struct op_def op_conv2d_grad_w = {
    .name = "conv2d_grad_w",
    .n_in = 2,
    .n_out = 2,
    .flags = OP_ROWS,
    .optional_out = 1 << 1,
    .typed_in = 1 << 0 | 1 << 1,
    .wide_out = 1 << 0 | 1 << 1,
    .in_name = {"x", "dy"},
    .out_name = {"dw", "db"},
    .infer = infer_grad_w,
};
