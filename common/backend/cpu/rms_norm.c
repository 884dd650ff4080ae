/* rms_norm - divides each row by its root mean square, and computes the gradients.
 *
 * The rows are cut into parts for the backend's threads.  Sums are in double: over a row in 8
 * lanes that are added in order, over rows by part, and then over the parts in order.
 * op/rms_norm.c has the formulas; the twin is cuda/rms_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"
#include "tensor/half.h"

/* The factors of a row's columns: weight, 1 + weight, or 1 (weight NULL). */
static void cpu_rms_norm_factors(const float *weight, int one_plus, float *to, int64_t c)
{
    const float plus = one_plus ? 1.0f : 0.0f;

    for (int64_t i = 0; i < c; i++)
        to[i] = weight ? weight[i] + plus : 1.0f;
}

/* The sum of a * b * w; w NULL: of a * b. */
static inline double cpu_rms_norm_sum(const float *a, const float *b, const float *w, int64_t c)
{
    wide total = {0}, x, y;
    int64_t i = 0;

    for (; i + WIDE_LANES <= c; i += WIDE_LANES) {
        wide_load(&x, a + i);
        wide_load(&y, b + i);
        x *= y;
        if (w) {
            wide_load(&y, w + i);
            x *= y;
        }
        total += x;
    }
    for (int j = 0; i < c; i++, j++)
        total[j] += (double)a[i] * (double)b[i] * (w ? (double)w[i] : 1.0);
    return wide_sum(&total);
}

CPU_CLONES static double cpu_rms_norm_squares(const float *x, int64_t c)
{
    return cpu_rms_norm_sum(x, x, NULL, c);
}

CPU_CLONES static double cpu_rms_norm_product(const float *x, const float *dy, const float *w,
                                              int64_t c)
{
    return cpu_rms_norm_sum(x, dy, w, c);
}

CPU_CLONES static void cpu_rms_norm_scale(const float *x, float *y, const float *restrict w,
                                          float rstd, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        y[i] = x[i] * rstd * w[i];
}

static size_t cpu_rms_norm_rooms(const struct graph *g, const struct node *n)
{
    const struct shape *x = cpu_in(g, n, 0);

    return 3 * (size_t)round_up_i64(x->dim[x->n - 1], 16) * sizeof(float);
}

static void cpu_rms_norm_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c;
    float *room = plain_part_scratch(p, part), *w = room + round_up_i64(c, 16);

    cpu_rms_norm_factors(p->in[RMS_NORM_WEIGHT], p->attr.norm.one_plus, w, c);
    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, RMS_NORM_X, r * c, c, room);
        const double square = cpu_rms_norm_squares(x, c) / (double)c;
        const float rstd = (float)(1.0 / sqrt(square + (double)p->attr.norm.eps));

        cpu_rms_norm_scale(x, plain_dest(p, RMS_NORM_Y, r * c, room), w, rstd, c);
        plain_done(p, RMS_NORM_Y, r * c, c, room);
        if (p->out[RMS_NORM_RSTD])
            ((float *)p->out[RMS_NORM_RSTD])[r] = rstd;
    }
}

static void cpu_rms_norm_run(const struct plain *p)
{
    plain_split(p, p->rows, p->rows * p->c, cpu_rms_norm_rows);
}

int cpu_make_rms_norm(struct cpu *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_rms_norm_run, 0, cpu_rms_norm_rooms(g, n), out, err);
}

/* dx = rstd * (dy * w - x * rstd * average); dx may be dy. */
CPU_CLONES static void cpu_rms_norm_grad_x(const float *restrict x, const float *dy,
                                           const float *restrict w, float rstd, float average,
                                           float *dx, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        dx[i] = rstd * (dy[i] * w[i] - x[i] * rstd * average);
}

CPU_CLONES static void cpu_rms_norm_grad_weight(const float *restrict x, const float *restrict dy,
                                                float rstd, double *restrict dweight, int64_t c)
{
    for (int64_t i = 0; i < c; i++)
        dweight[i] += (double)dy[i] * (double)(x[i] * rstd);
}

/* dweight of a part's rows stands in its scratch, before its rooms. */
static void cpu_rms_norm_grad_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c;
    double *dweight = plain_part_scratch(p, part);
    float *x_room = (float *)(dweight + c), *dy_room = x_room + round_up_i64(c, 16);
    float *w = dy_room + round_up_i64(c, 16);

    memset(dweight, 0, (size_t)c * sizeof *dweight);
    cpu_rms_norm_factors(p->in[RMS_NORM_GRAD_WEIGHT], p->attr.norm.one_plus, w, c);
    for (int64_t r = from; r < to; r++) {
        const float *x = plain_read(p, RMS_NORM_GRAD_X, r * c, c, x_room);
        const float *dy = plain_read(p, RMS_NORM_GRAD_DY, r * c, c, dy_room);
        const float rstd = ((const float *)p->in[RMS_NORM_GRAD_RSTD])[r];

        if (p->out[RMS_NORM_GRAD_DWEIGHT])
            cpu_rms_norm_grad_weight(x, dy, rstd, dweight, c);
        if (!p->out[RMS_NORM_GRAD_DX])
            continue;
        cpu_rms_norm_grad_x(x, dy, w, rstd,
                            (float)(cpu_rms_norm_product(x, dy, w, c) * (double)rstd / (double)c),
                            plain_dest(p, RMS_NORM_GRAD_DX, r * c, dy_room), c);
        plain_done(p, RMS_NORM_GRAD_DX, r * c, c, dy_room);
    }
}

static void cpu_rms_norm_run_grad(const struct plain *p)
{
    const int64_t work = 2 * p->rows * p->c;
    const int n_parts = plain_parts(p, p->rows, work);

    plain_split(p, p->rows, work, cpu_rms_norm_grad_rows);
    for (int64_t k = 0; p->out[RMS_NORM_GRAD_DWEIGHT] && k < p->c; k++) {
        double sum = 0;

        for (int j = 0; j < n_parts; j++)
            sum += ((const double *)plain_part_scratch(p, j))[k];
        real_put(p->out[RMS_NORM_GRAD_DWEIGHT], p->out_type[RMS_NORM_GRAD_DWEIGHT], k, (float)sum);
    }
}

int cpu_make_rms_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                           struct kernel **out, struct err *err)
{
    const struct shape *x = cpu_in(g, n, RMS_NORM_GRAD_X);

    return plain_new_split(b, g, n, cpu_rms_norm_run_grad, 0,
                           (size_t)x->dim[x->n - 1] * sizeof(double) + cpu_rms_norm_rooms(g, n),
                           out, err);
}
