/* allreduce - sums a small vector of doubles over all ranks, in place, between two kernels.
 *
 * allreduce  v F64 [n] -> v, updated in place
 * The program makes a SYNC stage of the node, and the engine runs that stage. */
#include "op/infer.h"

static int allreduce_infer(const struct graph *g, const struct node *n,
                           struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want(g, n, ALLREDUCE_V, DTYPE_F64, 1, err);

    if (rc == 0)
        op_out(out, ALLREDUCE_NEW_V, DTYPE_F64, *op_shape(g, n, ALLREDUCE_V));
    return rc;
}

static int allreduce_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                              const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)g, (void)n, (void)dout, (void)want, (void)din, (void)err;
    return 0; /* v is batch norm's statistics; op/batch_norm.c's gradient includes their part */
}

const struct op_def op_allreduce = {
    .infer = allreduce_infer,
    .grad = allreduce_backward,
    OP_SIGNATURE(allreduce),
    .flags = OP_ENGINE,
};
