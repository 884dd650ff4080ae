/* control_pack - writes this rank's control vector, before the all-reduce adds those of all ranks.
 *
 * control_pack  metrics, scalars -> control F32 [CONTROL_LEN]
 *   The operator calls control_pack(metrics, (unsigned)scalars.requests, is_void, control) of
 *   op/control.h, with is_void = scalars.after != 0 && scalars.clean != scalars.after. */
#include "op/control.h"
#include "op/infer.h"

static int control_pack_infer(const struct graph *g, const struct node *n,
                              struct value out[NODE_MAX_OUT], struct err *err)
{
    (void)g, (void)n, (void)err;
    op_out(out, CONTROL_PACK_CONTROL, DTYPE_F32, SHAPE(CONTROL_LEN));
    return 0;
}

const struct op_def op_control_pack = {
    .infer = control_pack_infer,
    OP_SIGNATURE(control_pack),
};
