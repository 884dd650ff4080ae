/* rotary - rotary positions: pairs of numbers of a row are turned by the angles of the row's place.
 *
 * rotary  x [..,R], cos F32 [T,R], sin F32 [T,R] -> y (may be in place of x)
 *   Row r of x, of all rows in order, is at place t = (r / attr.rotary.inner) mod T: x is
 *   [N,T,H,R] with H rows inside, or [N,H,T,R] with one.  For each pair of numbers a, b of a row
 *     y[a] = x[a] * cos[t,a] - x[b] * sin[t,a]
 *     y[b] = x[b] * cos[t,b] + x[a] * sin[t,b]
 *   The pairs are i and R/2 + i, as in Llama of transformers, or with attr.rotary.pairs 2i and
 *   2i + 1, as in GPT-J.  With attr.rotary.back the turn is that of the gradient,
 *     y[a] = x[a] * cos[t,a] + x[b] * sin[t,b]
 *     y[b] = x[b] * cos[t,b] - x[a] * sin[t,a]
 *   cos and sin have no gradient. */
#include "op/infer.h"

static int rotary_check(const struct graph *g, const struct node *n, struct err *err)
{
    const struct shape *x = op_shape(g, n, ROTARY_X), *cos = op_shape(g, n, ROTARY_COS);
    const int64_t width = x->n ? x->dim[x->n - 1] : 0, inner = n->attr.rotary.inner;
    const int64_t rows = width ? shape_elements(x) / width : 0;

    if (width < 2 || width % 2 || width != cos->dim[1])
        return op_fail(n, err, "x has rows of %lld numbers and cos of %lld, want one even number",
                       (long long)width, (long long)cos->dim[1]);
    if (inner < 1 || cos->dim[0] < 1 || rows % inner || rows / inner % cos->dim[0])
        return op_fail(n, err, "x has %lld rows, want a multiple of %lld places of %lld rows",
                       (long long)rows, (long long)cos->dim[0], (long long)inner);
    return 0;
}

static int rotary_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    int rc = op_want(g, n, ROTARY_X, DTYPE_F32, -1, err);

    if (rc < 0 || (rc = op_want(g, n, ROTARY_COS, DTYPE_F32, 2, err)) < 0 ||
        (rc = op_want_shape(g, n, ROTARY_SIN, *op_shape(g, n, ROTARY_COS), err)) < 0 ||
        (rc = rotary_check(g, n, err)) < 0)
        return rc;
    op_out(out, ROTARY_Y, DTYPE_F32, *op_shape(g, n, ROTARY_X));
    return 0;
}

static int rotary_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[ROTARY_X] = dout[ROTARY_Y],
                      [ROTARY_COS] = n->in[ROTARY_COS],
                      [ROTARY_SIN] = n->in[ROTARY_SIN]};
    union node_attr attr = n->attr;

    if (!want[ROTARY_X])
        return 0;
    attr.rotary.back = !attr.rotary.back;
    din[ROTARY_X] = op_grad_out(g, n->in[ROTARY_X]);
    return graph_node(g, OP_rotary, &attr, in, 3, &din[ROTARY_X], op_name(g, n, "grad"), err);
}

const struct op_def op_rotary = {
    .infer = rotary_infer,
    .grad = rotary_backward,
    OP_SIGNATURE(rotary),
    .flags = OP_ROWS | OP_INPLACE | OP_CHEAP,
    .typed_in = 1u << ROTARY_X,
    .typed_out = 1u << ROTARY_Y,
};
