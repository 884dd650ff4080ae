/* dropout - zeroes elements or whole samples at random and scales the rest, as torch.nn.Dropout and
 * torchvision's StochasticDepth (mode "row") in training.
 *
 * dropout  x [N*rows,..], scalars -> y (may be in place of x)
 *   attr.dropout: p in [0,1), tag in [0, 65536), rows, of which one sample has so many (0 means 1),
 *   and whole: 1 if all elements of a sample share one draw.  Let L be the number of elements of
 * one sample, i the index of an element in x, and e = scalars.first_position * L + i its index in
 * the global batch; if `whole`, e = first_position + floor(i / L), the index of its sample.  The
 * random word u is word (e & 3) of rng_draw(seed, RNG_DROPOUT, step, (tag << 40) + (e >> 2)), and y
 * = rng_to_unit(u) >= p ? x * (1/(1-p)) : 0, with 1/(1-p) in float. The result is the same on all
 * ranks and backends.  The gradient is the same node, applied to dy. */
#include "op/infer.h"

static int dropout_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    const float p = n->attr.dropout.p;
    const int64_t tag = n->attr.dropout.tag;
    int rc;

    if (!(p >= 0 && p < 1))
        return op_fail(n, err, "probability %g must be in [0, 1)", (double)p);
    if (tag < 0 || tag >= 65536)
        return op_fail(n, err, "tag %lld must be in [0, 65536)", (long long)tag);
    rc = op_want(g, n, DROPOUT_X, DTYPE_F32, -1, err);
    if (rc < 0)
        return rc;
    if (n->attr.dropout.rows < 0 ||
        (n->attr.dropout.rows > 0 && op_shape(g, n, DROPOUT_X)->dim[0] % n->attr.dropout.rows))
        return op_fail(n, err, "x has %lld rows, want a multiple of the %lld of one sample",
                       (long long)op_shape(g, n, DROPOUT_X)->dim[0],
                       (long long)n->attr.dropout.rows);
    op_out(out, DROPOUT_Y, DTYPE_F32, *op_shape(g, n, DROPOUT_X));
    return 0;
}

static int dropout_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                            const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[DROPOUT_X] = dout[DROPOUT_Y], [DROPOUT_SCALARS] = n->in[DROPOUT_SCALARS]};

    (void)want;
    din[DROPOUT_X] = op_grad_out(g, n->in[DROPOUT_X]);
    return graph_node(g, OP_dropout, &n->attr, in, 2, &din[DROPOUT_X], op_name(g, n, "grad"), err);
}

const struct op_def op_dropout = {
    .infer = dropout_infer,
    .grad = dropout_backward,
    OP_SIGNATURE(dropout),
    .flags = OP_ROWS | OP_INPLACE | OP_CHEAP,
    .typed_in = 1u << DROPOUT_X,
    .typed_out = 1u << DROPOUT_Y,
};
