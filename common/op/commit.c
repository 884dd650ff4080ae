/* commit - gives states (running statistics) their next values, if this step is applied.
 *
 * commit  shadow [n], check F64 [2], control F32 [CONTROL_LEN] (reduced), scalars -> state [n]
 *   state = shadow if control_applies(check, control); else nothing is written.  The caller of
 *   graph_node names the state, an existing value, as the output. */
#include "op/control.h"
#include "op/infer.h"

static int commit_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                        struct err *err)
{
    int rc;

    if ((rc = op_want(g, n, COMMIT_SHADOW, DTYPE_F32, 1, err)) < 0 ||
        (rc = op_want(g, n, COMMIT_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, COMMIT_CONTROL, SHAPE(CONTROL_LEN), err)) < 0)
        return rc;
    op_out(out, COMMIT_STATE, DTYPE_F32, *op_shape(g, n, COMMIT_SHADOW));
    return 0;
}

const struct op_def op_commit = {
    .infer = commit_infer,
    OP_SIGNATURE(commit),
};
