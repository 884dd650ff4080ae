/* rms_norm - each row (the last dimension) divided by its root mean square, as torch.nn.RMSNorm(C).
 *
 * rms_norm       x [..,C], weight? [C] -> y, rstd? [rows]
 *   rstd = 1/sqrt(avg(x^2) + attr.norm.eps) with the average over the row;  y = x * rstd * w, where
 * w is weight, with attr.norm.one_plus 1 + weight (Gemma's), and 1 without a weight. rms_norm_grad
 * x, dy, weight?, rstd -> dx?, dweight? [C] xhat = x*rstd, d = dy*w;  dx = rstd * (d - xhat *
 * avg(d*xhat)), with the average over the row; dweight = sum over rows of dy*xhat. */
#include "op/infer.h"

static int rms_norm_infer(const struct graph *g, const struct node *n,
                          struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, RMS_NORM_X, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, RMS_NORM_X);
    rc = op_want_shape(g, n, RMS_NORM_WEIGHT, SHAPE(op_last_dim(x)), err);
    if (rc < 0)
        return rc;
    op_out(out, RMS_NORM_Y, DTYPE_F32, *x);
    op_out(out, RMS_NORM_RSTD, DTYPE_F32, SHAPE(op_rows(x)));
    return 0;
}

static int rms_norm_infer_grad(const struct graph *g, const struct node *n,
                               struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, RMS_NORM_GRAD_X, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, RMS_NORM_GRAD_X);
    if ((rc = op_want_shape(g, n, RMS_NORM_GRAD_DY, *x, err)) < 0 ||
        (rc = op_want_shape(g, n, RMS_NORM_GRAD_WEIGHT, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, RMS_NORM_GRAD_RSTD, SHAPE(op_rows(x)), err)) < 0)
        return rc;
    op_out(out, RMS_NORM_GRAD_DX, DTYPE_F32, *x);
    op_out(out, RMS_NORM_GRAD_DWEIGHT, DTYPE_F32, SHAPE(op_last_dim(x)));
    return 0;
}

static int rms_norm_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                             const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[RMS_NORM_GRAD_X] = n->in[RMS_NORM_X],
                      [RMS_NORM_GRAD_DY] = dout[RMS_NORM_Y],
                      [RMS_NORM_GRAD_WEIGHT] =
                          op_has(n, RMS_NORM_WEIGHT) ? n->in[RMS_NORM_WEIGHT] : NO_VALUE,
                      [RMS_NORM_GRAD_RSTD] = n->out[RMS_NORM_RSTD]};
    int out[] = {[RMS_NORM_GRAD_DX] = op_grad_wanted(g, n, want, RMS_NORM_X),
                 [RMS_NORM_GRAD_DWEIGHT] = op_has(n, RMS_NORM_WEIGHT)
                                               ? op_grad_wanted(g, n, want, RMS_NORM_WEIGHT)
                                               : NODE_NO_OUT};
    int rc = graph_node(g, OP_rms_norm_grad, &n->attr, in, 4, out, op_name(g, n, "grad"), err);

    din[RMS_NORM_X] = out[RMS_NORM_GRAD_DX];
    din[RMS_NORM_WEIGHT] = out[RMS_NORM_GRAD_DWEIGHT];
    return rc;
}

const struct op_def op_rms_norm = {
    .infer = rms_norm_infer,
    .grad = rms_norm_backward,
    OP_SIGNATURE(rms_norm),
    .flags = OP_ROWS | OP_CHEAP,
    .typed_in = 1u << RMS_NORM_X,
    .typed_out = 1u << RMS_NORM_Y,
};

const struct op_def op_rms_norm_grad = {
    .infer = rms_norm_infer_grad,
    OP_SIGNATURE(rms_norm_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << RMS_NORM_GRAD_X | 1u << RMS_NORM_GRAD_DY,
    .typed_out = 1u << RMS_NORM_GRAD_DX,
    .wide_out = 1u << RMS_NORM_GRAD_DWEIGHT,
};
