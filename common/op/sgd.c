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
    int rc = op_want(g, n, 0, DTYPE_F32, 1, err);

    if (rc < 0 || (rc = op_want_shape(g, n, 1, *op_shape(g, n, 0), err)) < 0 ||
        (rc = op_want_shape(g, n, 2, *op_shape(g, n, 0), err)) < 0 ||
        (rc = op_want(g, n, 3, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, 4, SHAPE(CONTROL_LEN), err)) < 0 ||
        (rc = op_want_shape(g, n, 6, *op_shape(g, n, 0), err)) < 0 ||
        (rc = op_want_shape(g, n, 7, SHAPE(SCALER_LEN), err)) < 0)
        return rc;
    if (n->attr.sgd.momentum != 0 && !op_has(n, 2))
        return op_fail(n, err, "momentum %g needs a momentum buffer", (double)n->attr.sgd.momentum);
    op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    if (op_has(n, 2))
        op_out(out, 1, DTYPE_F32, *op_shape(g, n, 0));
    if (op_has(n, 6))
        op_out(out, 2, op_in(g, n, 6)->dtype, *op_shape(g, n, 0));
    return 0;
}

const struct op_def op_sgd = {
    .name = "sgd",
    .n_in = 8,
    .n_out = 3,
    .optional_in = 1 << 2 | 1 << 6 | 1 << 7,
    .optional_out = 1 << 1 | 1 << 2,
    .update = {1, 3, 7},
    .wide_in = 1 << 1,
    .typed_in = 1 << 6,
    .typed_out = 1 << 2,
    .in_name = {"param", "grad", "momentum", "check", "control", "scalars", "copy", "scaler"},
    .out_name = {"param", "momentum", "copy"},
    .infer = infer,
};
