/* cast - the same numbers in another type.
 *
 * cast  x, F32, BF16 or F16 -> y of type attr.cast.to, one of these three
 *   Numbers are rounded to the nearest, ties to even; a number that is too large becomes infinite
 *   (tensor/half.h). */
#include "op/infer.h"
#include "tensor/half.h"

static int cast_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const struct value *x = op_in(g, n, CAST_X);

    if (!dtype_is_real(x->dtype) || !dtype_is_real(n->attr.cast.to))
        return op_fail(n, err, "from %s to %s: want F32, BF16 or F16", dtype_name(x->dtype),
                       dtype_name(n->attr.cast.to));
    op_out(out, CAST_Y, n->attr.cast.to, x->shape);
    return 0;
}

const struct op_def op_cast = {
    .infer = cast_infer,
    OP_SIGNATURE(cast),
    .flags = OP_ROWS,
};
