/* linear - y = x w^T + b, as torch.nn.functional.linear.
 *
 * linear         x [N,in], w [out,in], b? [out] -> y [N,out], mask?, pre?
 *   y[n,o] = act(b[o] + sum over i of x[n,i] * w[o,i]).  attr.linear: act, image.
 *   With attr.linear.image = {H,W,C} (H > 0; fused flatten) x is [N,H,W,C] and in = C*H*W: column
 *   (c*H + h)*W + w of w belongs to x[n,h,w,c].
 *   With attr.linear.transposed w, and dw of linear_grad_w, is [in,out], and there is no image.
 *   mask and pre are what the gradient of a fused activation needs.  With relu, mask is I32
 *   [N,4*ceil(out/128)], with one bit for each y, set where y is positive, in the backend's own
 *   order.  With gelu_tanh, pre [N,out] is the activation's input.  Only program/fuse.c asks for
 *   them, for linear_grad_x.
 *
 * linear_grad_x  w, dy [N,out], mask?, pre? -> dx [N,in], or [N,H,W,C] with image
 *   With attr.linear.act relu or gelu_tanh, dx is then multiplied by the derivative of the
 *   activation that made x.  mask or pre comes from the linear that this activation was fused into.
 *   Such a node has no image.
 *
 * linear_grad_w  x, dy -> dw [out,in], db? [out]
 *   db is the sum of dy over the rows; attr.linear.act is ACT_NONE.
 *
 * Both gradients overwrite their outputs. */
#include "op/infer.h"

#include "base/util.h"

static int linear_has_image(const struct node *n) { return n->attr.linear.image[0] > 0; }

static int64_t image_elements(const struct node *n)
{
    return n->attr.linear.image[0] * n->attr.linear.image[1] * n->attr.linear.image[2];
}

static struct shape w_shape(const struct node *n, int64_t out, int64_t in)
{
    return n->attr.linear.transposed ? SHAPE(in, out) : SHAPE(out, in);
}

/* The outputs, or inputs, of a layer whose w has this shape. */
static int64_t w_out(const struct node *n, const struct shape *w)
{
    return w->dim[n->attr.linear.transposed ? 1 : 0];
}

static int64_t w_in(const struct node *n, const struct shape *w)
{
    return w->dim[n->attr.linear.transposed ? 0 : 1];
}

/* The shape of x for a batch of N and `in` features. */
static struct shape x_shape(const struct node *n, int64_t batch, int64_t in)
{
    const int64_t *image = n->attr.linear.image;

    return linear_has_image(n) ? SHAPE(batch, image[0], image[1], image[2]) : SHAPE(batch, in);
}

static int linear_want_x(const struct graph *g, const struct node *n, int x, int64_t *in,
                         struct err *err)
{
    int rc = op_want(g, n, x, DTYPE_F32, linear_has_image(n) ? 4 : 2, err);

    if (rc < 0)
        return rc;
    if (linear_has_image(n) && n->attr.linear.transposed)
        return op_fail(n, err, "a transposed weight has no image");
    *in = linear_has_image(n) ? image_elements(n) : op_shape(g, n, x)->dim[1];
    return op_want_shape(g, n, x, x_shape(n, op_shape(g, n, x)->dim[0], *in), err);
}

static struct shape mask_shape(int64_t batch, int64_t features)
{
    return SHAPE(batch, 4 * ceil_div_i64(features, 128));
}

static int linear_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    int64_t in = 0, k;
    int rc;

    if ((rc = linear_want_x(g, n, LINEAR_X, &in, err)) < 0 ||
        (rc = op_want(g, n, LINEAR_W, DTYPE_F32, 2, err)) < 0)
        return rc;
    k = w_out(n, op_shape(g, n, LINEAR_W));
    if ((rc = op_want_shape(g, n, LINEAR_W, w_shape(n, k, in), err)) < 0 ||
        (rc = op_want_shape(g, n, LINEAR_B, SHAPE(k), err)) < 0)
        return rc;
    op_out(out, LINEAR_Y, DTYPE_F32, SHAPE(op_shape(g, n, LINEAR_X)->dim[0], k));
    if (n->attr.linear.act == ACT_RELU)
        op_out(out, LINEAR_MASK, DTYPE_I32, mask_shape(op_shape(g, n, LINEAR_X)->dim[0], k));
    if (n->attr.linear.act == ACT_GELU_TANH)
        op_out(out, LINEAR_PRE, DTYPE_F32, SHAPE(op_shape(g, n, LINEAR_X)->dim[0], k));
    return 0;
}

/* Check mask and pre of linear_grad_x, for x [batch,in]. */
static int want_saved(const struct graph *g, const struct node *n, int64_t batch, int64_t in,
                      struct err *err)
{
    const enum activation act = n->attr.linear.act;
    const struct shape mask = mask_shape(batch, in);
    int rc;

    if (op_has(n, LINEAR_GRAD_X_MASK) != (act == ACT_RELU) ||
        op_has(n, LINEAR_GRAD_X_PRE) != (act == ACT_GELU_TANH) ||
        (act != ACT_NONE && (linear_has_image(n) || (act != ACT_RELU && act != ACT_GELU_TANH))))
        return op_fail(n, err,
                       "a fused relu takes mask alone, gelu_tanh pre alone, others neither "
                       "(nor with an image)");
    if ((rc = op_want_shape(g, n, LINEAR_GRAD_X_PRE, SHAPE(batch, in), err)) < 0 ||
        (rc = op_want(g, n, LINEAR_GRAD_X_MASK, DTYPE_I32, 2, err)) < 0)
        return rc;
    return op_has(n, LINEAR_GRAD_X_MASK) && !shape_equal(op_shape(g, n, LINEAR_GRAD_X_MASK), &mask)
               ? op_fail(n, err, "mask has %lld columns, want %lld",
                         (long long)op_shape(g, n, LINEAR_GRAD_X_MASK)->dim[1],
                         (long long)mask.dim[1])
               : 0;
}

static int linear_infer_grad_x(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *w, *dy;
    int rc;

    if ((rc = op_want(g, n, LINEAR_GRAD_X_W, DTYPE_F32, 2, err)) < 0 ||
        (rc = op_want(g, n, LINEAR_GRAD_X_DY, DTYPE_F32, 2, err)) < 0)
        return rc;
    w = op_shape(g, n, LINEAR_GRAD_X_W);
    dy = op_shape(g, n, LINEAR_GRAD_X_DY);
    if (linear_has_image(n) && image_elements(n) != w_in(n, w))
        return op_fail(n, err, "w has %lld columns, but the image has %lld elements",
                       (long long)w_in(n, w), (long long)image_elements(n));
    if ((rc = op_want_shape(g, n, LINEAR_GRAD_X_DY, SHAPE(dy->dim[0], w_out(n, w)), err)) < 0 ||
        (rc = want_saved(g, n, dy->dim[0], w_in(n, w), err)) < 0)
        return rc;
    op_out(out, LINEAR_GRAD_X_DX, DTYPE_F32, x_shape(n, dy->dim[0], w_in(n, w)));
    return 0;
}

static int linear_infer_grad_w(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t in = 0, k;
    int rc;

    if ((rc = linear_want_x(g, n, LINEAR_GRAD_W_X, &in, err)) < 0 ||
        (rc = op_want(g, n, LINEAR_GRAD_W_DY, DTYPE_F32, 2, err)) < 0)
        return rc;
    k = op_shape(g, n, LINEAR_GRAD_W_DY)->dim[1];
    rc = op_want_shape(g, n, LINEAR_GRAD_W_DY, SHAPE(op_shape(g, n, LINEAR_GRAD_W_X)->dim[0], k),
                       err);
    if (rc < 0)
        return rc;
    op_out(out, LINEAR_GRAD_W_DW, DTYPE_F32, w_shape(n, k, in));
    op_out(out, LINEAR_GRAD_W_DB, DTYPE_F32, SHAPE(k));
    return 0;
}

/* Only the bias is trained: its gradient is a sum of dy. */
static int linear_grad_bias_alone(struct graph *g, const struct node *n, int dy,
                                  int din[NODE_MAX_IN], struct err *err)
{
    din[LINEAR_B] = op_grad_out(g, n->in[LINEAR_B]);
    return graph_node(g, OP_bias_grad, NULL, &dy, 1, &din[LINEAR_B], op_name(g, n, "grad_b"), err);
}

static int linear_backward_w(struct graph *g, const struct node *n, int dy,
                             const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[LINEAR_GRAD_W_X] = n->in[LINEAR_X], [LINEAR_GRAD_W_DY] = dy};
    int out[] = {[LINEAR_GRAD_W_DW] = op_grad_out(g, n->in[LINEAR_W]),
                 [LINEAR_GRAD_W_DB] = op_grad_wanted(g, n, want, LINEAR_B)};
    int rc = graph_node(g, OP_linear_grad_w, &n->attr, in, 2, out, op_name(g, n, "grad_w"), err);

    din[LINEAR_W] = out[LINEAR_GRAD_W_DW];
    din[LINEAR_B] = out[LINEAR_GRAD_W_DB];
    return rc;
}

static int linear_backward_x(struct graph *g, const struct node *n, int dy, int din[NODE_MAX_IN],
                             struct err *err)
{
    const int in[] = {[LINEAR_GRAD_X_W] = n->in[LINEAR_W], [LINEAR_GRAD_X_DY] = dy};

    din[LINEAR_X] = op_grad_out(g, n->in[LINEAR_X]);
    return graph_node(g, OP_linear_grad_x, &n->attr, in, 2, &din[LINEAR_X], op_name(g, n, "grad_x"),
                      err);
}

static int linear_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    int rc = 0;

    ASSERT(n->attr.linear.act == ACT_NONE); /* differentiate comes before fusion */
    if (want[LINEAR_W])
        rc = linear_backward_w(g, n, dout[LINEAR_Y], want, din, err);
    else if (want[LINEAR_B])
        rc = linear_grad_bias_alone(g, n, dout[LINEAR_Y], din, err);
    if (rc == 0 && want[LINEAR_X])
        rc = linear_backward_x(g, n, dout[LINEAR_Y], din, err);
    return rc;
}

const struct op_def op_linear = {
    .infer = linear_infer,
    .grad = linear_backward,
    OP_SIGNATURE(linear),
    .flags = OP_ROWS,
    .typed_in = 1u << LINEAR_X | 1u << LINEAR_W | 1u << LINEAR_B,
    .typed_out = 1u << LINEAR_Y | 1u << LINEAR_PRE,
};

const struct op_def op_linear_grad_x = {
    .infer = linear_infer_grad_x,
    OP_SIGNATURE(linear_grad_x),
    .flags = OP_ROWS,
    .typed_in = 1u << LINEAR_GRAD_X_W | 1u << LINEAR_GRAD_X_DY | 1u << LINEAR_GRAD_X_PRE,
    .typed_out = 1u << LINEAR_GRAD_X_DX,
};

const struct op_def op_linear_grad_w = {
    .infer = linear_infer_grad_w,
    OP_SIGNATURE(linear_grad_w),
    .flags = OP_ROWS,
    .typed_in = 1u << LINEAR_GRAD_W_X | 1u << LINEAR_GRAD_W_DY,
    .wide_out = 1u << LINEAR_GRAD_W_DW | 1u << LINEAR_GRAD_W_DB,
};
