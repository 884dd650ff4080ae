/* layer_norm - normalizes each row by its own mean and variance, and computes the gradients.
 *
 * The rows are cut into parts for the backend's threads.  Sums are in double: over a row in 8
 * lanes that are added in order, over rows by part, and then over the parts in order.
 * op/layer_norm.c has the formulas; the twin is cuda/layer_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"
#include "tensor/half.h"

/* Two rooms of one row each. */
static size_t rooms_bytes(const struct graph *g, const struct node *n)
{
    return 2 * (size_t)round_up_i64(cpu_in(g, n, 0)->dim[cpu_in(g, n, 0)->n - 1], 16) *
           sizeof(float);
}

/* The sum of (x - shift)^2 or, if not squared, of x - shift. */
static inline double sum_lanes(const float *restrict x, int64_t c, double shift, int squared)
{
    wide total = {0}, d;
    int64_t i = 0;

    for (; i + WIDE_LANES <= c; i += WIDE_LANES) {
        wide_load(&d, x + i);
        d -= shift;
        if (squared)
            d *= d;
        total += d;
    }
    for (int j = 0; i < c; i++, j++) {
        const double last = (double)x[i] - shift;

        total[j] += squared ? last * last : last;
    }
    return wide_sum(&total);
}

CPU_CLONES static double sum_row(const float *x, int64_t c) { return sum_lanes(x, c, 0.0, 0); }

CPU_CLONES static double square_row(const float *x, int64_t c, double mean)
{
    return sum_lanes(x, c, mean, 1);
}

/* y = (x - mean) * rstd * weight + bias */
CPU_CLONES static void cpu_layer_norm_normalise(const float *x, float *y,
                                                const float *restrict weight,
                                                const float *restrict bias, float mean, float rstd,
                                                int64_t c)
{
    for (int64_t i = 0; i < c; i++)
        y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

static void cpu_layer_norm_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    float *room = plain_part_scratch(p, part);
    const int64_t c = p->c;

    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, LAYER_NORM_X, r * c, c, room);
        const double mean = sum_row(x, c) / (double)c;
        const double var = square_row(x, c, mean) / (double)c;
        const float m = (float)mean, rstd = (float)(1.0 / sqrt(var + (double)p->attr.norm.eps));

        cpu_layer_norm_normalise(x, plain_dest(p, LAYER_NORM_Y, r * c, room),
                                 p->in[LAYER_NORM_WEIGHT], p->in[LAYER_NORM_BIAS], m, rstd, c);
        plain_done(p, LAYER_NORM_Y, r * c, c, room);
        if (p->out[LAYER_NORM_MEAN])
            ((float *)p->out[LAYER_NORM_MEAN])[r] = m;
        if (p->out[LAYER_NORM_RSTD])
            ((float *)p->out[LAYER_NORM_RSTD])[r] = rstd;
    }
}

static void cpu_layer_norm_run(const struct plain *p)
{
    plain_split(p, p->rows, p->rows * p->c, cpu_layer_norm_rows);
}

int cpu_make_layer_norm(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_layer_norm_run, 0, rooms_bytes(g, n), out, err);
}

struct row {
    const float *x, *dy;
    float mean, rstd;
};

/* Element i of a row: dy * weight, and the x that it belongs to, normalised. */
static inline void grad_terms(const struct row *row, const float *weight, int64_t i, float *d,
                              float *xhat)
{
    *xhat = (row->x[i] - row->mean) * row->rstd;
    *d = row->dy[i] * weight[i];
}

CPU_CLONES static void grad_x_row(const struct row *row, const float *restrict weight, float *dx,
                                  int64_t c)
{
    wide plain = {0}, product = {0};
    float avg, avg_product, d, xhat;
    int64_t i = 0;

    for (; i + WIDE_LANES <= c; i += WIDE_LANES) {
        const half_lanes ds =
            *(const half_lanes *)(row->dy + i) * *(const half_lanes *)(weight + i);
        const half_lanes xhats = (*(const half_lanes *)(row->x + i) - row->mean) * row->rstd;
        const wide w = __builtin_convertvector(ds, wide);

        plain += w;
        product += w * __builtin_convertvector(xhats, wide);
    }
    for (int j = 0; i < c; i++, j++) {
        grad_terms(row, weight, i, &d, &xhat);
        plain[j] += (double)d;
        product[j] += (double)d * (double)xhat;
    }
    avg = (float)(wide_sum(&plain) / (double)c);
    avg_product = (float)(wide_sum(&product) / (double)c);
    for (i = 0; i < c; i++) {
        grad_terms(row, weight, i, &d, &xhat);
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

/* dweight and dbias of a part's rows stand in its scratch, before its rooms. */
static void cpu_layer_norm_grad_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c;
    double *dweight = plain_part_scratch(p, part), *dbias = dweight + c;
    float *x_room = (float *)(dbias + c), *dy_room = x_room + round_up_i64(c, 16);

    memset(dweight, 0, (size_t)(2 * c) * sizeof *dweight);
    for (int64_t r = from; r < to; r++) {
        const struct row row = {plain_read(p, LAYER_NORM_GRAD_X, r * c, c, x_room),
                                plain_read(p, LAYER_NORM_GRAD_DY, r * c, c, dy_room),
                                ((const float *)p->in[LAYER_NORM_GRAD_MEAN])[r],
                                ((const float *)p->in[LAYER_NORM_GRAD_RSTD])[r]};

        if (p->out[LAYER_NORM_GRAD_DWEIGHT] || p->out[LAYER_NORM_GRAD_DBIAS])
            grad_weight_row(&row, dweight, dbias, c);
        if (!p->out[LAYER_NORM_GRAD_DX])
            continue;
        grad_x_row(&row, p->in[LAYER_NORM_GRAD_WEIGHT],
                   plain_dest(p, LAYER_NORM_GRAD_DX, r * c, dy_room), c);
        plain_done(p, LAYER_NORM_GRAD_DX, r * c, c, dy_room);
    }
}

/* Write the sum of the parts' vectors, C doubles from number `at` of their scratch, to out[i]. */
static void cpu_layer_norm_add_parts(const struct plain *p, int n_parts, int64_t at, int i)
{
    for (int64_t k = 0; p->out[i] && k < p->c; k++) {
        double sum = 0;

        for (int j = 0; j < n_parts; j++)
            sum += ((const double *)plain_part_scratch(p, j))[at + k];
        real_put(p->out[i], p->out_type[i], k, (float)sum);
    }
}

static void cpu_layer_norm_run_grad(const struct plain *p)
{
    const int64_t work = 2 * p->rows * p->c;
    const int n_parts = plain_parts(p, p->rows, work);

    plain_split(p, p->rows, work, cpu_layer_norm_grad_rows);
    cpu_layer_norm_add_parts(p, n_parts, 0, LAYER_NORM_GRAD_DWEIGHT);
    cpu_layer_norm_add_parts(p, n_parts, p->c, LAYER_NORM_GRAD_DBIAS);
}

int cpu_make_layer_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    const int64_t c = shape_elements(cpu_in(g, n, LAYER_NORM_GRAD_WEIGHT));

    return plain_new_split(b, g, n, cpu_layer_norm_run_grad, 0,
                           (size_t)(2 * c) * sizeof(double) + rooms_bytes(g, n), out, err);
}
