/* pointwise_loss - losses that compare each output of a sample with its own target, and are the
 * mean over the outputs, as torch.nn.MSELoss, L1Loss and BCEWithLogitsLoss on [N,C].
 *
 * pointwise_loss       y [N,C], target, metrics -> slope? [N,C]
 *   target is I32 [N], labels, each in [0,C), so that t[n,c] = [c = label n], or F32 with a first
 *   dimension N and N*C numbers t[n,c].  A row whose label is SAMPLE_IGNORED counts in no metric,
 *   and its slope is 0.  By attr.loss.pointwise the loss of an output is
 *     POINTWISE_SQUARED    (y - t)^2                              slope = y - t
 *     POINTWISE_ABSOLUTE   |y - t|                                slope = sign(y - t)
 *     POINTWISE_LOGISTIC   max(y, 0) - y*t + log(1 + e^-|y|)      slope = 1 / (1 + e^-y) - t
 *     POINTWISE_GIVEN      y, which other nodes computed          slope = 1
 *   and that of a sample the mean over c.  The metrics are updated as in op/softmax_xent.c, with y
 *   in the place of the logits for METRIC_CORRECT.  With numbers as targets a sample is correct if
 *   the loss is logistic, and each y is above 0 where t is above 1/2, and only there.  A loss that
 *   is given takes any number of targets for a sample; their values do not matter, and no
 *   sample is correct.  attr.loss.factor multiplies the losses and the gradient.
 * pointwise_loss_grad  slope, scalars, scaler? F32 [SCALER_LEN] (op/loss_scale.c)
 *   -> dy (may be in place of slope) = slope * (2/C, or 1/C if not squared) * scalars.loss_scale,
 *   times scaler[SCALER_SCALE] if there is a scaler.  slope is F32 whatever the type of y. */
#include "op/infer.h"
#include "op/scaler.h"

/* F32 targets must be as many numbers as y has, sample by sample. */
static int want_targets(const struct graph *g, const struct node *n, struct err *err)
{
    const struct shape *y = op_shape(g, n, POINTWISE_LOSS_Y);
    const struct shape *t = op_shape(g, n, POINTWISE_LOSS_TARGET);
    char seen[SHAPE_TEXT_LEN], wanted[SHAPE_TEXT_LEN];

    if (op_want(g, n, POINTWISE_LOSS_Y, DTYPE_F32, 2, err) < 0 ||
        op_want(g, n, POINTWISE_LOSS_TARGET, DTYPE_F32, -1, err) < 0)
        return err->code;
    if (t->dim[0] == y->dim[0] &&
        (n->attr.loss.pointwise == POINTWISE_GIVEN || shape_elements(t) == shape_elements(y)))
        return 0;
    return op_fail(n, err, "targets %s for outputs %s", shape_text(t, seen), shape_text(y, wanted));
}

static int pointwise_loss_infer(const struct graph *g, const struct node *n,
                                struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_in(g, n, POINTWISE_LOSS_TARGET)->dtype == DTYPE_F32
                 ? want_targets(g, n, err)
                 : op_want_labels(g, n, POINTWISE_LOSS_Y, POINTWISE_LOSS_TARGET, err);

    if (rc == 0)
        op_out(out, POINTWISE_LOSS_SLOPE, DTYPE_F32, *op_shape(g, n, POINTWISE_LOSS_Y));
    return rc;
}

static int pointwise_loss_infer_grad(const struct graph *g, const struct node *n,
                                     struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want(g, n, POINTWISE_LOSS_GRAD_SLOPE, DTYPE_F32, 2, err);

    if (rc == 0)
        rc = op_want_shape(g, n, POINTWISE_LOSS_GRAD_SCALER, SHAPE(SCALER_LEN), err);
    if (rc == 0)
        op_out(out, POINTWISE_LOSS_GRAD_DY, DTYPE_F32, *op_shape(g, n, POINTWISE_LOSS_GRAD_SLOPE));
    return rc;
}

static int pointwise_loss_backward(struct graph *g, const struct node *n,
                                   const int dout[NODE_MAX_OUT], const int want[NODE_MAX_IN],
                                   int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[POINTWISE_LOSS_GRAD_SLOPE] = n->out[POINTWISE_LOSS_SLOPE],
                      [POINTWISE_LOSS_GRAD_SCALARS] = g->scalars};

    (void)dout, (void)want;
    if (n->attr.loss.part == LOSS_IS_COUNTED)
        return 0;
    din[POINTWISE_LOSS_Y] = op_grad_out(g, n->in[POINTWISE_LOSS_Y]);
    return graph_node(g, OP_pointwise_loss_grad, &n->attr, in, 2, &din[POINTWISE_LOSS_Y],
                      op_name(g, n, "grad"), err);
}

const struct op_def op_pointwise_loss = {
    .infer = pointwise_loss_infer,
    .grad = pointwise_loss_backward,
    OP_SIGNATURE(pointwise_loss),
    .flags = OP_ROWS | OP_EFFECT | OP_LOSS,
    .typed_in = 1u << POINTWISE_LOSS_Y,
};

const struct op_def op_pointwise_loss_grad = {
    .infer = pointwise_loss_infer_grad,
    OP_SIGNATURE(pointwise_loss_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_out = 1u << POINTWISE_LOSS_GRAD_DY,
};
