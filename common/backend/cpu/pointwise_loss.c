/* pointwise_loss - the losses that compare output by output, and their gradient; the sum of a row
 * is in double.
 *
 * op/pointwise_loss.h has the formulas; the twin is cuda/pointwise_loss.cu. */
#include "op/pointwise_loss.h"

#include <string.h>

#include "backend/cpu/loss.h"
#include "backend/cpu/plain.h"

/* The row r of y, with C outputs; t: its targets, or NULL, and then `label` says them. */
static void run_row(const struct plain *p, int64_t r, const float *y, const float *t, int64_t label)
{
    const enum pointwise kind = p->attr.loss.pointwise;
    float *slope = p->out[POINTWISE_LOSS_SLOPE];
    int correct;
    double sum = 0;

    if (!t && label == SAMPLE_IGNORED) {
        if (slope)
            memset(slope + r * p->c, 0, (size_t)p->c * sizeof *slope);
        return;
    }
    correct = t || kind == POINTWISE_GIVEN ? kind == POINTWISE_LOGISTIC
                                           : loss_first_largest(y, p->c) == label;
    for (int64_t i = 0; i < p->c; i++) {
        const float target = t ? t[i] : i == label ? 1.0f : 0.0f;

        sum += pointwise_value(kind, y[i], target);
        if (t)
            correct &= pointwise_agrees(y[i], target);
        if (slope)
            slope[r * p->c + i] = pointwise_slope(kind, y[i], target);
    }
    loss_count(&p->attr, p->in[POINTWISE_LOSS_METRICS], sum / (double)p->c, 1, correct);
}

static void cpu_pointwise_loss_run(const struct plain *p)
{
    const int is_real = p->in_type[POINTWISE_LOSS_TARGET] == DTYPE_F32;
    const int32_t *labels = p->in[POINTWISE_LOSS_TARGET];
    const float *targets = p->in[POINTWISE_LOSS_TARGET];

    for (int64_t r = 0; r < p->rows; r++) {
        const float *y = plain_read(p, POINTWISE_LOSS_Y, r * p->c, p->c, p->scratch);

        run_row(p, r, y, is_real ? targets + r * p->c : NULL, is_real ? 0 : labels[r]);
    }
}

int cpu_make_pointwise_loss(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_pointwise_loss_run, plain_room_of(g, n->in[POINTWISE_LOSS_Y]), out,
                     err);
}

static void cpu_pointwise_loss_run_grad(const struct plain *p)
{
    const float scale =
        plain_loss_scale(p, POINTWISE_LOSS_GRAD_SCALARS, POINTWISE_LOSS_GRAD_SCALER);
    const float factor = pointwise_factor(p->attr.loss.pointwise, p->c);
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *slope = (const float *)p->in[POINTWISE_LOSS_GRAD_SLOPE] + r * c;
        float *dy = plain_dest(p, POINTWISE_LOSS_GRAD_DY, r * c, p->scratch);

        for (int64_t i = 0; i < c; i++)
            dy[i] = slope[i] * factor * scale;
        plain_done(p, POINTWISE_LOSS_GRAD_DY, r * c, c, p->scratch);
    }
}

int cpu_make_pointwise_loss_grad(struct cpu *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, cpu_pointwise_loss_run_grad,
                     plain_room_of(g, n->in[POINTWISE_LOSS_GRAD_SLOPE]), out, err);
}
