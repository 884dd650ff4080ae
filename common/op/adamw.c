/* adamw - one step of Adam, its weight decay decoupled as torch.optim.AdamW's (Loshchilov, Hutter
 * 2019, algorithm 2), or part of the gradient as torch.optim.Adam's.
 *
 *   op/update.c has the operands and the start of the formula.  Slots: exp_avg [n], exp_avg_sq [n].
 *   attr.number: beta1, beta2, eps; coupled: 1 for Adam, 0 for AdamW; means_from
 *
 *   t = scalars.n_updates + 1
 *   Adam:   g = g + the segment's weight decay * param         (skipped when that is 0)
 *   AdamW:  param = param * (1 - rate * the segment's weight decay)
 *   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   param = param - rate / (1 - beta1^t) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^t) + eps)
 *
 * With means_from > 0, from the update on before which scalars.n_updates is means_from
 * (strategy/qadam.c), grad holds x = beta1 * exp_avg + (1 - beta1) * the gradient, and
 *
 *   exp_avg = beta1 * exp_avg + (x - beta1 * exp_avg) / the gradient's factor     (x if that is 1)
 *
 * exp_avg_sq stays as it is then, Adam adds no weight decay to the gradient, and nothing is
 * clipped.
 *
 * Terms that do not depend on the element are made in double (update_power) and rounded once. */
#include "op/op.h"
#include "op/update.h"

const struct op_def op_adamw = {
    .infer = op_update_infer,
    OP_SIGNATURE(adamw),
    .wide_in = 1u << ADAMW_GRAD,
    .typed_in = 1u << ADAMW_COPY,
    .typed_out = 1u << ADAMW_NEW_COPY,
};
