#include "backend/cpu/loss.h"
#include "backend/cpu/plain.h"

static void run(const struct plain *p)
{
    const int32_t *labels = p->in[1];
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *y = (const float *)p->in[0] + r * c;
        const int correct = loss_first_largest(y, c) == labels[r];
        double sum = 0;

        for (int64_t i = 0; i < c; i++) {
            const float diff = y[i] - (i == labels[r] ? 1.0f : 0.0f);

            sum += (double)diff * (double)diff;
            if (p->out[0])
                ((float *)p->out[0])[r * c + i] = diff;
        }
        loss_count(p->in[2], sum / (double)c, correct);
    }
}

int cpu_make_mse(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}

static void run_grad(const struct plain *p)
{
    const float *diff = p->in[0], scale = plain_loss_scale(p->in[1], p->in[2]);
    float *dy = p->out[0];

    for (int64_t i = 0; i < p->rows * p->c; i++)
        dy[i] = diff[i] * (2.0f / (float)p->c) * scale;
}

int cpu_make_mse_grad(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run_grad, 0, out, err);
}
