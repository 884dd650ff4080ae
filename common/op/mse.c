/* mse - mean squared error to the one-hot label, as torch.nn.MSELoss on [N,C].
 *
 * mse       y [N,C], labels I32 [N], each in [0,C), metrics
 *           -> diff? [N,C],  diff[n,c] = y[n,c] - [c = label n]
 *   The loss of a sample is the mean over c of diff^2.  The metrics are updated as in
 *   op/softmax_xent.c, with y in the place of the logits for METRIC_CORRECT.
 * mse_grad  diff, scalars, scaler? F32 [SCALER_LEN] (op/loss_scale.c)
 *           -> dy (may be in place of diff) = diff * (2/C) * scalars.loss_scale, times
 *           scaler[SCALER_SCALE] if there is a scaler.  diff is F32 whatever the type of y. */
#include "op/infer.h"
#include "op/scaler.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want_labels(g, n, MSE_Y, MSE_LABELS, err);

    if (rc == 0)
        op_out(out, MSE_DIFF, DTYPE_F32, *op_shape(g, n, MSE_Y));
    return rc;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int rc = op_want(g, n, MSE_GRAD_DIFF, DTYPE_F32, 2, err);

    if (rc == 0)
        rc = op_want_shape(g, n, MSE_GRAD_SCALER, SHAPE(SCALER_LEN), err);
    if (rc == 0)
        op_out(out, MSE_GRAD_DY, DTYPE_F32, *op_shape(g, n, MSE_GRAD_DIFF));
    return rc;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[MSE_GRAD_DIFF] = n->out[MSE_DIFF], [MSE_GRAD_SCALARS] = g->scalars};

    (void)dout, (void)want;
    din[MSE_Y] = op_grad_out(g, n->in[MSE_Y]);
    return graph_node(g, OP_mse_grad, NULL, in, 2, &din[MSE_Y], op_name(g, n, "grad"), err);
}

const struct op_def op_mse = {
    .infer = infer,
    .grad = grad,
    OP_SIGNATURE(mse),
    .flags = OP_ROWS | OP_EFFECT | OP_LOSS,
    .typed_in = 1u << MSE_Y,
};

const struct op_def op_mse_grad = {
    .infer = infer_grad,
    OP_SIGNATURE(mse_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_out = 1u << MSE_GRAD_DY,
};
