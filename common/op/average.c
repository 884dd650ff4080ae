/* average - averaged weights: their moving average, or their mean since some update
 * (torch.optim.swa_utils.AveragedModel, with get_ema_multi_avg_fn and without).
 *
 * average  param [n], check F64 [2], control F32 [CONTROL_LEN] (reduced), scalars, average [n]
 *          -> average [n]
 *   attr.number: first, every (steps), decay (below 0: the mean)
 *
 *   If control_applies(check, control), with w of average_weight (op/average.h):
 *     average = w == 1 ? param : average + w * (param - average)     (w == 0: nothing is written)
 *   in float, each operation rounded by itself.  param are the weights after the step's update. */
#include "op/average.h"

#include "op/control.h"
#include "op/infer.h"

static int average_infer(const struct graph *g, const struct node *n,
                         struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc;

    if ((rc = op_want(g, n, AVERAGE_PARAM, DTYPE_F32, 1, err)) < 0 ||
        (rc = op_want(g, n, AVERAGE_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, AVERAGE_CONTROL, SHAPE(CONTROL_LEN), err)) < 0 ||
        (rc = op_want(g, n, AVERAGE_AVERAGE, DTYPE_F32, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, AVERAGE_AVERAGE, *op_shape(g, n, AVERAGE_PARAM), err)) < 0)
        return rc;
    op_out(out, AVERAGE_NEW_AVERAGE, DTYPE_F32, *op_shape(g, n, AVERAGE_PARAM));
    return 0;
}

const struct op_def op_average = {
    .infer = average_infer,
    OP_SIGNATURE(average),
};
