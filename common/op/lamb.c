/* lamb - one step of LAMB (You and others 2020, "Large batch optimization for deep learning:
 * training BERT in 76 minutes", algorithm 2): AdamW's direction, scaled so that each tensor moves
 * by the rate times its own norm.
 *
 *   op/update.c has the operands and the start of the formula; each row of the segments is one
 *   tensor.  Slots: exp_avg [n], exp_avg_sq [n].
 *   attr.number: beta1, beta2, eps, least, most, corrects (enum lamb_correction)
 *
 *   t = scalars.n_updates + 1
 *   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   c1 = 1 - beta1^t, c2 = sqrt(1 - beta2^t) if it corrects the direction, else 1
 *   r = exp_avg / c1 / (sqrt(exp_avg_sq) / c2 + eps) + the segment's weight decay * param
 *   ratio = norm(param) / norm(r) over the tensor, at least `least` and at most `most`;
 *           1 where one of the norms is 0
 *   param = param - rate * f * ratio * r,
 *           f = sqrt(1 - beta2^t) / (1 - beta1^t) if it corrects the rate, else 1
 *
 * The correction of the rate, with the bounds, is DeepSpeed's
 * (csrc/lamb/fused_lamb_cuda_kernel.cu).
 *
 * The paper's phi is the identity.  The norms are sums in double in fixed blocks (op/update.h), so
 * that replicas stay equal.  Terms that do not depend on the element are made in double
 * (update_power) and rounded once. */
#include "op/lamb.h"

#include "op/op.h"

const struct op_def op_lamb = {
    .infer = op_update_infer,
    OP_SIGNATURE(lamb),
    .wide_in = 1u << LAMB_GRAD,
    .typed_in = 1u << LAMB_COPY,
    .typed_out = 1u << LAMB_NEW_COPY,
};
