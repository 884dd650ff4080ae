/* group_norm - a sample at a time: sums are made for each channel, and then put together for each
 * group, so that the loops run along the channels, which are neighbours in memory.
 *
 * op/group_norm.c has the formulas; the twin is cuda/group_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "tensor/half.h"

/* A node's numbers: N samples of P pixels and C channels, G groups of D channels. */
struct extents {
    int64_t n, pixels, c, groups, d;
};

static struct extents cpu_group_norm_extents_of(const struct plain *p)
{
    const struct shape *x = &p->in_shape[0];
    struct extents e = {.n = x->dim[0], .c = p->c, .groups = p->attr.group_norm.groups};

    e.pixels = p->rows / e.n;
    e.d = e.c / e.groups;
    return e;
}

/* Replace the sums of the channels by the sum of their group, for each channel. */
static void sum_groups(const struct extents *e, double *sum)
{
    for (int64_t from = 0; from < e->c; from += e->d) {
        double total = 0;

        for (int64_t c = from; c < from + e->d; c++)
            total += sum[c];
        for (int64_t c = from; c < from + e->d; c++)
            sum[c] = total;
    }
}

/* ---- forward ---- */

CPU_CLONES static void cpu_group_norm_add(const float *x, double *sum, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        sum[c] += (double)x[c];
}

CPU_CLONES static void cpu_group_norm_add_squares(const float *x, const double *mean, double *sum,
                                                  int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        const double d = (double)x[c] - mean[c];

        sum[c] += d * d;
    }
}

CPU_CLONES static void cpu_group_norm_scale(const float *x, const double *mean, const float *factor,
                                            const float *bias, float *y, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        y[c] = (float)((double)x[c] - mean[c]) * factor[c] + bias[c];
}

/* The scratch of a part, with C elements in each array. */
struct work {
    double *mean, *square;
    float *factor, *bias, *x, *dy, *y;
};

static struct work cpu_group_norm_work_of(const struct plain *p, int part, int64_t c)
{
    double *d = plain_part_scratch(p, part);
    float *f = (float *)(d + 2 * c);

    return (struct work){d, d + c, f, f + c, f + 2 * c, f + 3 * c, f + 4 * c};
}

static size_t work_bytes(int64_t c) { return (size_t)c * (2 * sizeof(double) + 5 * sizeof(float)); }

/* The mean of each channel's group, and the factor rstd * weight. */
static void cpu_group_norm_measure(const struct plain *p, const struct extents *e, int64_t sample,
                                   const struct work *w)
{
    const double count = (double)(e->pixels * e->d);
    const float *weight = p->in[GROUP_NORM_WEIGHT], *bias = p->in[GROUP_NORM_BIAS];
    float *mean = p->out[GROUP_NORM_MEAN], *rstd = p->out[GROUP_NORM_RSTD];
    const int64_t first = sample * e->pixels;

    memset(w->mean, 0, (size_t)e->c * sizeof *w->mean);
    memset(w->square, 0, (size_t)e->c * sizeof *w->square);
    for (int64_t i = 0; i < e->pixels; i++)
        cpu_group_norm_add(plain_read(p, GROUP_NORM_X, (first + i) * e->c, e->c, w->x), w->mean,
                           e->c);
    sum_groups(e, w->mean);
    for (int64_t c = 0; c < e->c; c++)
        w->mean[c] /= count;
    for (int64_t i = 0; i < e->pixels; i++)
        cpu_group_norm_add_squares(plain_read(p, GROUP_NORM_X, (first + i) * e->c, e->c, w->x),
                                   w->mean, w->square, e->c);
    sum_groups(e, w->square);
    for (int64_t c = 0; c < e->c; c++) {
        const float r = (float)(1 / sqrt(w->square[c] / count + (double)p->attr.group_norm.eps));
        const int64_t at = sample * e->groups + c / e->d;

        w->factor[c] = r * (weight ? weight[c] : 1.0f);
        w->bias[c] = bias ? bias[c] : 0.0f;
        if (mean)
            mean[at] = (float)w->mean[c];
        if (rstd)
            rstd[at] = r;
    }
}

static void norm_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct extents e = cpu_group_norm_extents_of(p);
    const struct work w = cpu_group_norm_work_of(p, part, e.c);

    for (int64_t sample = from; sample < to; sample++) {
        cpu_group_norm_measure(p, &e, sample, &w);
        for (int64_t i = sample * e.pixels; i < (sample + 1) * e.pixels; i++) {
            cpu_group_norm_scale(plain_read(p, GROUP_NORM_X, i * e.c, e.c, w.x), w.mean, w.factor,
                                 w.bias, plain_dest(p, GROUP_NORM_Y, i * e.c, w.y), e.c);
            plain_done(p, GROUP_NORM_Y, i * e.c, e.c, w.y);
        }
    }
}

static void cpu_group_norm_run(const struct plain *p)
{
    plain_split(p, p->in_shape[0].dim[0], p->rows * p->c / 2, norm_part);
}

int cpu_make_group_norm(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    const struct shape *x = cpu_in(g, n, GROUP_NORM_X);

    return plain_new_split(b, g, n, cpu_group_norm_run, 0, work_bytes(x->dim[x->n - 1]), out, err);
}

/* ---- gradient ---- */

CPU_CLONES static void add_grads(const float *x, const float *dy, const float *mean,
                                 const float *rstd, double *product, double *plain, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        plain[c] += (double)dy[c];
        product[c] += (double)dy[c] * (double)((x[c] - mean[c]) * rstd[c]);
    }
}

CPU_CLONES static void cpu_group_norm_grad_row(const float *x, const float *dy,
                                               const struct work *w, const float *rstd,
                                               const float *weight, float *dx, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        const float xhat = (x[c] - w->factor[c]) * rstd[c];

        dx[c] = rstd[c] * (dy[c] * weight[c] - (float)w->mean[c] - xhat * (float)w->square[c]);
    }
}

/* The sums of a sample, for each channel: [2,C] doubles, first dy*xhat, then dy. */
static double *cpu_group_norm_sums_of(const struct plain *p, int64_t sample, int64_t c)
{
    return (double *)p->scratch + sample * 2 * c;
}

/* Spread mean, rstd and weight over the channels: into w->factor, w->bias and w->y. */
static void cpu_group_norm_spread(const struct plain *p, const struct extents *e, int64_t sample,
                                  const struct work *w)
{
    const float *mean = (const float *)p->in[GROUP_NORM_GRAD_MEAN] + sample * e->groups;
    const float *rstd = (const float *)p->in[GROUP_NORM_GRAD_RSTD] + sample * e->groups;
    const float *weight = p->in[GROUP_NORM_GRAD_WEIGHT];

    for (int64_t c = 0; c < e->c; c++) {
        w->factor[c] = mean[c / e->d];
        w->bias[c] = rstd[c / e->d];
        w->y[c] = weight ? weight[c] : 1.0f;
    }
}

static void write_dx(const struct plain *p, const struct extents *e, int64_t sample,
                     const double *sums, const struct work *w, float *room)
{
    const double count = (double)(e->pixels * e->d);

    for (int64_t c = 0; c < e->c; c++) {
        w->square[c] = (double)w->y[c] * sums[c] / count;
        w->mean[c] = (double)w->y[c] * sums[e->c + c] / count;
    }
    sum_groups(e, w->square);
    sum_groups(e, w->mean);
    for (int64_t i = sample * e->pixels; i < (sample + 1) * e->pixels; i++) {
        const float *x = plain_read(p, GROUP_NORM_GRAD_X, i * e->c, e->c, w->x);
        const float *dy = plain_read(p, GROUP_NORM_GRAD_DY, i * e->c, e->c, w->dy);

        cpu_group_norm_grad_row(x, dy, w, w->bias, w->y,
                                plain_dest(p, GROUP_NORM_GRAD_DX, i * e->c, room), e->c);
        plain_done(p, GROUP_NORM_GRAD_DX, i * e->c, e->c, room);
    }
}

static void cpu_group_norm_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct extents e = cpu_group_norm_extents_of(p);
    const struct work w = cpu_group_norm_work_of(p, part, e.c);

    for (int64_t sample = from; sample < to; sample++) {
        double *sums = cpu_group_norm_sums_of(p, sample, e.c);

        cpu_group_norm_spread(p, &e, sample, &w);
        memset(sums, 0, 2 * (size_t)e.c * sizeof *sums);
        for (int64_t i = sample * e.pixels; i < (sample + 1) * e.pixels; i++)
            add_grads(plain_read(p, GROUP_NORM_GRAD_X, i * e.c, e.c, w.x),
                      plain_read(p, GROUP_NORM_GRAD_DY, i * e.c, e.c, w.dy), w.factor, w.bias, sums,
                      sums + e.c, e.c);
        if (p->out[GROUP_NORM_GRAD_DX])
            write_dx(p, &e, sample, sums, &w, w.y + e.c);
    }
}

/* The gradients of weight and bias: the sums of all samples, in their order. */
static void cpu_group_norm_run_grad(const struct plain *p)
{
    const struct extents e = cpu_group_norm_extents_of(p);

    plain_split(p, e.n, p->rows * p->c, cpu_group_norm_grad_part);
    for (int which = 0; which < 2; which++) {
        const int out = which ? GROUP_NORM_GRAD_DBIAS : GROUP_NORM_GRAD_DWEIGHT;

        for (int64_t c = 0; p->out[out] && c < e.c; c++) {
            double sum = 0;

            for (int64_t sample = 0; sample < e.n; sample++)
                sum += cpu_group_norm_sums_of(p, sample, e.c)[which * e.c + c];
            real_put(p->out[out], p->out_type[out], c, (float)sum);
        }
    }
}

int cpu_make_group_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    const struct shape *x = cpu_in(g, n, GROUP_NORM_GRAD_X);
    const int64_t c = x->dim[x->n - 1];

    return plain_new_split(b, g, n, cpu_group_norm_run_grad,
                           (size_t)(x->dim[0] * 2 * c) * sizeof(double),
                           work_bytes(c) + (size_t)c * sizeof(float), out, err);
}
