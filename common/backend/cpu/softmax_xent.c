/* softmax_xent - the cross-entropy of a softmax and its gradient, row by row, with sums in double.
 *
 * op/softmax_xent.c has the formulas; the twin is cuda/softmax_xent.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/loss.h"
#include "backend/cpu/plain.h"

/* Loss of one row: -sum of t[c] * log prob[c], where t[c] = (1-s)*[c = label] + s/C.  A label that
 * is no class gives NaN. */
static double row_loss(const float *x, int64_t c, int32_t label, double smoothing, double log_sum)
{
    const double at_label = label >= 0 && label < c ? log_sum - (double)x[label] : (double)NAN;
    double all = 0;

    if (smoothing == 0)
        return at_label;
    for (int64_t i = 0; i < c; i++)
        all += log_sum - (double)x[i];
    return (1 - smoothing) * at_label + smoothing / (double)c * all;
}

/* prob = softmax of x; returns the logarithm of the sum of exp(x).  prob may be NULL; it must not
 * be x. */
static double softmax_row(const float *x, float *prob, int64_t c)
{
    float largest = x[0];
    double sum = 0;

    for (int64_t i = 1; i < c; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < c; i++) {
        const float e = expf(x[i] - largest);

        sum += (double)e;
        if (prob)
            prob[i] = e;
    }
    for (int64_t i = 0; prob && i < c; i++)
        prob[i] = (float)((double)prob[i] / sum);
    return (double)largest + log(sum);
}

static void run(const struct plain *p)
{
    const int32_t *labels = p->in[SOFTMAX_XENT_LABELS];
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = plain_read(p, SOFTMAX_XENT_LOGITS, r * c, c, p->scratch);
        const int correct = loss_first_largest(x, c) == labels[r];
        const double log_sum = softmax_row(
            x, p->out[SOFTMAX_XENT_PROB] ? (float *)p->out[SOFTMAX_XENT_PROB] + r * c : NULL, c);

        if (labels[r] != SAMPLE_IGNORED)
            loss_count(p->in[SOFTMAX_XENT_METRICS],
                       row_loss(x, c, labels[r], (double)p->attr.loss.label_smoothing, log_sum),
                       correct);
    }
}

int cpu_make_softmax_xent(struct cpu *b, const struct graph *g, const struct node *n,
                          struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, plain_room_of(g, n->in[SOFTMAX_XENT_LOGITS]), out, err);
}

/* dx = (prob - t) * scale, or 0 for an ignored row.  dx may be prob. */
static void grad_row(const float *prob, float *dx, int64_t c, int32_t label, float smoothing,
                     float scale)
{
    const float others = smoothing / (float)c;

    if (label == SAMPLE_IGNORED) {
        memset(dx, 0, (size_t)c * sizeof *dx);
        return;
    }
    for (int64_t i = 0; i < c; i++)
        dx[i] = (prob[i] - (i == label ? 1.0f - smoothing + others : others)) * scale;
}

static void run_grad(const struct plain *p)
{
    const int32_t *labels = p->in[SOFTMAX_XENT_GRAD_LABELS];
    const float *prob = p->in[SOFTMAX_XENT_GRAD_PROB],
                scale = plain_loss_scale(p->in[SOFTMAX_XENT_GRAD_SCALARS],
                                         p->in[SOFTMAX_XENT_GRAD_SCALER]);
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        float *dx = plain_dest(p, SOFTMAX_XENT_GRAD_DLOGITS, r * c, p->scratch);

        grad_row(prob + r * c, dx, c, labels[r], p->attr.loss.label_smoothing, scale);
        plain_done(p, SOFTMAX_XENT_GRAD_DLOGITS, r * c, c, p->scratch);
    }
}

int cpu_make_softmax_xent_grad(struct cpu *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run_grad, plain_room_of(g, n->in[SOFTMAX_XENT_GRAD_PROB]), out, err);
}

/* Works row by row, since the gradient may lie where the logits do; the scratch holds one row of
 * prob, and one of the logits or their gradient. */
static void run_train(const struct plain *p)
{
    const float smoothing = p->attr.loss.label_smoothing;
    const float scale =
        plain_loss_scale(p->in[SOFTMAX_XENT_TRAIN_SCALARS], p->in[SOFTMAX_XENT_TRAIN_SCALER]);
    const int32_t *labels = p->in[SOFTMAX_XENT_TRAIN_LABELS];
    const int64_t c = p->c;
    float *prob = p->scratch, *room = prob + c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = plain_read(p, SOFTMAX_XENT_TRAIN_LOGITS, r * c, c, room);
        const double log_sum = softmax_row(x, prob, c);

        if (labels[r] != SAMPLE_IGNORED)
            loss_count(p->in[SOFTMAX_XENT_TRAIN_METRICS],
                       row_loss(x, c, labels[r], (double)smoothing, log_sum),
                       loss_first_largest(x, c) == labels[r]);
        grad_row(prob, plain_dest(p, SOFTMAX_XENT_TRAIN_DLOGITS, r * c, room), c, labels[r],
                 smoothing, scale);
        plain_done(p, SOFTMAX_XENT_TRAIN_DLOGITS, r * c, c, room);
    }
}

int cpu_make_softmax_xent_train(struct cpu *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run_train, 2 * plain_room_of(g, n->in[SOFTMAX_XENT_TRAIN_LOGITS]), out,
                     err);
}
