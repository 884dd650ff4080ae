/* softmax_xent - the cross-entropy loss on logits, as torch.nn.CrossEntropyLoss with class indices.
 *
 * softmax_xent       logits [N,C], labels I32 [N], metrics -> prob? F32 [N,C], softmax of each row
 *   With s = attr.loss.label_smoothing the target of a row is t[c] = (1-s)*[c = label] + s/C,
 *   and its loss is -sum over c of w[c]*t[c]*log prob[c], where w = attr.loss.class_weight, or 1
 *   without.  The node adds to metrics:
 *     METRIC_LOSS_SUM   the losses that are finite, in double
 *     METRIC_CORRECT    the number of rows whose first largest logit is the label's
 *     METRIC_TARGETS    the number of rows whose label is not SAMPLE_IGNORED
 *     METRIC_WEIGHT     the sum of w[label] over these rows
 *     METRIC_TOP5       if attr.loss.counts_top5, the number of rows in which fewer than 5 logits
 *                       stand before the label's.  Of equal logits that of the lower class stands
 *                       first, and NaN stands before every number; a label whose own logit is NaN
 *                       does not count
 *     METRIC_NONFINITE  the number of rows whose loss is not finite
 *   By attr.loss.part it adds to some of them (ir/graph.h).  attr.loss.factor multiplies the losses
 *   and the gradient.
 *   A row whose label is SAMPLE_IGNORED has no loss, and its gradient is 0.  Any other label
 * outside [0,C), which readers refuse, has a loss that is not finite.
 *
 * softmax_xent_grad  prob, labels, scalars, scaler? F32 [SCALER_LEN]
 *                    -> dlogits (may be in place of prob)
 *   dlogits[c] = (prob[c] * (sum of w*t) - w[c]*t[c]) * scalars.loss_scale (op/update.h corrects it
 * for ignored targets and for weights), times scaler[SCALER_SCALE] if there is a scaler
 * (op/loss_scale.c).  prob is F32 whatever the type of the logits, because 1 - prob of a learnt
 * label is small.
 *
 * softmax_xent_train logits, labels, metrics, scalars, scaler? -> dlogits (may be in place of
 *                    logits)
 *   Loss and gradient in one: program/fuse.c replaces both nodes by this one where no other node
 *   reads prob.
 *
 * label_log_p        logits [N,C], labels I32 [N] -> y F32 [N,1], lse? F32 [N]
 *   lse = log(sum of exp(logits)) of each row, and y = logits[label] - lse: the logarithm of the
 *   label's probability.  y is 0 where the label is SAMPLE_IGNORED, and NaN for any other label
 *   outside [0,C).
 *
 * label_log_p_grad   logits, labels, lse, dy F32 [N,1] -> dlogits (may be in place of logits)
 *   dlogits[c] = ([c = label] - exp(logits[c] - lse)) * dy, and 0 where the label is ignored. */
#include "op/infer.h"
#include "op/scaler.h"

/* Each of the three operators starts with the same two inputs: logits or prob, and the labels. */
_Static_assert((int)SOFTMAX_XENT_GRAD_PROB == (int)SOFTMAX_XENT_LOGITS &&
                   (int)SOFTMAX_XENT_GRAD_LABELS == (int)SOFTMAX_XENT_LABELS &&
                   (int)SOFTMAX_XENT_TRAIN_LOGITS == (int)SOFTMAX_XENT_LOGITS &&
                   (int)SOFTMAX_XENT_TRAIN_LABELS == (int)SOFTMAX_XENT_LABELS,
               "infer serves all three");

static int softmax_xent_infer(const struct graph *g, const struct node *n,
                              struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want_labels(g, n, SOFTMAX_XENT_LOGITS, SOFTMAX_XENT_LABELS, err);

    if (rc < 0)
        return rc;
    if (!(n->attr.loss.label_smoothing >= 0 && n->attr.loss.label_smoothing < 1))
        return op_fail(n, err, "label smoothing %g must be in [0, 1)",
                       (double)n->attr.loss.label_smoothing);
    op_out(out, SOFTMAX_XENT_PROB, DTYPE_F32, *op_shape(g, n, SOFTMAX_XENT_LOGITS));
    return 0;
}

static int softmax_xent_backward(struct graph *g, const struct node *n,
                                 const int dout[NODE_MAX_OUT], const int want[NODE_MAX_IN],
                                 int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[SOFTMAX_XENT_GRAD_PROB] = n->out[SOFTMAX_XENT_PROB],
                      [SOFTMAX_XENT_GRAD_LABELS] = n->in[SOFTMAX_XENT_LABELS],
                      [SOFTMAX_XENT_GRAD_SCALARS] = g->scalars};
    int *dlogits = &din[SOFTMAX_XENT_LOGITS];

    (void)dout, (void)want;
    if (n->attr.loss.part == LOSS_IS_COUNTED)
        return 0;
    *dlogits = op_grad_out(g, n->in[SOFTMAX_XENT_LOGITS]);
    return graph_node(g, OP_softmax_xent_grad, &n->attr, in, 3, dlogits, op_name(g, n, "grad"),
                      err);
}

const struct op_def op_softmax_xent = {
    .infer = softmax_xent_infer,
    .grad = softmax_xent_backward,
    OP_SIGNATURE(softmax_xent),
    .flags = OP_ROWS | OP_EFFECT | OP_LOSS,
    .typed_in = 1u << SOFTMAX_XENT_LOGITS,
};

static int softmax_xent_infer_grad(const struct graph *g, const struct node *n,
                                   struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want_shape(g, n, SOFTMAX_XENT_GRAD_SCALER, SHAPE(SCALER_LEN), err);

    return rc < 0 ? rc : softmax_xent_infer(g, n, out, err);
}

const struct op_def op_softmax_xent_grad = {
    .infer = softmax_xent_infer_grad,
    OP_SIGNATURE(softmax_xent_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_out = 1u << SOFTMAX_XENT_GRAD_DLOGITS,
};

static int infer_train(const struct graph *g, const struct node *n, struct value out[NODE_MAX_OUT],
                       struct err *err)
{
    int rc = op_want_shape(g, n, SOFTMAX_XENT_TRAIN_SCALER, SHAPE(SCALER_LEN), err);

    return rc < 0 ? rc : softmax_xent_infer(g, n, out, err);
}

const struct op_def op_softmax_xent_train = {
    .infer = infer_train,
    OP_SIGNATURE(softmax_xent_train),
    .flags = OP_ROWS | OP_EFFECT | OP_LOSS | OP_INPLACE,
    .typed_in = 1u << SOFTMAX_XENT_TRAIN_LOGITS,
    .typed_out = 1u << SOFTMAX_XENT_TRAIN_DLOGITS,
};

static int label_log_p_infer(const struct graph *g, const struct node *n,
                             struct value out[NODE_MAX_OUT], struct err *err)
{
    const int rc = op_want_labels(g, n, LABEL_LOG_P_LOGITS, LABEL_LOG_P_LABELS, err);
    int64_t rows;

    if (rc < 0)
        return rc;
    rows = op_shape(g, n, LABEL_LOG_P_LOGITS)->dim[0];
    op_out(out, LABEL_LOG_P_Y, DTYPE_F32, SHAPE(rows, 1));
    op_out(out, LABEL_LOG_P_LSE, DTYPE_F32, SHAPE(rows));
    return 0;
}

static int label_log_p_infer_grad(const struct graph *g, const struct node *n,
                                  struct value out[NODE_MAX_OUT], struct err *err)
{
    int rc = op_want_labels(g, n, LABEL_LOG_P_GRAD_LOGITS, LABEL_LOG_P_GRAD_LABELS, err);
    int64_t rows;

    if (rc < 0)
        return rc;
    rows = op_shape(g, n, LABEL_LOG_P_GRAD_LOGITS)->dim[0];
    if ((rc = op_want_shape(g, n, LABEL_LOG_P_GRAD_LSE, SHAPE(rows), err)) < 0 ||
        (rc = op_want_shape(g, n, LABEL_LOG_P_GRAD_DY, SHAPE(rows, 1), err)) < 0)
        return rc;
    op_out(out, LABEL_LOG_P_GRAD_DLOGITS, DTYPE_F32, *op_shape(g, n, LABEL_LOG_P_GRAD_LOGITS));
    return 0;
}

static int label_log_p_backward(struct graph *g, const struct node *n, const int dout[NODE_MAX_OUT],
                                const int want[NODE_MAX_IN], int din[NODE_MAX_IN], struct err *err)
{
    const int in[] = {[LABEL_LOG_P_GRAD_LOGITS] = n->in[LABEL_LOG_P_LOGITS],
                      [LABEL_LOG_P_GRAD_LABELS] = n->in[LABEL_LOG_P_LABELS],
                      [LABEL_LOG_P_GRAD_LSE] = n->out[LABEL_LOG_P_LSE],
                      [LABEL_LOG_P_GRAD_DY] = dout[LABEL_LOG_P_Y]};
    int *dlogits = &din[LABEL_LOG_P_LOGITS];

    (void)want;
    *dlogits = op_grad_out(g, n->in[LABEL_LOG_P_LOGITS]);
    return graph_node(g, OP_label_log_p_grad, &n->attr, in, 4, dlogits, op_name(g, n, "grad"), err);
}

const struct op_def op_label_log_p = {
    .infer = label_log_p_infer,
    .grad = label_log_p_backward,
    OP_SIGNATURE(label_log_p),
    .flags = OP_ROWS,
    .typed_in = 1u << LABEL_LOG_P_LOGITS,
};

const struct op_def op_label_log_p_grad = {
    .infer = label_log_p_infer_grad,
    OP_SIGNATURE(label_log_p_grad),
    .flags = OP_ROWS | OP_INPLACE,
    .typed_in = 1u << LABEL_LOG_P_GRAD_LOGITS,
    .typed_out = 1u << LABEL_LOG_P_GRAD_DLOGITS,
};
