/* gather - rows of a table, by number: a batch out of a data set that lies where kernels run.
 *
 * gather  in: 0 table [M,..] F32 or I32  1 index I64 [N], each in [0, M)     out: 0 y [N,..]
 *   y[i] = table[index[i]], bit for bit; the dtype is the table's. */
#include "op/infer.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    const enum dtype dtype = op_in(g, n, 0)->dtype;
    struct shape shape = *op_shape(g, n, 0);
    int rc;

    if ((rc = op_want(g, n, 0, dtype == DTYPE_I32 ? DTYPE_I32 : DTYPE_F32, -1, err)) < 0 ||
        (rc = op_want(g, n, 1, DTYPE_I64, 1, err)) < 0)
        return rc;
    shape.dim[0] = op_shape(g, n, 1)->dim[0];
    op_out(out, 0, dtype, shape);
    return 0;
}

const struct op_def op_gather = {
    .name = "gather",
    .n_in = 2,
    .n_out = 1,
    .flags = OP_ROWS,
    .in_name = {"table", "index"},
    .out_name = {"y"},
    .infer = infer,
};
