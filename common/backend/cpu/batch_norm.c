/* batch_norm - batch norm from given sums, which oneDNN does not offer.
 *
 * The rows are cut into parts for the backend's threads.  Each part sums its rows in double, row by
 * row, into its own scratch, and the parts' sums are then added in their order.  A part works in
 * pieces of a few rows (plain.h), and its scratch has the rooms for them behind its sums.
 *
 * op/batch_norm.c has the formulas; the twin is cuda/batch_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "tensor/half.h"

/* Room number k of the part, behind its sums (n_sums doubles). */
static float *room_of(const struct plain *p, int part, int64_t n_sums, int k)
{
    char *scratch = plain_part_scratch(p, part);

    return (float *)(scratch + (size_t)n_sums * sizeof(double) +
                     (size_t)k * plain_room_bytes(p->c));
}

/* Add the sums of all parts, [2C] each, in the order of the parts. */
static void add_parts(const struct plain *p, int n_parts, double *to)
{
    memset(to, 0, (size_t)(2 * p->c) * sizeof *to);
    for (int i = 0; i < n_parts; i++) {
        const double *part = plain_part_scratch(p, i);

        for (int64_t k = 0; k < 2 * p->c; k++)
            to[k] += part[k];
    }
}

/* Vector instructions, roughly, of a pass over x. */
static int64_t work_of(const struct plain *p) { return p->rows * p->c / 4; }

/* sum += x - m and square += (x - m)^2, by channel. */
CPU_CLONES static void add_stats(const float *restrict x, const float *restrict m,
                                 double *restrict sum, double *restrict square, int64_t rows,
                                 int64_t c)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++) {
            const double d = (double)x[r * c + i] - (double)m[i];

            sum[i] += d;
            square[i] += d * d;
        }
}

static void stats_of_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    double *sum = plain_part_scratch(p, part);
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *room = room_of(p, part, 2 * c, 0);

    memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        add_stats(plain_read(p, BATCH_NORM_STATS_X, r * c, n * c, room),
                  p->in[BATCH_NORM_STATS_RUNNING_MEAN], sum, sum + c, n, c);
    }
}

static void run_stats(const struct plain *p)
{
    double *sums = p->out[BATCH_NORM_STATS_SUMS];

    plain_split(p, p->rows, work_of(p), stats_of_rows);
    add_parts(p, plain_parts(p, p->rows, work_of(p)), sums);
    sums[2 * p->c] = (double)p->rows;
}

/* Scratch for the sums of 2C channels. */
static size_t sums_bytes(const struct graph *g, const struct node *n, int channels)
{
    return (size_t)(2 * shape_elements(cpu_in(g, n, channels))) * sizeof(double);
}

/* Scratch of each part: the sums, and rooms for pieces of x. */
static size_t part_bytes(const struct graph *g, const struct node *n, int channels, int n_rooms)
{
    return sums_bytes(g, n, channels) + (size_t)n_rooms * plain_room_of(g, n->in[0]);
}

int cpu_make_batch_norm_stats(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, run_stats, 0,
                           part_bytes(g, n, BATCH_NORM_STATS_RUNNING_MEAN, 1), out, err);
}

/* Mean and variance of channel i from the sums, which are of x - m. */
static void moments(const double *sums, const float *m, int64_t c, int64_t i, double *mean,
                    double *var)
{
    const double n = sums[2 * c], shift = sums[i] / n;

    *mean = (double)m[i] + shift;
    *var = fmax(sums[c + i] / n - shift * shift, 0.0);
}

/* y = (x - mean) * scale + bias, by channel. */
CPU_CLONES static void normalise(const float *x, float *y, const float *restrict mean,
                                 const float *restrict scale, const float *restrict bias,
                                 int64_t rows, int64_t c)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++)
            y[r * c + i] = (x[r * c + i] - mean[i]) * scale[i] + bias[i];
}

/* Writes the next running statistics, and this step's mean and scale of each channel. */
static void prepare(const struct plain *p, float *mean_out, float *scale)
{
    const double *sums = p->in[BATCH_NORM_SUMS];
    const float *weight = p->in[BATCH_NORM_WEIGHT], *m = p->in[BATCH_NORM_RUNNING_MEAN],
                *v = p->in[BATCH_NORM_RUNNING_VAR];
    float *next_m = p->out[BATCH_NORM_NEXT_MEAN], *next_v = p->out[BATCH_NORM_NEXT_VAR];
    const double n = sums[2 * p->c], momentum = (double)p->attr.norm.momentum;

    for (int64_t i = 0; i < p->c; i++) {
        double mean = (double)m[i], var = (double)v[i];

        if (n > 0) {
            moments(sums, m, p->c, i, &mean, &var);
            next_m[i] = (float)((1 - momentum) * (double)m[i] + momentum * mean);
            next_v[i] = (float)((1 - momentum) * (double)v[i] +
                                momentum * (n > 1 ? var * n / (n - 1) : var));
        } else {
            next_m[i] = m[i];
            next_v[i] = v[i];
        }
        mean_out[i] = (float)mean;
        scale[i] = (float)((double)weight[i] / sqrt(var + (double)p->attr.norm.eps));
    }
}

static void norm_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const float *mean = p->scratch, *scale = mean + p->c;
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *room = room_of(p, part, 0, 0);

    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        normalise(plain_read(p, BATCH_NORM_X, r * c, n * c, room),
                  plain_dest(p, BATCH_NORM_Y, r * c, room), mean, scale, p->in[BATCH_NORM_BIAS], n,
                  c);
        plain_done(p, BATCH_NORM_Y, r * c, n * c, room);
    }
}

static void run(const struct plain *p)
{
    float *mean = p->scratch, *scale = mean + p->c;

    prepare(p, mean, scale);
    plain_split(p, p->rows, work_of(p), norm_rows);
}

int cpu_make_batch_norm(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    return plain_new_split(
        b, g, n, run, (size_t)(2 * shape_elements(cpu_in(g, n, BATCH_NORM_WEIGHT))) * sizeof(float),
        plain_room_of(g, n->in[BATCH_NORM_X]), out, err);
}

static void infer_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *room = room_of(p, part, 0, 0);

    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        normalise(plain_read(p, BATCH_NORM_INFER_X, r * c, n * c, room),
                  plain_dest(p, BATCH_NORM_INFER_Y, r * c, room),
                  p->in[BATCH_NORM_INFER_RUNNING_MEAN], p->scratch, p->in[BATCH_NORM_INFER_BIAS], n,
                  c);
        plain_done(p, BATCH_NORM_INFER_Y, r * c, n * c, room);
    }
}

static void run_infer(const struct plain *p)
{
    const float *weight = p->in[BATCH_NORM_INFER_WEIGHT], *v = p->in[BATCH_NORM_INFER_RUNNING_VAR];
    float *scale = p->scratch;

    for (int64_t i = 0; i < p->c; i++)
        scale[i] = (float)((double)weight[i] / sqrt((double)v[i] + (double)p->attr.norm.eps));
    plain_split(p, p->rows, work_of(p), infer_rows);
}

int cpu_make_batch_norm_infer(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, run_infer,
                           (size_t)shape_elements(cpu_in(g, n, BATCH_NORM_INFER_WEIGHT)) *
                               sizeof(float),
                           plain_room_of(g, n->in[BATCH_NORM_INFER_X]), out, err);
}

/* Mean and 1/sqrt(var + eps) of each channel. */
static void mean_rstd(const struct plain *p, const double *sums, const float *m, double *mean,
                      double *rstd)
{
    for (int64_t i = 0; i < p->c; i++) {
        double var;

        moments(sums, m, p->c, i, &mean[i], &var);
        rstd[i] = 1.0 / sqrt(var + (double)p->attr.norm.eps);
    }
}

/* sum += dy and product += dy * (x - mean) * rstd, by channel. */
CPU_CLONES static void add_grad_stats(const float *restrict x, const float *restrict dy,
                                      const double *restrict mean, double *restrict sum,
                                      int64_t rows, int64_t c)
{
    const double *restrict rstd = mean + c;
    double *restrict product = sum + c;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++) {
            const double d = (double)dy[r * c + i];

            sum[i] += d;
            product[i] += d * (((double)x[r * c + i] - mean[i]) * rstd[i]);
        }
}

static void grad_sums_of_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    double *sum = plain_part_scratch(p, part);
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *x_room = room_of(p, part, 2 * c, 0), *dy_room = room_of(p, part, 2 * c, 1);

    memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        add_grad_stats(plain_read(p, BATCH_NORM_GRAD_STATS_X, r * c, n * c, x_room),
                       plain_read(p, BATCH_NORM_GRAD_STATS_DY, r * c, n * c, dy_room), p->scratch,
                       sum, n, c);
    }
}

/* Write C sums to out[i], if it is wanted. */
static void round_to(const struct plain *p, int i, const double *sums)
{
    for (int64_t k = 0; p->out[i] && k < p->c; k++)
        real_put(p->out[i], p->out_type[i], k, (float)sums[k]);
}

static void run_grad_stats(const struct plain *p)
{
    double *mean = p->scratch, *rstd = mean + p->c;
    double *gsums = p->out[BATCH_NORM_GRAD_STATS_GSUMS];

    mean_rstd(p, p->in[BATCH_NORM_GRAD_STATS_SUMS], p->in[BATCH_NORM_GRAD_STATS_RUNNING_MEAN], mean,
              rstd);
    plain_split(p, p->rows, work_of(p), grad_sums_of_rows);
    add_parts(p, plain_parts(p, p->rows, work_of(p)), gsums);
    round_to(p, BATCH_NORM_GRAD_STATS_DWEIGHT, gsums + p->c);
    round_to(p, BATCH_NORM_GRAD_STATS_DBIAS, gsums);
}

int cpu_make_batch_norm_grad_stats(struct cpu *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, run_grad_stats,
                           sums_bytes(g, n, BATCH_NORM_GRAD_STATS_RUNNING_MEAN),
                           part_bytes(g, n, BATCH_NORM_GRAD_STATS_RUNNING_MEAN, 2), out, err);
}

/* dx = a * (dy - b - (x - mean) * d), by channel; k holds a, b, mean and d.  dx may be dy. */
CPU_CLONES static void grad_rows(const float *x, const float *dy, float *dx,
                                 const float *restrict k, int64_t rows, int64_t c)
{
    const float *restrict a = k, *restrict b = k + c, *restrict mean = k + 2 * c,
                          *restrict d = k + 3 * c;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++)
            dx[r * c + i] = a[i] * (dy[r * c + i] - b[i] - (x[r * c + i] - mean[i]) * d[i]);
}

static void grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *x_room = room_of(p, part, 0, 0), *dy_room = room_of(p, part, 0, 1);

    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        grad_rows(plain_read(p, BATCH_NORM_GRAD_X, r * c, n * c, x_room),
                  plain_read(p, BATCH_NORM_GRAD_DY, r * c, n * c, dy_room),
                  plain_dest(p, BATCH_NORM_GRAD_DX, r * c, dy_room), p->scratch, n, c);
        plain_done(p, BATCH_NORM_GRAD_DX, r * c, n * c, dy_room);
    }
}

static void run_grad(const struct plain *p)
{
    const double *sums = p->in[BATCH_NORM_GRAD_SUMS], *gsums = p->in[BATCH_NORM_GRAD_GSUMS],
                 n = sums[2 * p->c];
    const float *m = p->in[BATCH_NORM_GRAD_RUNNING_MEAN], *weight = p->in[BATCH_NORM_GRAD_WEIGHT];
    float *k = p->scratch;
    const int64_t c = p->c;

    for (int64_t i = 0; i < c; i++) {
        double mean, var, rstd;

        moments(sums, m, c, i, &mean, &var);
        rstd = 1.0 / sqrt(var + (double)p->attr.norm.eps);
        k[i] = (float)((double)weight[i] * rstd);
        k[c + i] = (float)(gsums[i] / n);
        k[2 * c + i] = (float)mean;
        k[3 * c + i] = (float)(rstd * (gsums[c + i] / n));
    }
    plain_split(p, p->rows, work_of(p), grad_part);
}

int cpu_make_batch_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, run_grad,
                           (size_t)(4 * shape_elements(cpu_in(g, n, BATCH_NORM_GRAD_WEIGHT))) *
                               sizeof(float),
                           2 * plain_room_of(g, n->in[BATCH_NORM_GRAD_X]), out, err);
}
