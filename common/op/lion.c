/* lion - one step of Lion (Chen and others 2023, "Symbolic discovery of optimization algorithms",
 * algorithm 2): each parameter moves by the rate, whatever the size of its gradient.
 *
 *   op/update.c has the operands and the start of the formula.  Slot: exp_avg [n].
 *   attr.number: beta1, beta2
 *
 *   c = beta1 * exp_avg + (1 - beta1) * g
 *   param = param * (1 - rate * the segment's weight decay) - rate * sign(c),  sign(0) = 0
 *   exp_avg = beta2 * exp_avg + (1 - beta2) * g
 *
 * The factor of the weight decay is made in double and rounded once. */
#include "op/op.h"
#include "op/update.h"

const struct op_def op_lion = {
    .infer = op_update_infer,
    OP_SIGNATURE(lion),
    .wide_in = 1u << LION_GRAD,
    .typed_in = 1u << LION_COPY,
    .typed_out = 1u << LION_NEW_COPY,
};
