/* layer_norm - normalisation of each row (the last dimension), as torch.nn.LayerNorm(C).
 *
 * layer_norm       in: 0 x [..,C]  1 weight [C]  2 bias [C]
 *                  out: 0 y  1 mean? [rows]  2 rstd? [rows]
 *   mean and (biased) variance of a row;  rstd = 1/sqrt(var + attr.norm.eps);
 *   y = (x - mean) * rstd * weight + bias.
 * layer_norm_grad  in: 0 x  1 dy  2 weight  3 mean  4 rstd
 *                  out: 0 dx?  1 dweight? [C]  2 dbias? [C]
 *   xhat = (x - mean)*rstd, d = dy*weight;  dx = rstd * (d - avg(d) - xhat * avg(d*xhat)) with
 *   averages over the row;  dweight = sum over rows of dy*xhat;  dbias = sum over rows of dy. */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, 0);
    if ((rc = op_want_shape(g, n, 1, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, 2, SHAPE(op_last_dim(x)), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *x);
    op_out(out, 1, DTYPE_F32, SHAPE(op_rows(x)));
    op_out(out, 2, DTYPE_F32, SHAPE(op_rows(x)));
    return 0;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const struct shape *x;
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, 0);
    if ((rc = op_want_shape(g, n, 1, *x, err)) < 0 ||
        (rc = op_want_shape(g, n, 2, SHAPE(op_last_dim(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, 3, SHAPE(op_rows(x)), err)) < 0 ||
        (rc = op_want_shape(g, n, 4, SHAPE(op_rows(x)), err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *x);
    op_out(out, 1, DTYPE_F32, SHAPE(op_last_dim(x)));
    op_out(out, 2, DTYPE_F32, SHAPE(op_last_dim(x)));
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {n->in[0], dout[0], n->in[1], n->out[1], n->out[2]};

    for (int i = 0; i < 3; i++)
        din[i] = want[i] ? op_grad_out(g, n->in[i]) : NODE_NO_OUT;
    return graph_node(g, OP_layer_norm_grad, &n->attr, in, 5, din, op_name(g, n, "grad"), err);
}

const struct op_def op_layer_norm = {
    .name = "layer_norm",
    .n_in = 3,
    .n_out = 3,
    .flags = OP_ROWS,
    .optional_out = 1 << 1 | 1 << 2,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"x", "weight", "bias"},
    .out_name = {"y", "mean", "rstd"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .n_in = 5,
    .n_out = 3,
    .flags = OP_ROWS,
    .optional_out = 1 << 0 | 1 << 1 | 1 << 2,
    .typed_in = 1 << 0 | 1 << 1,
    .typed_out = 1 << 0,
    .wide_out = 1 << 1 | 1 << 2,
    .in_name = {"x", "dy", "weight", "mean", "rstd"},
    .out_name = {"dx", "dweight", "dbias"},
    .infer = infer_grad,
};
