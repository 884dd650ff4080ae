/* muon - one step of Muon for one matrix (Jordan and others 2024, "Muon: an optimizer for hidden
 * layers in neural networks"), as torch.optim.Muon: the momentum is made nearly orthogonal by
 * Newton-Schulz iterations before it moves the parameter.
 *
 *   op/update.c has the operands and the start of the formula; n = rows * columns, and `segments`
 *   has one row.  Slot: exp_avg [n].
 *   attr.number: momentum; nesterov (1: yes); rows; ratio: a factor on the rate; steps: iterations;
 *   a, b, c: their coefficients
 *
 *   exp_avg = exp_avg + (1 - momentum) * (g - exp_avg)
 *   u = nesterov ? exp_avg - (1 - momentum) * (exp_avg - g) : exp_avg
 *   x = u / max(norm(u), 1e-7) as a matrix, transposed if rows > columns
 *   `steps` times:  s = x x^T;  t = b s + c (s s);  x = a x + t x
 *   param = param * (1 - rate * the segment's weight decay) - rate * ratio * x, transposed back
 *
 * PyTorch rounds x, s and t to bfloat16, for speed; here they are float.  The norm is a sum in
 * double in fixed blocks, and each element of a product is summed in the order of its terms, each
 * product and sum rounded by itself.  So replicas stay equal. */
#include <math.h>

#include "op/infer.h"
#include "op/update.h"

static int muon_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    const double rows = n->attr.number[MUON_ATTR_ROWS];
    int rc = op_update_infer(g, n, out, err);

    if (rc < 0)
        return rc;
    if (rows < 1 || fmod((double)op_shape(g, n, MUON_PARAM)->dim[0], rows) != 0)
        return op_fail(n, err, "%lld parameters are no matrix of %g rows",
                       (long long)op_shape(g, n, MUON_PARAM)->dim[0], rows);
    if (op_shape(g, n, MUON_SEGMENTS)->dim[0] != 1)
        return op_fail(n, err, "one matrix has one segment");
    return 0;
}

const struct op_def op_muon = {
    .infer = muon_infer,
    OP_SIGNATURE(muon),
    .wide_in = 1u << MUON_GRAD,
    .typed_in = 1u << MUON_COPY,
    .typed_out = 1u << MUON_NEW_COPY,
};
