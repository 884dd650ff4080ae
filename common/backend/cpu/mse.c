/* mse - the mean squared error and its gradient; the sum of a row is in double.
 *
 * op/mse.c has the formulas; the twin is cuda/mse.cu. */
#include "backend/cpu/loss.h"
#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const int32_t *labels = p->in[MSE_LABELS];
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *y = plain_read(p, MSE_Y, r * c, c, p->scratch);
        const int correct = loss_first_largest(y, c) == labels[r];
        double sum = 0;

        for (int64_t i = 0; i < c; i++) {
            const float diff = y[i] - (i == labels[r] ? 1.0f : 0.0f);

            sum += (double)diff * (double)diff;
            if (p->out[MSE_DIFF])
                ((float *)p->out[MSE_DIFF])[r * c + i] = diff;
        }
        loss_count(p->in[MSE_METRICS], sum / (double)c, correct);
    }
}

int cpu_make_mse(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    (void)b;
    return plain_new(g, n, run, plain_room_of(g, n->in[MSE_Y]), out, err);
}

static void run_grad(const struct plain *p)
{
    const float scale = plain_loss_scale(p->in[MSE_GRAD_SCALARS], p->in[MSE_GRAD_SCALER]);
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *diff = (const float *)p->in[MSE_GRAD_DIFF] + r * c;
        float *dy = plain_dest(p, MSE_GRAD_DY, r * c, p->scratch);

        for (int64_t i = 0; i < c; i++)
            dy[i] = diff[i] * (2.0f / (float)c) * scale;
        plain_done(p, MSE_GRAD_DY, r * c, c, p->scratch);
    }
}

int cpu_make_mse_grad(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run_grad, plain_room_of(g, n->in[MSE_GRAD_DIFF]), out, err);
}
