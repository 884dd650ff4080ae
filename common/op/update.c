/* update - the operands and the formula that every optimizer's operator begins with.
 *
 * The inputs (op/meson.build):
 *   param [n]                   all trained parameters
 *   grad [n]                    reduced; F32 or the type of `copy`; without a copy of any type
 *   check F64 [2]               grad_check's result for the whole gradient
 *   control F32 [CONTROL_LEN]   reduced
 *   scalars
 *   segments F64 [rows, SEGMENT_COLUMNS]   rate scale and weight decay of each range (op/update.h)
 *   copy? [n] of any real type  the parameters rounded
 *   scaler? F32 [SCALER_LEN]    the factor by which the gradient is too large (op/loss_scale.c)
 *   kept? I64 [KEPT_LEN]        which parameters kept their value (op/update.h)
 *   slots [n]                   those of the optimizer, by their names
 *
 * The outputs are param, copy, kept and the slots, updated in place; with no input there is no
 * output.
 *
 * Nothing is written unless control_applies(check, control).  Otherwise all is computed in float,
 * and each product and sum is rounded by itself (no contraction), so that replicas stay equal.
 * Every optimizer begins with
 *
 *   clip = scalars.clip_norm > 0 ? min(1, clip_norm / (norm + 1e-6)), made in double and rounded
 *          to float : 1, norm = sqrt(check[0]) / scaler[SCALER_SCALE]
 *                                                  (torch.nn.utils.clip_grad_norm_)
 *   g = grad / scaler[SCALER_SCALE]                (a power of two, so exact)
 *   g = g * clip                                   (skipped when clip is 1)
 *   rate = scalars.rate * the segment's rate scale
 *
 * and ends with copy = param, rounded.
 *
 * A parameter whose new value is not finite keeps the old one: 0 / 0 with an eps of 0, or an
 * overflow.  So the parameters stay finite, whatever the settings.  kept[KEPT_LOWEST] becomes the
 * maximum of itself and KEPT_LIMIT - i for each such element i, and kept[KEPT_COUNT] counts them.
 */
#include "op/update.h"

#include "op/infer.h"

/* 1: input i has one element for each parameter. That is so for the gradient, copies and slots. */
static int is_array(int i) { return i == UPDATE_GRAD || i == UPDATE_COPY || i >= UPDATE_SLOT; }

static int want_segments(const struct graph *g, const struct node *n, struct err *err)
{
    int rc = op_want(g, n, UPDATE_SEGMENTS, DTYPE_F64, 2, err);

    if (rc < 0 || op_shape(g, n, UPDATE_SEGMENTS)->dim[1] == SEGMENT_COLUMNS)
        return rc;
    return op_fail(n, err, "segments have %lld columns, want %d",
                   (long long)op_shape(g, n, UPDATE_SEGMENTS)->dim[1], SEGMENT_COLUMNS);
}

int op_want_kept(const struct graph *g, const struct node *n, int i, struct err *err)
{
    int rc;

    if (!op_has(n, i) || (rc = op_want(g, n, i, DTYPE_I64, 1, err)) == 0)
        rc = op_has(n, i) && op_shape(g, n, i)->dim[0] != KEPT_LEN
                 ? op_fail(n, err, "kept has %lld elements, want %d",
                           (long long)op_shape(g, n, i)->dim[0], KEPT_LEN)
                 : 0;
    return rc;
}

int op_update_infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                    struct err *err)
{
    const struct op_def *def = op_get(n->op);
    int rc = op_want(g, n, UPDATE_PARAM, DTYPE_F32, 1, err);

    for (int i = 0; i < n->n_in && rc == 0; i++)
        if (is_array(i))
            rc = op_want_shape(g, n, i, *op_shape(g, n, UPDATE_PARAM), err);
    if (rc < 0 || (rc = op_want(g, n, UPDATE_CHECK, DTYPE_F64, 1, err)) < 0 ||
        (rc = op_want_shape(g, n, UPDATE_CONTROL, SHAPE(CONTROL_LEN), err)) < 0 ||
        (rc = op_want_shape(g, n, UPDATE_SCALER, SHAPE(SCALER_LEN), err)) < 0 ||
        (rc = op_want_kept(g, n, UPDATE_KEPT, err)) < 0 || (rc = want_segments(g, n, err)) < 0)
        return rc;
    for (int i = 0; i < def->n_out; i++)
        if (op_has(n, def->update[i] - 1))
            op_out(out, i, op_in(g, n, def->update[i] - 1)->dtype,
                   *op_shape(g, n, def->update[i] - 1));
    return 0;
}
