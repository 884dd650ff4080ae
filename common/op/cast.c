/* cast - the same numbers in another type.
 *
 * cast  x, F32, BF16, F16 or I32 -> y of type attr.cast.to, one of these four, but not from I32 to
 *       I32
 *   Numbers are rounded to the nearest, ties to even; a number that is too large becomes infinite
 *   (tensor/half.h).  To I32 they are cut towards 0; what does not fit becomes the nearest number
 * of I32 and NaN becomes 0.  From I32 y is x - attr.cast.minus, a difference that is made before it
 * is rounded: its sign and a 0 are right in every type, so that comparisons are.  The gradient is a
 * cast back; integers have none. */
#include "op/infer.h"
#include "tensor/half.h"

static int cast_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const struct value *x = op_in(g, n, CAST_X);

    const int from_int = x->dtype == DTYPE_I32, to_int = n->attr.cast.to == DTYPE_I32;

    if ((!from_int && !dtype_is_real(x->dtype)) || (!to_int && !dtype_is_real(n->attr.cast.to)) ||
        (from_int && to_int))
        return op_fail(n, err, "from %s to %s: want F32, BF16, F16 or, on one side, I32",
                       dtype_name(x->dtype), dtype_name(n->attr.cast.to));
    op_out(out, CAST_Y, n->attr.cast.to, x->shape);
    return 0;
}

static int cast_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                         const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const union node_attr attr = {.cast.to = op_in(g, n, CAST_X)->dtype};

    if (!want[CAST_X] || n->attr.cast.to == DTYPE_I32)
        return 0;
    din[CAST_X] = NODE_NEW_OUT;
    return graph_node(g, OP_cast, &attr, dout, 1, &din[CAST_X], op_name(g, n, "grad"), err);
}

const struct op_def op_cast = {
    .infer = cast_infer,
    .grad = cast_backward,
    OP_SIGNATURE(cast),
    .flags = OP_ROWS | OP_CHEAP,
};
