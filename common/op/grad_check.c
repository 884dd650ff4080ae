/* grad_check - the square of the reduced gradient's norm, and whether the gradient is finite; and
 * the sum of such results for several parts of a gradient.
 *
 * grad_check  grad [n], F32 or BF16 -> check F64 [2]
 *   check[0] = sum of squares in double, check[1] = 1 if any element is not finite, else 0.
 *   Every rank must get the same bits, whatever its threads and instruction set.  So n alone fixes
 *   the order of addition: blocks of one size, summed in order, without contraction.
 *
 * check_sum  checks F64 [n,2] -> check F64 [2]
 *   check[k] = the sum of checks[i,k] over all i, added one after another in the order of i.  So
 *   check[1] is the number of parts that are not finite. */
#include "op/infer.h"

static int grad_check_infer(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want(g, n, GRAD_CHECK_GRAD, DTYPE_F32, 1, err);

    if (rc == 0)
        op_out(out, GRAD_CHECK_CHECK, DTYPE_F64, SHAPE(2));
    return rc;
}

static int grad_check_infer_sum(const struct graph *g, const struct node *n,
                                struct value out[NODE_MAX_OUT], struct err *err)
{
    const int rc = op_want(g, n, CHECK_SUM_CHECKS, DTYPE_F64, 2, err);

    if (rc == 0 && op_last_dim(op_shape(g, n, CHECK_SUM_CHECKS)) != 2)
        return op_fail(n, err, "checks has rows of %lld numbers, want 2",
                       (long long)op_last_dim(op_shape(g, n, CHECK_SUM_CHECKS)));
    if (rc == 0)
        op_out(out, CHECK_SUM_CHECK, DTYPE_F64, SHAPE(2));
    return rc;
}

const struct op_def op_grad_check = {
    .infer = grad_check_infer,
    OP_SIGNATURE(grad_check),
    .typed_in = 1u << GRAD_CHECK_GRAD,
};

const struct op_def op_check_sum = {
    .infer = grad_check_infer_sum,
    OP_SIGNATURE(check_sum),
};
