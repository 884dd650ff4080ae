/* gather - rows of a table, by number: a batch out of a data set that lies where kernels run.
 *
 * gather  in: 0 table [M,..] F32  1 index I64 [N], each in [0, M)  2 labels? I32 [M]
 *         out: 0 y [N,..] = table[index[i]]  1 picked [N] = labels[index[i]], if there are labels
 *   bit for bit. */
#include "op/infer.h"

static int want_labels(const struct graph *g, const struct node *n, struct err *err)
{
    const int64_t rows = op_shape(g, n, 0)->dim[0];

    if (op_want(g, n, 2, DTYPE_I32, 1, err) < 0)
        return err->code;
    if (op_has(n, 2) && op_shape(g, n, 2)->dim[0] != rows)
        return op_fail(n, err, "there are %lld labels, want one for each of table's %lld rows",
                       (long long)op_shape(g, n, 2)->dim[0], (long long)rows);
    return 0;
}

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    struct shape shape = *op_shape(g, n, 0);
    int rc;

    if ((rc = op_want(g, n, 0, DTYPE_F32, -1, err)) < 0 ||
        (rc = op_want(g, n, 1, DTYPE_I64, 1, err)) < 0 || (rc = want_labels(g, n, err)) < 0)
        return rc;
    shape.dim[0] = op_shape(g, n, 1)->dim[0];
    op_out(out, 0, DTYPE_F32, shape);
    if (op_has(n, 2))
        op_out(out, 1, DTYPE_I32, SHAPE(shape.dim[0]));
    return 0;
}

const struct op_def op_gather = {
    .name = "gather",
    .n_in = 3,
    .n_out = 2,
    .optional_in = 1 << 2,
    .flags = OP_ROWS,
    .in_name = {"table", "index", "labels"},
    .out_name = {"y", "picked"},
    .infer = infer,
};
