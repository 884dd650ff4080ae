/* mse - mean squared error to the one-hot label, as torch.nn.MSELoss on [N,C].
 *
 * mse       in: 0 y [N,C]  1 labels I32 [N], each in [0,C)  2 metrics
 *           out: 0 diff? [N,C],  diff[n,c] = y[n,c] - [c = label n]
 *   The loss of a sample is the mean over c of diff^2; added to metrics as softmax_xent does, with
 *   the first largest y for METRIC_CORRECT.
 * mse_grad  in: 0 diff  1 scalars  2 scaler? F32 [SCALER_LEN] (op/loss_scale.c)
 *           out: 0 dy (may be in place of diff) = diff * (2/C) * scalars.loss_scale, times
 *           scaler[SCALER_SCALE] if there is one; diff is F32 whatever the type of y */
#include "op/infer.h"
#include "op/scaler.h"

static int infer(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                 struct err *err)
{
    int rc = op_want_labels(g, n, err);

    if (rc == 0)
        op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return rc;
}

static int infer_grad(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                      struct err *err)
{
    int rc = op_want(g, n, 0, DTYPE_F32, 2, err);

    if (rc == 0)
        rc = op_want_shape(g, n, 2, SHAPE(SCALER_LEN), err);
    if (rc == 0)
        op_out(out, 0, DTYPE_F32, *op_shape(g, n, 0));
    return rc;
}

static int grad(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    (void)dout, (void)want;
    din[0] = op_grad_out(g, n->in[0]);
    return graph_node(g, OP_mse_grad, NULL, (int[]){n->out[0], g->scalars}, 2, &din[0],
                      op_name(g, n, "grad"), err);
}

const struct op_def op_mse = {
    .name = "mse",
    .n_in = 3,
    .n_out = 1,
    .flags = OP_ROWS | OP_EFFECT | OP_LOSS,
    .optional_out = 1 << 0,
    .typed_in = 1 << 0,
    .in_name = {"y", "labels", "metrics"},
    .out_name = {"diff"},
    .infer = infer,
    .grad = grad,
};

const struct op_def op_mse_grad = {
    .name = "mse_grad",
    .n_in = 3,
    .n_out = 1,
    .flags = OP_ROWS | OP_INPLACE,
    .optional_in = 1 << 2,
    .typed_out = 1 << 0,
    .in_name = {"diff", "scalars", "scaler"},
    .out_name = {"dy"},
    .infer = infer_grad,
};
