/* loss_scale - sets the loss scale of the next step by the outcome of this one (op/scaler.h).
 *
 * loss_scale  scaler F32 [SCALER_LEN], check F64 [2], control F32 [CONTROL_LEN] (reduced)
 *             -> scaler, updated in place
 *   attr.scale: min, window, hysteresis.
 *   A void step, control[CONTROL_VOID] > 0, changes nothing.
 *   A loss that is not finite tells nothing about the scale, because the loss is not scaled: with
 *   control[CONTROL_NONFINITE] > 0 only SCALER_STUCK changes, to 0.
 *   Otherwise DeepSpeed's rule holds.  check[1] != 0 is an overflow.
 *     overflow:     SCALER_HYSTERESIS is lowered by one if it is greater than 1; else the scale is
 *                   halved or, if it is at min already, SCALER_STUCK becomes 1.  SCALER_GOOD
 *                   becomes 0.
 *     no overflow:  SCALER_GOOD is raised by one.  When `window` steps have followed the first good
 *                   one (or the last doubling), the scale is doubled, up to SCALER_MAX, and
 *                   SCALER_HYSTERESIS is set to `hysteresis` again. */
#include "op/control.h"
#include "op/infer.h"
#include "op/scaler.h"

static int loss_scale_infer(const struct graph *g, const struct node *n,
                            struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc;

    if ((rc = op_want_shape(g, n, LOSS_SCALE_SCALER, SHAPE(SCALER_LEN), err)) < 0 ||
        (rc = op_want(g, n, LOSS_SCALE_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, LOSS_SCALE_CONTROL, SHAPE(CONTROL_LEN), err)) < 0)
        return rc;
    op_out(out, LOSS_SCALE_NEW_SCALER, DTYPE_F32, SHAPE(SCALER_LEN));
    return 0;
}

const struct op_def op_loss_scale = {
    .infer = loss_scale_infer,
    OP_SIGNATURE(loss_scale),
};
