/* batch_norm - normalisation by the statistics of the batch, over all ranks with attr.norm.sync.
 *
 * m = running_mean and v = running_var are those from before this step, both [C].  x [..,C] has any
 * number of rows.  eps and momentum are those of attr.norm.  In training:
 *
 * batch_norm_stats       x, running_mean -> sums F64 [2C+1]
 *   sums[c] = sum of (x - m[c]), sums[C+c] = sum of (x - m[c])^2, in double, over this rank's rows;
 *   sums[2C] = number of rows.  (x is shifted by m so that the variance does not cancel.)
 * allreduce              sums, in place, if attr.norm.sync: all ranks then hold the global sums.
 * batch_norm             x, sums, weight [C], bias [C], running_mean, running_var, add? [..,C]
 *                        -> y, next_mean [C], next_var [C]
 *   n = sums[2C];  mean = m + sums[c]/n;  var = sums[C+c]/n - (sums[c]/n)^2, at least 0;
 *   y = act((x - mean) / sqrt(var + eps) * weight + bias + add);
 *   next_mean = (1-momentum)*m + momentum*mean;
 *   next_var = (1-momentum)*v + momentum*var*n/(n-1).
 *   The node runs with batch 0, too, because other ranks' rows still move m and v.  With n <= 1 the
 *   next values are m and v: one value has no variance, and y is act(bias + add) whatever x is.
 * batch_norm_grad_stats  x, dy, sums, running_mean, weight?, bias?
 *                        -> gsums F64 [2C], dweight? [C], dbias? [C]
 *   xhat = (x - mean) / sqrt(var + eps);  gsums[c] = sum of dy, gsums[C+c] = sum of dy*xhat over
 *   this rank's rows; dweight[c] = gsums[C+c] and dbias[c] = gsums[c], as they are before any
 *   allreduce of gsums.
 * allreduce              gsums, if attr.norm.sync
 * batch_norm_grad        x, dy, sums, running_mean, gsums, weight, bias?
 *                        -> dx (may be in place of dy)
 *   dx = weight / sqrt(var + eps) * (dy - gsums[c]/n - xhat * gsums[C+c]/n)
 *
 * In evaluation:
 *
 * batch_norm_infer       x, weight, bias, running_mean, running_var, add?
 *                        -> y (may be in place of x)
 *   y = act((x - m) / sqrt(v + eps) * weight + bias + add)
 *
 * batch_norm_fold        w [C,..], b? [C], weight, bias, running_mean, running_var
 *                        -> filter [C,..], shift [C]
 *   filter[c,..] = w[c,..] * s and shift[c] = (b[c] - m[c]) * s + bias[c], s = weight / sqrt(v +
 * eps).  So a conv2d with filter and shift computes what batch_norm_infer makes of a conv2d with w
 * and b.
 *
 * act is attr.norm.act: none or relu, which keeps NaN.  program/fuse.c makes the fused forms.  With
 * relu and no add, the gradients' operators compute the relu's gradient, too: they take weight and
 * bias, compute the sign of y anew from x, and read dy as 0 where y <= 0.  A node with
 * add has no gradient: fuse.c makes it after the gradients. */
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

/* Check x and find its number of channels. */
static int batch_norm_want_x(const struct graph *g, const struct node *n, int x, int64_t *c,
                             struct err *err)
{
    int rc = op_want(g, n, x, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    if (op_shape(g, n, x)->n < 2)
        return op_fail(n, err, "x has no rows: want at least 2 dimensions");
    *c = op_last_dim(op_shape(g, n, x));
    return 0;
}

/* Check attr.norm.act, and the operand `add`, which has the shape of x. */
static int want_fused(const struct graph *g, const struct node *n, int add, struct err *err)
{
    if (n->attr.norm.act != ACT_NONE && n->attr.norm.act != ACT_RELU)
        return op_fail(n, err, "activation %d is neither none nor relu", (int)n->attr.norm.act);
    return op_want_shape(g, n, add, *op_shape(g, n, 0), err);
}

/* With a fused relu, weight and bias must be there. */
static int want_signs(const struct graph *g, const struct node *n, int weight, int bias, int64_t c,
                      struct err *err)
{
    int rc;

    if (n->attr.norm.act != ACT_NONE && (!op_has(n, weight) || !op_has(n, bias)))
        return op_fail(n, err, "the gradient of a fused relu needs weight and bias");
    rc = op_want_shape(g, n, weight, SHAPE(c), err);
    if (rc < 0)
        return rc;
    return op_want_shape(g, n, bias, SHAPE(c), err);
}

static int infer_stats(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                       struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = batch_norm_want_x(g, n, BATCH_NORM_STATS_X, &c, err)) < 0 ||
        (rc = op_want_shape(g, n, BATCH_NORM_STATS_RUNNING_MEAN, SHAPE(c), err)) < 0)
        return rc;
    op_out(out, BATCH_NORM_STATS_SUMS, DTYPE_F64, SHAPE(2 * c + 1));
    return 0;
}

static int batch_norm_infer_forward(const struct graph *g, const struct node *n,
                                    struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = batch_norm_want_x(g, n, BATCH_NORM_X, &c, err)) < 0 ||
        (rc = want_sums(g, n, BATCH_NORM_SUMS, 2 * c + 1, err)) < 0 ||
        (rc = want_vectors(g, n, BATCH_NORM_WEIGHT, BATCH_NORM_RUNNING_VAR, c, err)) < 0 ||
        (rc = want_fused(g, n, BATCH_NORM_ADD, err)) < 0)
        return rc;
    op_out(out, BATCH_NORM_Y, DTYPE_F32, *op_shape(g, n, BATCH_NORM_X));
    op_out(out, BATCH_NORM_NEXT_MEAN, DTYPE_F32, SHAPE(c));
    op_out(out, BATCH_NORM_NEXT_VAR, DTYPE_F32, SHAPE(c));
    return 0;
}

static int batch_norm_infer_running(const struct graph *g, const struct node *n,
                                    struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = batch_norm_want_x(g, n, BATCH_NORM_INFER_X, &c, err)) < 0 ||
        (rc = want_vectors(g, n, BATCH_NORM_INFER_WEIGHT, BATCH_NORM_INFER_RUNNING_VAR, c, err)) <
            0 ||
        (rc = want_fused(g, n, BATCH_NORM_INFER_ADD, err)) < 0)
        return rc;
    op_out(out, BATCH_NORM_INFER_Y, DTYPE_F32, *op_shape(g, n, BATCH_NORM_INFER_X));
    return 0;
}

static int infer_fold(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int64_t c;
    int rc = op_want(g, n, BATCH_NORM_FOLD_W, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    c = op_shape(g, n, BATCH_NORM_FOLD_W)->dim[0];
    rc = want_vectors(g, n, BATCH_NORM_FOLD_B, BATCH_NORM_FOLD_RUNNING_VAR, c, err);
    if (rc < 0)
        return rc;
    op_out(out, BATCH_NORM_FOLD_FILTER, DTYPE_F32, *op_shape(g, n, BATCH_NORM_FOLD_W));
    op_out(out, BATCH_NORM_FOLD_SHIFT, DTYPE_F32, SHAPE(c));
    return 0;
}

/* Both gradient operators start with the same inputs: x, dy, sums, running_mean. */
_Static_assert((int)BATCH_NORM_GRAD_STATS_X == (int)BATCH_NORM_GRAD_X &&
                   (int)BATCH_NORM_GRAD_STATS_DY == (int)BATCH_NORM_GRAD_DY &&
                   (int)BATCH_NORM_GRAD_STATS_SUMS == (int)BATCH_NORM_GRAD_SUMS &&
                   (int)BATCH_NORM_GRAD_STATS_RUNNING_MEAN == (int)BATCH_NORM_GRAD_RUNNING_MEAN,
               "want_grad_in serves both");

static int want_grad_in(const struct graph *g, const struct node *n, int64_t *c, struct err *err)
{
    int rc;

    if ((rc = batch_norm_want_x(g, n, BATCH_NORM_GRAD_X, c, err)) < 0 ||
        (rc = op_want_shape(g, n, BATCH_NORM_GRAD_DY, *op_shape(g, n, BATCH_NORM_GRAD_X), err)) <
            0 ||
        (rc = want_sums(g, n, BATCH_NORM_GRAD_SUMS, 2 * *c + 1, err)) < 0)
        return rc;
    return op_want_shape(g, n, BATCH_NORM_GRAD_RUNNING_MEAN, SHAPE(*c), err);
}

static int infer_grad_stats(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_grad_in(g, n, &c, err)) < 0 ||
        (rc = want_signs(g, n, BATCH_NORM_GRAD_STATS_WEIGHT, BATCH_NORM_GRAD_STATS_BIAS, c, err)) <
            0)
        return rc;
    op_out(out, BATCH_NORM_GRAD_STATS_GSUMS, DTYPE_F64, SHAPE(2 * c));
    op_out(out, BATCH_NORM_GRAD_STATS_DWEIGHT, DTYPE_F32, SHAPE(c));
    op_out(out, BATCH_NORM_GRAD_STATS_DBIAS, DTYPE_F32, SHAPE(c));
    return 0;
}

static int batch_norm_infer_grad(const struct graph *g, const struct node *n,
                                 struct value out[NODE_MAX_OUT], struct err *err)
{
    int64_t c = 0;
    int rc;

    if ((rc = want_grad_in(g, n, &c, err)) < 0 ||
        (rc = want_sums(g, n, BATCH_NORM_GRAD_GSUMS, 2 * c, err)) < 0 ||
        (rc = op_want_shape(g, n, BATCH_NORM_GRAD_WEIGHT, SHAPE(c), err)) < 0 ||
        (rc = want_signs(g, n, BATCH_NORM_GRAD_WEIGHT, BATCH_NORM_GRAD_BIAS, c, err)) < 0)
        return rc;
    op_out(out, BATCH_NORM_GRAD_DX, DTYPE_F32, *op_shape(g, n, BATCH_NORM_GRAD_X));
    return 0;
}

static int batch_norm_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                               const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int x = n->in[BATCH_NORM_X], dy = dout[BATCH_NORM_Y];
    const int sums = n->in[BATCH_NORM_SUMS], mean = n->in[BATCH_NORM_RUNNING_MEAN];
    const int has_act = n->attr.norm.act != ACT_NONE;
    const int weight = n->in[BATCH_NORM_WEIGHT], bias = n->in[BATCH_NORM_BIAS];
    const int in[] = {[BATCH_NORM_GRAD_STATS_X] = x,
                      [BATCH_NORM_GRAD_STATS_DY] = dy,
                      [BATCH_NORM_GRAD_STATS_SUMS] = sums,
                      [BATCH_NORM_GRAD_STATS_RUNNING_MEAN] = mean,
                      [BATCH_NORM_GRAD_STATS_WEIGHT] = has_act ? weight : NO_VALUE,
                      [BATCH_NORM_GRAD_STATS_BIAS] = has_act ? bias : NO_VALUE};
    int out[] = {[BATCH_NORM_GRAD_STATS_GSUMS] = NODE_NEW_OUT,
                 [BATCH_NORM_GRAD_STATS_DWEIGHT] = op_grad_wanted(g, n, want, BATCH_NORM_WEIGHT),
                 [BATCH_NORM_GRAD_STATS_DBIAS] = op_grad_wanted(g, n, want, BATCH_NORM_BIAS)};
    int *gsums = &out[BATCH_NORM_GRAD_STATS_GSUMS];
    int rc;

    if (op_has(n, BATCH_NORM_ADD))
        return op_fail(n, err, "batch norm with a fused sum has no gradient");
    rc = graph_node(g, OP_batch_norm_grad_stats, &n->attr, in, 6, out, op_name(g, n, "grad_stats"),
                    err);

    din[BATCH_NORM_WEIGHT] = out[BATCH_NORM_GRAD_STATS_DWEIGHT];
    din[BATCH_NORM_BIAS] = out[BATCH_NORM_GRAD_STATS_DBIAS];
    if (rc < 0 || !want[BATCH_NORM_X])
        return rc;
    if (n->attr.norm.sync)
        rc = graph_node(g, OP_allreduce, NULL, gsums, 1, NULL, op_name(g, n, "grad_sync"), err);
    if (rc < 0)
        return rc;
    din[BATCH_NORM_X] = op_grad_out(g, x);
    return graph_node(g, OP_batch_norm_grad, &n->attr,
                      (int[]){[BATCH_NORM_GRAD_X] = x,
                              [BATCH_NORM_GRAD_DY] = dy,
                              [BATCH_NORM_GRAD_SUMS] = sums,
                              [BATCH_NORM_GRAD_RUNNING_MEAN] = mean,
                              [BATCH_NORM_GRAD_GSUMS] = *gsums,
                              [BATCH_NORM_GRAD_WEIGHT] = weight,
                              [BATCH_NORM_GRAD_BIAS] = has_act ? bias : NO_VALUE},
                      7, &din[BATCH_NORM_X], op_name(g, n, "grad"), err);
}

/* batch_norm's gradient includes the part that goes through the sums. */
static int grad_none(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                     const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)dout, (void)want, (void)din, (void)err;
    return 0;
}

const struct op_def op_batch_norm_stats = {
    .infer = infer_stats,
    .grad = grad_none,
    OP_SIGNATURE(batch_norm_stats),
    .flags = OP_ROWS,
    .typed_in = 1u << BATCH_NORM_STATS_X,
};

const struct op_def op_batch_norm = {
    .infer = batch_norm_infer_forward,
    .grad = batch_norm_backward,
    OP_SIGNATURE(batch_norm),
    .flags = OP_CHEAP,
    .typed_in = 1u << BATCH_NORM_X | 1u << BATCH_NORM_ADD,
    .typed_out = 1u << BATCH_NORM_Y,
};

const struct op_def op_batch_norm_infer = {
    .infer = batch_norm_infer_running,
    OP_SIGNATURE(batch_norm_infer),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1u << BATCH_NORM_INFER_X | 1u << BATCH_NORM_INFER_ADD,
    .typed_out = 1u << BATCH_NORM_INFER_Y,
};

const struct op_def op_batch_norm_fold = {
    .infer = infer_fold,
    OP_SIGNATURE(batch_norm_fold),
    .typed_in = 1u << BATCH_NORM_FOLD_W | 1u << BATCH_NORM_FOLD_B,
    .typed_out = 1u << BATCH_NORM_FOLD_FILTER | 1u << BATCH_NORM_FOLD_SHIFT,
};

const struct op_def op_batch_norm_grad_stats = {
    .infer = infer_grad_stats,
    OP_SIGNATURE(batch_norm_grad_stats),
    .flags = OP_ROWS,
    .typed_in = 1u << BATCH_NORM_GRAD_STATS_X | 1u << BATCH_NORM_GRAD_STATS_DY,
    .wide_out = 1u << BATCH_NORM_GRAD_STATS_DWEIGHT | 1u << BATCH_NORM_GRAD_STATS_DBIAS,
};

const struct op_def op_batch_norm_grad = {
    .infer = batch_norm_infer_grad,
    OP_SIGNATURE(batch_norm_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .inplace_in = BATCH_NORM_GRAD_DY,
    .typed_in = 1u << BATCH_NORM_GRAD_X | 1u << BATCH_NORM_GRAD_DY,
    .typed_out = 1u << BATCH_NORM_GRAD_DX,
};
