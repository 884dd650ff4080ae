/* gather - copies rows of tables, by number: a batch from a data set in the backend's memory.
 *
 * gather  table [M,..], index I64 [N], each in [0, M), table1? [M,..], table2?, table3?
 *         -> y [N,..] = table[index[i]]; y1, y2, y3: the same of table1, table2, table3
 *   Each table is F32 or I32 and has its own row length.  Rows are copied bit for bit. */
#include "op/gather.h"

#include "op/infer.h"

/* Check the table of output k and describe that output. */
static int infer_table(const struct graph *g, const struct node *n, int k, struct value *out,
                       struct err *err)
{
    const int i = gather_table_of(k);
    const enum dtype dtype = op_in(g, n, i)->dtype;
    const int64_t n_rows = op_shape(g, n, GATHER_TABLE)->dim[0];
    struct shape shape = *op_shape(g, n, i);
    int rc = op_want(g, n, i, dtype == DTYPE_I32 ? dtype : DTYPE_F32, -1, err);

    if (rc < 0)
        return rc;
    if (shape.dim[0] != n_rows)
        return op_fail(n, err, "%s has %lld rows, want %lld, as many as table",
                       op_get(n->op)->in_name[i], (long long)shape.dim[0], (long long)n_rows);
    shape.dim[0] = op_shape(g, n, GATHER_INDEX)->dim[0];
    op_out(out, k, dtype, shape);
    return 0;
}

static int gather_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    int rc = op_want(g, n, GATHER_INDEX, DTYPE_I64, 1, err);

    for (int k = GATHER_Y; rc == 0 && k < n->n_out; k++)
        if (op_has(n, gather_table_of(k)))
            rc = infer_table(g, n, k, out, err);
    return rc;
}

const struct op_def op_gather = {
    .infer = gather_infer,
    OP_SIGNATURE(gather),
    .flags = OP_ROWS,
};
