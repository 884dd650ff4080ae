/* gather - rows of tables, by number: a batch out of a data set that lies where kernels run.
 *
 * gather  in:  0 table [M,..]  1 index I64 [N], each in [0, M)  2..4 more tables? [M,..]
 *         out: 0 y [N,..] = table[index[i]]  1..3 the same of the tables in 2..4
 *   Tables are F32 or I32, each of its own row length; rows are copied bit for bit. */
#include "op/infer.h"

enum { INDEX = 1 };

/* The output that in[i], a table, is gathered into. */
static int out_of(int i) { return i < INDEX ? i : i - 1; }

static int infer_table(const struct graph *g, const struct node *n, int i, struct value *out,
                       struct err *err)
{
    const enum dtype dtype = op_in(g, n, i)->dtype;
    const int64_t n_rows = op_shape(g, n, 0)->dim[0];
    struct shape shape = *op_shape(g, n, i);
    int rc = op_want(g, n, i, dtype == DTYPE_I32 ? dtype : DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    if (shape.dim[0] != n_rows)
        return op_fail(n, err, "%s has %lld rows, want %lld, as many as table",
                       op_get(n->op)->in_name[i], (long long)shape.dim[0], (long long)n_rows);
    shape.dim[0] = op_shape(g, n, INDEX)->dim[0];
    op_out(out, out_of(i), dtype, shape);
    return 0;
}

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want(g, n, INDEX, DTYPE_I64, 1, err);

    for (int i = 0; rc == 0 && i < n->n_in; i++)
        if (i != INDEX && op_has(n, i))
            rc = infer_table(g, n, i, out, err);
    return rc;
}

const struct op_def op_gather = {
    .name = "gather",
    .n_in = 5,
    .n_out = 4,
    .optional_in = 1 << 2 | 1 << 3 | 1 << 4,
    .flags = OP_ROWS,
    .in_name = {"table", "index", "table1", "table2", "table3"},
    .out_name = {"y", "y1", "y2", "y3"},
    .infer = infer,
};
