/* view - operators that move elements and compute nothing.  Elements may be of any type.
 *
 * permute     x [..] -> y:  dimension d of y is dimension attr.permute.order[d] of x
 * slice       x [..] -> y:  along attr.slice.dim the elements start, start + step ... before stop;
 *             0 <= start <= stop <= extent, step >= 1
 * slice_grad  dy [..] -> dx:  zero, but for what slice reads: attr.slice.extent is the extent of x
 * expand      x [..] -> y of attr.reshape.shape:  x is broadcast as PyTorch does it.  Dimensions
 * are aligned at the last one; an extent of 1, or a missing one, is repeated. concat      x0, x1?
 * .. [..] -> y:  the inputs one behind the other along attr.concat.dim; the other extents are equal
 *
 * A reshape is op/reshape.c, a split is several slices (op/compose.h). */
#include "op/compose.h"
#include "op/infer.h"

/* Views take any type: ask for the type that the operand has. */
static int want_any(const struct graph *g, const struct node *n, int i, struct err *err)
{
    return op_want(g, n, i, op_in(g, n, i)->dtype, -1, err);
}

static int infer_permute(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    const int *order = n->attr.permute.order;
    const struct value *x = op_in(g, n, PERMUTE_X);
    struct shape y = {.n = x->shape.n};
    unsigned seen = 0;
    int rc = want_any(g, n, PERMUTE_X, err);

    if (rc < 0)
        return rc;
    for (int d = 0; d < y.n; d++) {
        if (order[d] < 0 || order[d] >= y.n || seen >> order[d] & 1)
            return op_fail(n, err,
                           "dimension %d of y is to be dimension %d of x, want each of the "
                           "%d once",
                           d, order[d], y.n);
        seen |= 1u << order[d];
        y.dim[d] = x->shape.dim[order[d]];
    }
    op_out(out, PERMUTE_Y, x->dtype, y);
    return 0;
}

static int infer_slice(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                       struct err *err)
{
    const int64_t start = n->attr.slice.start, stop = n->attr.slice.stop, step = n->attr.slice.step;
    const struct value *x = op_in(g, n, SLICE_X);
    const int dim = n->attr.slice.dim;
    struct shape y = x->shape;
    int rc = want_any(g, n, SLICE_X, err);

    if (rc < 0)
        return rc;
    if (dim < 0 || dim >= y.n)
        return op_fail(n, err, "x has %d dimensions, and no dimension %d", y.n, dim);
    if (start < 0 || start > stop || stop > y.dim[dim] || step < 1)
        return op_fail(n, err,
                       "start %lld, stop %lld, step %lld, want 0 <= start <= stop <= %lld "
                       "and step >= 1",
                       (long long)start, (long long)stop, (long long)step, (long long)y.dim[dim]);
    y.dim[dim] = (stop - start + step - 1) / step;
    op_out(out, SLICE_Y, x->dtype, y);
    return 0;
}

static int infer_slice_grad(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    const int64_t start = n->attr.slice.start, step = n->attr.slice.step;
    const struct value *dy = op_in(g, n, SLICE_GRAD_DY);
    const int dim = n->attr.slice.dim;
    struct shape dx = dy->shape;
    int rc = want_any(g, n, SLICE_GRAD_DY, err);

    if (rc < 0)
        return rc;
    if (dim < 0 || dim >= dx.n || start < 0 || step < 1 ||
        (dx.dim[dim] > 0 && start + (dx.dim[dim] - 1) * step >= n->attr.slice.extent))
        return op_fail(n, err, "dy does not fit into a dimension %d of %lld elements", dim,
                       (long long)n->attr.slice.extent);
    dx.dim[dim] = n->attr.slice.extent;
    op_out(out, SLICE_GRAD_DX, dy->dtype, dx);
    return 0;
}

static int infer_expand(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const struct value *x = op_in(g, n, EXPAND_X);
    const struct shape *y = &n->attr.reshape.shape;
    const int missing = y->n - x->shape.n;
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];
    int fits = missing >= 0;

    for (int d = missing; fits && d < y->n; d++)
        fits = x->shape.dim[d - missing] == y->dim[d] || x->shape.dim[d - missing] == 1;
    if (!fits)
        return op_fail(n, err, "x is %s, which cannot be broadcast to %s",
                       shape_text(&x->shape, seen), shape_text(y, wanted));
    op_out(out, EXPAND_Y, x->dtype, *y);
    return 0;
}

static int infer_concat(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    const int dim = n->attr.concat.dim;
    struct shape y = *op_shape(g, n, CONCAT_X0);
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];

    if (dim < 0 || dim >= y.n)
        return op_fail(n, err, "x0 has %d dimensions, and no dimension %d", y.n, dim);
    y.dim[dim] = 0;
    for (int i = 0; i < n->n_in; i++) {
        struct shape x;

        if (!op_has(n, i))
            continue;
        x = *op_shape(g, n, i);
        if (x.n == y.n) {
            y.dim[dim] += x.dim[dim];
            x.dim[dim] = y.dim[dim];
        }
        if (!shape_equal(&x, &y) || op_in(g, n, i)->dtype != op_in(g, n, CONCAT_X0)->dtype)
            return op_fail(n, err, "x%d is %s %s, want that of x0, %s %s, but for dimension %d", i,
                           dtype_name(op_in(g, n, i)->dtype), shape_text(op_shape(g, n, i), seen),
                           dtype_name(op_in(g, n, CONCAT_X0)->dtype),
                           shape_text(op_shape(g, n, CONCAT_X0), wanted), dim);
    }
    op_out(out, CONCAT_Y, op_in(g, n, CONCAT_X0)->dtype, y);
    return 0;
}

static struct compose view_gradient(struct graph *g, const struct node *n, struct err *err)
{
    return (struct compose){.g = g, .name = op_name(g, n, "grad"), .err = err};
}

static int grad_permute(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                        const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    struct compose c = view_gradient(g, n, err);
    int back[SHAPE_MAX_DIMS];

    (void)want;
    for (int d = 0; d < op_shape(g, n, PERMUTE_X)->n; d++)
        back[n->attr.permute.order[d]] = d;
    din[PERMUTE_X] = compose_permute(&c, dout[PERMUTE_Y], back);
    return c.rc;
}

static int grad_slice(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                      const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    union node_attr attr = n->attr;

    (void)want;
    attr.slice.extent = op_shape(g, n, SLICE_X)->dim[attr.slice.dim];
    din[SLICE_X] = NODE_NEW_OUT;
    return graph_node(g, OP_slice_grad, &attr, dout, 1, &din[SLICE_X], op_name(g, n, "grad"), err);
}

/* As a forward operator slice_grad pads with zeros. */
static int view_grad_padded(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                            const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int64_t start = n->attr.slice.start, step = n->attr.slice.step;
    const int64_t extent = op_shape(g, n, SLICE_GRAD_DY)->dim[n->attr.slice.dim];
    struct compose c = view_gradient(g, n, err);

    (void)want;
    din[SLICE_GRAD_DY] = compose_slice(&c, dout[SLICE_GRAD_DX], n->attr.slice.dim, start,
                                       extent ? start + (extent - 1) * step + 1 : start, step);
    return c.rc;
}

static int grad_expand(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                       const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    struct compose c = view_gradient(g, n, err);

    (void)want;
    din[EXPAND_X] = compose_sum_to(&c, dout[EXPAND_Y], *op_shape(g, n, EXPAND_X));
    return c.rc;
}

static int grad_concat(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                       const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int dim = n->attr.concat.dim;
    struct compose c = view_gradient(g, n, err);
    int64_t at = 0;

    for (int i = 0; i < n->n_in; i++) {
        int64_t extent;

        if (!op_has(n, i))
            continue;
        extent = op_shape(g, n, i)->dim[dim];
        if (want[i])
            din[i] = compose_slice(&c, dout[CONCAT_Y], dim, at, at + extent, 1);
        at += extent;
    }
    return c.rc;
}

const struct op_def op_permute = {
    .infer = infer_permute,
    .grad = grad_permute,
    OP_SIGNATURE(permute),
    .typed_in = 1u << PERMUTE_X,
    .typed_out = 1u << PERMUTE_Y,
};

const struct op_def op_slice = {
    .infer = infer_slice,
    .grad = grad_slice,
    OP_SIGNATURE(slice),
    .typed_in = 1u << SLICE_X,
    .typed_out = 1u << SLICE_Y,
};

const struct op_def op_slice_grad = {
    .infer = infer_slice_grad,
    .grad = view_grad_padded,
    OP_SIGNATURE(slice_grad),
    .typed_in = 1u << SLICE_GRAD_DY,
    .typed_out = 1u << SLICE_GRAD_DX,
};

const struct op_def op_expand = {
    .infer = infer_expand,
    .grad = grad_expand,
    OP_SIGNATURE(expand),
    .typed_in = 1u << EXPAND_X,
    .typed_out = 1u << EXPAND_Y,
};

const struct op_def op_concat = {
    .infer = infer_concat,
    .grad = grad_concat,
    OP_SIGNATURE(concat),
    .typed_in = (1u << NODE_MAX_IN) - 1,
    .typed_out = 1u << CONCAT_Y,
};
