/* sgd - one step of stochastic gradient descent, as torch.optim.SGD.
 *
 *   op/update.c has the operands and the start of the formula.
 *   Slot: momentum? [n], written momentum' here, because an attribute has the same name.
 *   attr.number: momentum, dampening, nesterov (1: yes)
 *
 *   g = g + the segment's weight decay * param     (skipped when that is 0)
 *   with the slot momentum:
 *     momentum' = scalars.n_updates == 0 ? g : momentum * momentum' + (1 - dampening) * g
 *     g = nesterov ? g + momentum * momentum' : momentum'
 *   param = param - rate * g */
#include "op/infer.h"
#include "op/update.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    const double momentum = n->attr.number[SGD_ATTR_MOMENTUM];

    if (momentum != 0 && !op_has(n, SGD_MOMENTUM))
        return op_fail(n, err, "momentum %g needs a momentum buffer", momentum);
    return op_update_infer(g, n, out, err);
}

const struct op_def op_sgd = {
    .infer = infer,
    OP_SIGNATURE(sgd),
    .wide_in = 1u << SGD_GRAD,
    .typed_in = 1u << SGD_COPY,
    .typed_out = 1u << SGD_NEW_COPY,
};
