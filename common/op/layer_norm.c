/* layer_norm - normalisation of each row (the last dimension), as torch.nn.LayerNorm(C).
 *
 * layer_norm       x [..,C], weight [C], bias [C] -> y, mean? [rows], rstd? [rows]
 *   mean and the (biased) variance var are those of a row;  rstd = 1/sqrt(var + attr.norm.eps);
 *   y = (x - mean) * rstd * weight + bias.
 * layer_norm_grad  x, dy, weight, mean, rstd -> dx?, dweight? [C], dbias? [C]
 *   xhat = (x - mean)*rstd, d = dy*weight;  dx = rstd * (d - avg(d) - xhat * avg(d*xhat)) with
 *   averages over the row;  dweight = sum over rows of dy*xhat;  dbias = sum over rows of dy. */
#include "op/infer.h"

static int layer_norm_infer(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, LAYER_NORM_X, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, LAYER_NORM_X);
    if ((rc = op_want_shape(g, n, LAYER_NORM_WEIGHT, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, LAYER_NORM_BIAS, SHAPE(op_last_dim(x)), err)) < 0)
        return rc;
    op_out(out, LAYER_NORM_Y, DTYPE_F32, *x);
    op_out(out, LAYER_NORM_MEAN, DTYPE_F32, SHAPE(op_rows(x)));
    op_out(out, LAYER_NORM_RSTD, DTYPE_F32, SHAPE(op_rows(x)));
    return 0;
}

static int layer_norm_infer_grad(const struct graph *g, const struct node *n,
                                 struct value out[NODE_MAX_OUT], struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, LAYER_NORM_GRAD_X, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, LAYER_NORM_GRAD_X);
    if ((rc = op_want_shape(g, n, LAYER_NORM_GRAD_DY, *x, err)) < 0 ||
        (rc = op_want_shape(g, n, LAYER_NORM_GRAD_WEIGHT, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, LAYER_NORM_GRAD_MEAN, SHAPE(op_rows(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, LAYER_NORM_GRAD_RSTD, SHAPE(op_rows(x)), err)) < 0)
        return rc;
    op_out(out, LAYER_NORM_GRAD_DX, DTYPE_F32, *x);
    op_out(out, LAYER_NORM_GRAD_DWEIGHT, DTYPE_F32, SHAPE(op_last_dim(x)));
    op_out(out, LAYER_NORM_GRAD_DBIAS, DTYPE_F32, SHAPE(op_last_dim(x)));
    return 0;
}

static int layer_norm_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                               const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[LAYER_NORM_GRAD_X] = n->in[LAYER_NORM_X],
                      [LAYER_NORM_GRAD_DY] = dout[LAYER_NORM_Y],
                      [LAYER_NORM_GRAD_WEIGHT] = n->in[LAYER_NORM_WEIGHT],
                      [LAYER_NORM_GRAD_MEAN] = n->out[LAYER_NORM_MEAN],
                      [LAYER_NORM_GRAD_RSTD] = n->out[LAYER_NORM_RSTD]};
    int out[] = {[LAYER_NORM_GRAD_DX] = op_grad_wanted(g, n, want, LAYER_NORM_X),
                 [LAYER_NORM_GRAD_DWEIGHT] = op_grad_wanted(g, n, want, LAYER_NORM_WEIGHT),
                 [LAYER_NORM_GRAD_DBIAS] = op_grad_wanted(g, n, want, LAYER_NORM_BIAS)};
    int rc = graph_node(g, OP_layer_norm_grad, &n->attr, in, 5, out, op_name(g, n, "grad"), err);

    din[LAYER_NORM_X] = out[LAYER_NORM_GRAD_DX];
    din[LAYER_NORM_WEIGHT] = out[LAYER_NORM_GRAD_DWEIGHT];
    din[LAYER_NORM_BIAS] = out[LAYER_NORM_GRAD_DBIAS];
    return rc;
}

const struct op_def op_layer_norm = {
    .infer = layer_norm_infer,
    .grad = layer_norm_backward,
    OP_SIGNATURE(layer_norm),
    .flags = OP_ROWS | OP_CHEAP,
    .typed_in = 1u << LAYER_NORM_X,
    .typed_out = 1u << LAYER_NORM_Y,
};

const struct op_def op_layer_norm_grad = {
    .infer = layer_norm_infer_grad,
    OP_SIGNATURE(layer_norm_grad),
    .flags = OP_ROWS,
    .typed_in = 1u << LAYER_NORM_GRAD_X | 1u << LAYER_NORM_GRAD_DY,
    .typed_out = 1u << LAYER_NORM_GRAD_DX,
    .wide_out = 1u << LAYER_NORM_GRAD_DWEIGHT | 1u << LAYER_NORM_GRAD_DBIAS,
};
