/* sgd - one step of stochastic gradient descent on a range of parameters, as torch.optim.SGD.
 *
 * sgd  in:  0 param [n]  1 grad [n]  2 momentum? [n]
 *
 *           3 check F64 [2] (grad_check's, of the whole gradient)
 *
 *           4 control F32 [CONTROL_LEN] (reduced)  5 scalars  6 copy? [n] of any real type
 *
 *           7 scaler? F32 [SCALER_LEN] (op/loss_scale.c): the gradient is so many times too large
 *
 *      out: 0 param  1 momentum  2 copy: the same values as in, updated in place (absent as in[2],
 *           in[6])
 *
 *   attr.sgd: momentum, dampening, weight_decay, nesterov.  A range has one weight decay;
 * parameters without decay are a node of their own.
 *
 * Nothing is written unless control_applies(check, control).  Otherwise, in float, each product and
 * sum rounded in this order (no contraction), so that replicas stay equal:
 *
 *   clip = scalars.clip_norm > 0 ? min(1, clip_norm / (norm + 1e-6)), made in double and rounded
 *          to float : 1, norm = sqrt(check[0]) / scaler[SCALER_SCALE]
 *                                                  (torch.nn.utils.clip_grad_norm_)
 *   g = grad / scaler[SCALER_SCALE]                (a power of two, so exact)
 *   g = g * clip                                   (skipped when clip is 1)
 *   g = g + weight_decay * param                   (skipped when weight_decay is 0)
 *   with momentum (in[2] given):
 *     buf = scalars.first_update ? g : momentum * buf + (1 - dampening) * g
 *     g = nesterov ? g + momentum * buf : buf
 *   param = param - rate * g                       (scalars.rate)
 *   copy = param, rounded */
#include "op/control.h"
#include "op/infer.h"
#include "op/scaler.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want(g, n, SGD_PARAM, DTYPE_F32, 1, err);

    if (rc < 0 || (rc = op_want_shape(g, n, SGD_GRAD, *op_shape(g, n, SGD_PARAM), err)) < 0 ||
        (rc = op_want_shape(g, n, SGD_MOMENTUM, *op_shape(g, n, SGD_PARAM), err)) < 0 ||
        (rc = op_want(g, n, SGD_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, SGD_CONTROL, SHAPE(CONTROL_LEN), err)) < 0 ||
        (rc = op_want_shape(g, n, SGD_COPY, *op_shape(g, n, SGD_PARAM), err)) < 0 ||
        (rc = op_want_shape(g, n, SGD_SCALER, SHAPE(SCALER_LEN), err)) < 0)
        return rc;
    if (n->attr.sgd.momentum != 0 && !op_has(n, SGD_MOMENTUM))
        return op_fail(n, err, "momentum %g needs a momentum buffer", (double)n->attr.sgd.momentum);
    op_out(out, SGD_NEW_PARAM, DTYPE_F32, *op_shape(g, n, SGD_PARAM));
    if (op_has(n, SGD_MOMENTUM))
        op_out(out, SGD_NEW_MOMENTUM, DTYPE_F32, *op_shape(g, n, SGD_PARAM));
    if (op_has(n, SGD_COPY))
        op_out(out, SGD_NEW_COPY, op_in(g, n, SGD_COPY)->dtype, *op_shape(g, n, SGD_PARAM));
    return 0;
}

const struct op_def op_sgd = {
    .infer = infer,
    OP_SIGNATURE(sgd),
    .wide_in = 1u << SGD_GRAD,
    .typed_in = 1u << SGD_COPY,
    .typed_out = 1u << SGD_NEW_COPY,
};
