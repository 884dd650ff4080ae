/* integers - exact arithmetic of whole numbers: positions and masks that are computed from the
 * samples.  No precision changes their type.
 *
 * integers  a I32 [..], b? I32 of a's shape -> y I32, attr.integers.kind of a and b
 *   Without b the second operand is attr.integers.number.  A result that does not fit becomes the
 *   nearest number of I32, so that the sign of a difference is always right.  INTEGERS_PREFIX adds
 *   up along the last dimension, as torch.cumsum, each sum limited in this way; it has no second
 *   operand.
 *   There is no gradient. */
#include "op/infer.h"

static int integers_infer(const struct graph *g, const struct node *n,
                          struct value out[NODE_MAX_OUT], struct err *err)
{
    const int kind = (int)n->attr.integers.kind;
    int rc = op_want(g, n, INTEGERS_A, DTYPE_I32, -1, err);

    if (rc == 0 && (kind < 0 || kind >= INTEGERS_COUNT))
        rc = op_fail(n, err, "there is no kind %d", kind);
    if (rc == 0 && kind == INTEGERS_PREFIX && op_shape(g, n, INTEGERS_A)->n == 0)
        rc = op_fail(n, err, "a sum along a row wants a dimension");
    if (rc == 0 && op_has(n, INTEGERS_B) && kind == INTEGERS_PREFIX)
        rc = op_fail(n, err, "a sum along a row has one operand");
    if (rc == 0 && op_has(n, INTEGERS_B))
        rc = op_want(g, n, INTEGERS_B, DTYPE_I32, -1, err);
    if (rc == 0 && op_has(n, INTEGERS_B) &&
        !shape_equal(op_shape(g, n, INTEGERS_B), op_shape(g, n, INTEGERS_A)))
        rc = op_fail(n, err, "a and b have different shapes");
    if (rc == 0)
        op_out(out, INTEGERS_Y, DTYPE_I32, *op_shape(g, n, INTEGERS_A));
    return rc;
}

const struct op_def op_integers = {
    .infer = integers_infer,
    OP_SIGNATURE(integers),
    .flags = OP_ROWS,
};
