/* reduce - sum, mean, largest, smallest element or variance over any dimensions.
 *
 * reduce  x [..] -> y:  over the dimensions in attr.reduce.axes, which y drops or, with
 *         attr.reduce.keep, keeps with extent 1.
 *   sum, mean
 *   max, min  a NaN is the result where there is one.  The elements that are equal to the result
 *             share its gradient, as with torch.amax.
 *   var       the mean of the squared differences from the mean; the divisor is the number of
 *             elements - attr.reduce.correction (torch.var: 1).
 * Without any element the result is 0. */
#include "op/compose.h"
#include "op/infer.h"

static int reduce_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const unsigned axes = n->attr.reduce.axes;
    const struct shape *x;
    struct shape y = {0};
    int rc = op_want(g, n, REDUCE_X, DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    x = op_shape(g, n, REDUCE_X);
    if (axes >> x->n || n->attr.reduce.kind > REDUCE_VAR)
        return op_fail(n, err, "x has %d dimensions, and dimension %d is to be reduced by %d", x->n,
                       31 - __builtin_clz(axes | 1), (int)n->attr.reduce.kind);
    for (int d = 0; d < x->n; d++)
        if (n->attr.reduce.keep || !(axes >> d & 1))
            y.dim[y.n++] = axes >> d & 1 ? 1 : x->dim[d];
    op_out(out, REDUCE_Y, DTYPE_F32, y);
    return 0;
}

static int64_t n_reduced(const struct shape *x, unsigned axes)
{
    int64_t n = 1;

    for (int d = 0; d < x->n; d++)
        if (axes >> d & 1)
            n *= x->dim[d];
    return n;
}

/* dx where x equals y, divided among all such elements. */
static int grad_of_extreme(struct compose *c, int x, int y, int dy, unsigned axes)
{
    const int hits = compose_elementwise(c, EW_EQ, x, y);
    const int count = compose_reduce(c, REDUCE_SUM, hits, axes, 1);

    return compose_elementwise(c, EW_MUL, hits, compose_elementwise(c, EW_DIV, dy, count));
}

/* dx = dy * 2 (x - mean) / divisor */
static int grad_of_variance(struct compose *c, int x, int dy, unsigned axes, float divisor)
{
    const int mean = compose_reduce(c, REDUCE_MEAN, x, axes, 1);
    const int slope = compose_constants(c, EW_AFFINE, dy, 2 / divisor, 0);

    return compose_elementwise(c, EW_MUL, compose_elementwise(c, EW_SUB, x, mean), slope);
}

static int reduce_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                           const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    struct compose c = {.g = g, .name = op_name(g, n, "grad"), .err = err};
    const struct shape shape = *op_shape(g, n, REDUCE_X);
    const unsigned axes = n->attr.reduce.axes;
    const float elements = (float)n_reduced(&shape, axes);
    const int x = n->in[REDUCE_X];
    int dy = compose_restore(&c, dout[REDUCE_Y], &shape, axes);

    (void)want;
    switch (n->attr.reduce.kind) {
    case REDUCE_MAX:
    case REDUCE_MIN:
        din[REDUCE_X] =
            grad_of_extreme(&c, x, compose_restore(&c, n->out[REDUCE_Y], &shape, axes), dy, axes);
        return c.rc;
    case REDUCE_VAR:
        din[REDUCE_X] =
            grad_of_variance(&c, x, dy, axes, elements - (float)n->attr.reduce.correction);
        return c.rc;
    case REDUCE_MEAN:
        dy = compose_constants(&c, EW_AFFINE, dy, 1 / elements, 0);
        break;
    case REDUCE_SUM:
        break;
    }
    din[REDUCE_X] = compose_expand(&c, dy, shape);
    return c.rc;
}

const struct op_def op_reduce = {
    .infer = reduce_infer,
    .grad = reduce_backward,
    OP_SIGNATURE(reduce),
    .flags = OP_ROWS,
    .typed_in = 1u << REDUCE_X,
    .typed_out = 1u << REDUCE_Y,
};
