/* batch_norm - normalisation by the statistics of the whole batch, over all ranks if wanted.
 *
 * Let m = running_mean and v = running_var (before this step), x [..,C] with any number of rows,
 * eps and momentum from attr.norm.  In training:
 *
 * batch_norm_stats       in: 0 x  1 m [C]           out: 0 sums F64 [2C+1]
 *   sums[c] = sum of (x - m[c]), sums[C+c] = sum of (x - m[c])^2, in double, over this rank's rows;
 *   sums[2C] = number of rows.  (Shifted by m so that the variance does not cancel.)
 * allreduce              sums, in place, if attr.norm.sync: all ranks then hold the global sums.
 * batch_norm             in: 0 x  1 sums  2 weight [C]  3 bias [C]  4 m  5 v
 *                        out: 0 y  1 next m [C]  2 next v [C]
 *   n = sums[2C];  mean = m + sums[c]/n;  var = sums[C+c]/n - (sums[c]/n)^2, at least 0;
 *   y = (x - mean) / sqrt(var + eps) * weight + bias;
 *   next m = (1-momentum)*m + momentum*mean;  next v likewise of var*n/(n-1) (n = 1: of var).
 *   Runs with batch 0 too: other ranks' rows still move m and v.  n = 0: next = m, v.
 * batch_norm_grad_stats  in: 0 x  1 dy  2 sums  3 m   out: 0 gsums F64 [2C]  1 dweight?  2 dbias?
 *   xhat = (x - mean) / sqrt(var + eps);  gsums[c] = sum of dy, gsums[C+c] = sum of dy*xhat over
 *   this rank's rows; dweight[c] = gsums[C+c], dbias[c] = gsums[c], as they are before any
 *   allreduce of gsums.
 * allreduce              gsums, if attr.norm.sync
 * batch_norm_grad        in: 0 x  1 dy  2 sums  3 m  4 gsums  5 weight   out: 0 dx (may be in place
 *   of dy) = weight / sqrt(var + eps) * (dy - gsums[c]/n - xhat * gsums[C+c]/n)
 *
 * batch_norm_infer       in: 0 x  1 weight  2 bias  3 m  4 v    out: 0 y (may be in place of x)
 *   y = (x - m) / sqrt(v + eps) * weight + bias */
#include "op/infer.h"

static int want_vectors(const struct graph *g, const struct node *n, int from, int to, int64_t c,
                        struct err *err)
{
    int rc = 0;

    for (int i = from; rc == 0 && i <= to; i++)
        rc = op_want_shape(g, n, i, SHAPE(c), err);
    return rc;
}

static int want_sums(const struct graph *g, const struct node *n, int i, int64_t len,
                     struct err *err)
{
    int rc = op_want(g, n, i, DTYPE_F64, 1, err);

    if (rc == 0 && op_shape(g, n, i)->dim[0] != len)
        return op_fail(n, err, "%s has %lld elements, want %lld", op_get(n->op)->in_name[i],
                       (long long)op_shape(g, n, i)->dim[0], (long long)len);
    return rc;
}

/* x, and its number of channels. */
static int want_x(const struct graph *g, const struct node *n, int64_t *c, struct err *err)
{
    int rc = op_want(g, n, 0, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    if (op_shape(g, n, 0)->n < 2)
        return op_fail(n, err, "x has no rows: want at least 2 dimensions");
    *c = op_last_dim(op_shape(g, n, 0));
    return 0;
}

static int infer_stats(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                       struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_x(g, n, &c, err)) < 0 || (rc = want_vectors(g, n, 1, 1, c, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F64, SHAPE(2 * c + 1));
    return 0;
}

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_x(g, n, &c, err)) < 0 || (rc = want_sums(g, n, 1, 2 * c + 1, err)) < 0 ||
        (rc = want_vectors(g, n, 2, 5, c, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    op_out(out, 1, DTYPE_F32, SHAPE(c));
    op_out(out, 2, DTYPE_F32, SHAPE(c));
    return 0;
}

static int infer_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                       struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_x(g, n, &c, err)) < 0 || (rc = want_vectors(g, n, 1, 4, c, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return 0;
}

/* What both gradient operators take first: x, dy, sums, m. */
static int want_grad_in(const struct graph *g, const struct node *n, int64_t *c, struct err *err)
{
    int rc;

    if ((rc = want_x(g, n, c, err)) < 0 ||
        (rc = op_want_shape(g, n, 1, *op_shape(g, n, 0), err)) < 0 ||
        (rc = want_sums(g, n, 2, 2 * *c + 1, err)) < 0)
        return rc;
    return want_vectors(g, n, 3, 3, *c, err);
}

static int infer_grad_stats(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_grad_in(g, n, &c, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F64, SHAPE(2 * c));
    op_out(out, 1, DTYPE_F32, SHAPE(c));
    op_out(out, 2, DTYPE_F32, SHAPE(c));
    return 0;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_grad_in(g, n, &c, err)) < 0 || (rc = want_sums(g, n, 4, 2 * c, err)) < 0 ||
        (rc = want_vectors(g, n, 5, 5, c, err)) < 0)
        return rc;
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return 0;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int x = n->in[0], sums = n->in[1], weight = n->in[2], mean = n->in[4], dy = dout[0];
    int out[] = {NODE_NEW_OUT, want[2] ? op_grad_out(g, weight) : NODE_NO_OUT,
                 want[3] ? op_grad_out(g, n->in[3]) : NODE_NO_OUT};
    int rc = graph_node(g, OP_batch_norm_grad_stats, &n->attr, (int[]){x, dy, sums, mean}, 4, out,
                        op_name(g, n, "grad_stats"), err);

    din[2] = out[1];
    din[3] = out[2];
    if (rc < 0 || !want[0])
        return rc;
    if (n->attr.norm.sync)
        rc = graph_node(g, OP_allreduce, NULL, &out[0], 1, NULL, op_name(g, n, "grad_sync"), err);
    if (rc < 0)
        return rc;
    din[0] = op_grad_out(g, x);
    return graph_node(g, OP_batch_norm_grad, &n->attr, (int[]){x, dy, sums, mean, out[0], weight},
                      6, &din[0], op_name(g, n, "grad"), err);
}

/* The way over the sums is part of batch_norm's gradient. */
static int grad_none(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                     const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)dout, (void)want, (void)din, (void)err;
    return 0;
}

const struct op_def op_batch_norm_stats = {
    .name = "batch_norm_stats",
    .n_in = 2,
    .n_out = 1,
    .flags = OP_ROWS,
    .typed_in = 1 << 0,
    .in_name = {"x", "running_mean"},
    .out_name = {"sums"},
    .infer = infer_stats,
    .grad = grad_none,
};

const struct op_def op_batch_norm = {
    .name = "batch_norm",
    .n_in = 6,
    .n_out = 3,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"x", "sums", "weight", "bias", "running_mean", "running_var"},
    .out_name = {"y", "next_mean", "next_var"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_batch_norm_infer = {
    .name = "batch_norm_infer",
    .n_in = 5,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1 << 0,
    .typed_out = 1 << 0,
    .in_name = {"x", "weight", "bias", "running_mean", "running_var"},
    .out_name = {"y"},
    .infer = infer_infer,
};

const struct op_def op_batch_norm_grad_stats = {
    .name = "batch_norm_grad_stats",
    .n_in = 4,
    .n_out = 3,
    .flags = OP_ROWS,
    .optional_out = 1 << 1 | 1 << 2,
    .typed_in = 1 << 0 | 1 << 1,
    .wide_out = 1 << 1 | 1 << 2,
    .in_name = {"x", "dy", "sums", "running_mean"},
    .out_name = {"gsums", "dweight", "dbias"},
    .infer = infer_grad_stats,
};

const struct op_def op_batch_norm_grad = {
    .name = "batch_norm_grad",
    .n_in = 6,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .inplace_in = 1,
    .typed_in = 1 << 0 | 1 << 1,
    .typed_out = 1 << 0,
    .in_name = {"x", "dy", "sums", "running_mean", "gsums", "weight"},
    .out_name = {"dx"},
    .infer = infer_grad,
};
