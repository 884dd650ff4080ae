/* all_rows - the rows of all ranks on each rank, for losses that compare the samples of a batch
 * with each other.
 *
 * Between these operators stands an allreduce (op/allreduce.c): each rank adds its own rows to
 * zeros, so the sum is exact and the same on any number of ranks.  G is attr.rows.all, the rows of
 * a full global batch; a rank has the rows [first, first + n) of them, first =
 * scalars.first_position.  L is the number of elements of a row.
 *
 * rows_send  x [n,..], scalars? -> v F64 [G*L]
 *   v = x at this rank's rows, and 0 elsewhere.  Without scalars n is G, and v = x.
 * rows_all   x [n,..], v F64 [G*L] -> y [G,..]
 *   y = v, rounded.  x is not read, but gets the gradient: that of this rank's rows of y, summed
 *   over all ranks.
 * rows_own   v F64 [G*L], scalars -> y of the shape attr.rows.own
 *   y = v at this rank's rows, rounded.
 *
 * rows_send runs with batch 0, too, because the others wait for this rank's zeros. */
#include "op/infer.h"

static int rows_want_sums(const struct graph *g, const struct node *n, int i, int64_t row,
                          struct err *err)
{
    int rc = op_want(g, n, i, DTYPE_F64, 1, err);

    if (rc == 0 && op_shape(g, n, i)->dim[0] != n->attr.rows.all * row)
        return op_fail(n, err, "v has %lld elements, want %lld rows of %lld",
                       (long long)op_shape(g, n, i)->dim[0], (long long)n->attr.rows.all,
                       (long long)row);
    return rc;
}

static int64_t rows_length(const struct shape *s)
{
    int64_t length = 1;

    for (int d = 1; d < s->n; d++)
        length *= s->dim[d];
    return length;
}

static int rows_want_x(const struct graph *g, const struct node *n, int i, struct err *err)
{
    const int rc = op_want(g, n, i, DTYPE_F32, -1, err);

    if (rc == 0 && op_shape(g, n, i)->dim[0] > n->attr.rows.all)
        return op_fail(n, err, "x has %lld rows, want at most the %lld of all ranks",
                       (long long)op_shape(g, n, i)->dim[0], (long long)n->attr.rows.all);
    return rc;
}

static int rows_infer_send(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    const int rc = rows_want_x(g, n, ROWS_SEND_X, err);

    if (rc < 0)
        return rc;
    if (!op_has(n, ROWS_SEND_SCALARS) && op_shape(g, n, ROWS_SEND_X)->dim[0] != n->attr.rows.all)
        return op_fail(n, err, "without scalars x has %lld rows, want all %lld",
                       (long long)op_shape(g, n, ROWS_SEND_X)->dim[0], (long long)n->attr.rows.all);
    op_out(out, ROWS_SEND_V, DTYPE_F64,
           SHAPE(n->attr.rows.all * rows_length(op_shape(g, n, ROWS_SEND_X))));
    return 0;
}

static int rows_infer_all(const struct graph *g, const struct node *n,
                          struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = rows_want_x(g, n, ROWS_ALL_X, err);
    struct shape y;

    if (rc == 0)
        rc = rows_want_sums(g, n, ROWS_ALL_V, rows_length(op_shape(g, n, ROWS_ALL_X)), err);
    if (rc < 0)
        return rc;
    y = *op_shape(g, n, ROWS_ALL_X);
    y.dim[0] = n->attr.rows.all;
    op_out(out, ROWS_ALL_Y, DTYPE_F32, y);
    return 0;
}

static int rows_infer_own(const struct graph *g, const struct node *n,
                          struct value out[NODE_MAX_OUT], struct err *err)
{
    const int rc = rows_want_sums(g, n, ROWS_OWN_V, rows_length(&n->attr.rows.own), err);

    if (rc == 0)
        op_out(out, ROWS_OWN_Y, DTYPE_F32, n->attr.rows.own);
    return rc;
}

/* The sums through which a rank's rows reach the others, and back: the gradient goes with rows_all.
 */
static int rows_send_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                              const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)dout, (void)want, (void)din, (void)err;
    return 0;
}

static int rows_all_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                             const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const union node_attr attr = {
        .rows = {.all = n->attr.rows.all, .own = *op_shape(g, n, ROWS_ALL_X)}};
    int v = NODE_NEW_OUT, rc;

    if (!want[ROWS_ALL_X])
        return 0;
    rc = graph_node(g, OP_rows_send, &attr,
                    (int[]){[ROWS_SEND_X] = dout[ROWS_ALL_Y], [ROWS_SEND_SCALARS] = NO_VALUE}, 2,
                    &v, op_name(g, n, "grad_send"), err);
    if (rc == 0)
        rc = graph_node(g, OP_allreduce, NULL, &v, 1, &v, op_name(g, n, "grad_sync"), err);
    if (rc < 0)
        return rc;
    din[ROWS_ALL_X] = op_grad_out(g, n->in[ROWS_ALL_X]);
    return graph_node(g, OP_rows_own, &attr,
                      (int[]){[ROWS_OWN_V] = v, [ROWS_OWN_SCALARS] = g->scalars}, 2,
                      &din[ROWS_ALL_X], op_name(g, n, "grad_own"), err);
}

const struct op_def op_rows_send = {
    .infer = rows_infer_send,
    .grad = rows_send_backward,
    OP_SIGNATURE(rows_send),
    .typed_in = 1u << ROWS_SEND_X,
};

const struct op_def op_rows_all = {
    .infer = rows_infer_all,
    .grad = rows_all_backward,
    OP_SIGNATURE(rows_all),
    .typed_in = 1u << ROWS_ALL_X,
    .typed_out = 1u << ROWS_ALL_Y,
};

const struct op_def op_rows_own = {
    .infer = rows_infer_own,
    OP_SIGNATURE(rows_own),
    .typed_out = 1u << ROWS_OWN_Y,
};
