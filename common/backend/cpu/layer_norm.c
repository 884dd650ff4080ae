/* layer_norm - normalizes each row by its own mean and variance, and computes the gradients.
 *
 * Sums are in double, in LANES lanes that are added in order.  op/layer_norm.c has the formulas;
 * the twin is cuda/layer_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"

enum { LANES = 8 };

static double add_lanes(const double lane[LANES])
{
    double sum = 0;

    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* The sum of (x - shift)^power; power is 1 or 2. */
CPU_CLONES static double sum_row(const float *restrict x, int64_t c, double shift, int power)
{
    double lane[LANES] = {0};

    for (int64_t i = 0; i < c; i++) {
        const double d = (double)x[i] - shift;

        lane[i % LANES] += power == 2 ? d * d : d;
    }
    return add_lanes(lane);
}

static void run(const struct plain *p)
{
    const float *weight = p->in[LAYER_NORM_WEIGHT], *bias = p->in[LAYER_NORM_BIAS];
    const int64_t c = p->c;

    for (int64_t r = 0; r < p->rows; r++) {
        const float *x = (const float *)p->in[LAYER_NORM_X] + r * c;
        float *y = (float *)p->out[LAYER_NORM_Y] + r * c;
        const double mean = sum_row(x, c, 0.0, 1) / (double)c;
        const double var = sum_row(x, c, mean, 2) / (double)c;
        const float m = (float)mean, rstd = (float)(1.0 / sqrt(var + (double)p->attr.norm.eps));

        for (int64_t i = 0; i < c; i++)
            y[i] = (x[i] - m) * rstd * weight[i] + bias[i];
        if (p->out[LAYER_NORM_MEAN])
            ((float *)p->out[LAYER_NORM_MEAN])[r] = m;
        if (p->out[LAYER_NORM_RSTD])
            ((float *)p->out[LAYER_NORM_RSTD])[r] = rstd;
    }
}

int cpu_make_layer_norm(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run, 0, out, err);
}

struct row {
    const float *x, *dy;
    float mean, rstd;
};

CPU_CLONES static void grad_x_row(const struct row *row, const float *restrict weight,
                                  float *restrict dx, int64_t c)
{
    double plain[LANES] = {0}, product[LANES] = {0};
    float avg, avg_product;

    for (int64_t i = 0; i < c; i++) {
        const float xhat = (row->x[i] - row->mean) * row->rstd, d = row->dy[i] * weight[i];

        plain[i % LANES] += (double)d;
        product[i % LANES] += (double)d * (double)xhat;
    }
    avg = (float)(add_lanes(plain) / (double)c);
    avg_product = (float)(add_lanes(product) / (double)c);
    for (int64_t i = 0; i < c; i++) {
        const float xhat = (row->x[i] - row->mean) * row->rstd, d = row->dy[i] * weight[i];

        dx[i] = row->rstd * (d - avg - xhat * avg_product);
    }
}

CPU_CLONES static void grad_weight_row(const struct row *row, double *restrict dweight,
                                       double *restrict dbias, int64_t c)
{
    for (int64_t i = 0; i < c; i++) {
        const float xhat = (row->x[i] - row->mean) * row->rstd;

        dweight[i] += (double)row->dy[i] * (double)xhat;
        dbias[i] += (double)row->dy[i];
    }
}

static void round_to(float *to, const double *from, int64_t n)
{
    for (int64_t i = 0; to && i < n; i++)
        to[i] = (float)from[i];
}

static void run_grad(const struct plain *p)
{
    double *dweight = p->scratch, *dbias = dweight + p->c;
    const int64_t c = p->c;

    memset(dweight, 0, (size_t)(2 * c) * sizeof *dweight);
    for (int64_t r = 0; r < p->rows; r++) {
        const struct row row = {(const float *)p->in[LAYER_NORM_GRAD_X] + r * c,
                                (const float *)p->in[LAYER_NORM_GRAD_DY] + r * c,
                                ((const float *)p->in[LAYER_NORM_GRAD_MEAN])[r],
                                ((const float *)p->in[LAYER_NORM_GRAD_RSTD])[r]};

        if (p->out[LAYER_NORM_GRAD_DWEIGHT] || p->out[LAYER_NORM_GRAD_DBIAS])
            grad_weight_row(&row, dweight, dbias, c);
        if (p->out[LAYER_NORM_GRAD_DX])
            grad_x_row(&row, p->in[LAYER_NORM_GRAD_WEIGHT],
                       (float *)p->out[LAYER_NORM_GRAD_DX] + r * c, c);
    }
    round_to(p->out[LAYER_NORM_GRAD_DWEIGHT], dweight, c);
    round_to(p->out[LAYER_NORM_GRAD_DBIAS], dbias, c);
}

int cpu_make_layer_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    (void)b;
    return plain_new(g, n, run_grad,
                     (size_t)(2 * shape_elements(cpu_in(g, n, LAYER_NORM_GRAD_WEIGHT))) *
                         sizeof(double),
                     out, err);
}
