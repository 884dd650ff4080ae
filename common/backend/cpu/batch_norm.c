/* batch_norm - batch norm from given sums, which oneDNN does not offer.
 *
 * The rows are cut into parts for the backend's threads.  Each part sums its rows in double, row by
 * row, into its own scratch, and the parts' sums are then added in their order.  A part works in
 * pieces of a few rows (plain.h), and its scratch has the rooms for them behind its sums.
 *
 * Memory is the limit here, so what comes after a batch norm (a sum, a relu) is fused into its
 * pass, and the gradient computes the relu's signs anew from x instead of reading its output.
 *
 * op/batch_norm.c has the formulas; the twin is cuda/batch_norm.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"
#include "base/util.h"
#include "tensor/half.h"

/* Room number k of the part, behind its sums (n_sums doubles). */
static float *cpu_batch_norm_room_of(const struct plain *p, int part, int64_t n_sums, int k)
{
    char *scratch = plain_part_scratch(p, part);

    return (float *)(scratch + (size_t)n_sums * sizeof(double) +
                     (size_t)k * plain_room_bytes(p->c));
}

/* Add the sums of all parts, [2C] each, in the order of the parts. */
static void cpu_batch_norm_add_parts(const struct plain *p, int n_parts, double *to)
{
    memset(to, 0, (size_t)(2 * p->c) * sizeof *to);
    for (int i = 0; i < n_parts; i++) {
        const double *part = plain_part_scratch(p, i);

        for (int64_t k = 0; k < 2 * p->c; k++)
            to[k] += part[k];
    }
}

/* Vector instructions, roughly, of a pass over x. */
static int64_t cpu_batch_norm_work_of(const struct plain *p) { return p->rows * p->c / 4; }

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
    float *room = cpu_batch_norm_room_of(p, part, 2 * c, 0);

    memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        add_stats(plain_read(p, BATCH_NORM_STATS_X, r * c, n * c, room),
                  p->in[BATCH_NORM_STATS_RUNNING_MEAN], sum, sum + c, n, c);
    }
}

static void cpu_batch_norm_run_stats(const struct plain *p)
{
    double *sums = p->out[BATCH_NORM_STATS_SUMS];

    plain_split(p, p->rows, cpu_batch_norm_work_of(p), stats_of_rows);
    cpu_batch_norm_add_parts(p, plain_parts(p, p->rows, cpu_batch_norm_work_of(p)), sums);
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
    return plain_new_split(b, g, n, cpu_batch_norm_run_stats, 0,
                           part_bytes(g, n, BATCH_NORM_STATS_RUNNING_MEAN, 1), out, err);
}

/* Mean and variance of channel i from the sums, which are of x - m. */
static void cpu_batch_norm_moments(const double *sums, const float *m, int64_t c, int64_t i,
                                   double *mean, double *var)
{
    const double n = sums[2 * c], shift = sums[i] / n;

    *mean = (double)m[i] + shift;
    *var = fmax(sums[c + i] / n - shift * shift, 0.0);
}

/* By channel; y may be x. */
struct affine {
    const float *mean, *scale, *bias;
};

static inline float affine_at(struct affine a, float x, int64_t i)
{
    return (x - a.mean[i]) * a.scale[i] + a.bias[i];
}

CPU_CLONES static void affine_row(const float *x, float *y, struct affine a, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        y[i] = affine_at(a, x[i], i);
}

CPU_CLONES static void affine_relu_row(const float *x, float *y, struct affine a, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++) {
        const float v = affine_at(a, x[i], i);

        y[i] = v < 0.0f ? 0.0f : v;
    }
}

CPU_CLONES static void affine_add_row(const float *x, const float *add, float *y, struct affine a,
                                      int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        y[i] = affine_at(a, x[i], i) + add[i];
}

CPU_CLONES static void affine_add_relu_row(const float *x, const float *add, float *y,
                                           struct affine a, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++) {
        const float v = affine_at(a, x[i], i) + add[i];

        y[i] = v < 0.0f ? 0.0f : v;
    }
}

/* y = act((x - mean) * scale + bias + add); add may be NULL. */
static void cpu_batch_norm_normalise(const float *x, const float *add, float *y, struct affine a,
                                     enum activation act, int64_t rows, int64_t c)
{
    for (int64_t at = 0; at < rows * c; at += c)
        if (add && act == ACT_RELU)
            affine_add_relu_row(x + at, add + at, y + at, a, c);
        else if (add)
            affine_add_row(x + at, add + at, y + at, a, c);
        else if (act == ACT_RELU)
            affine_relu_row(x + at, y + at, a, c);
        else
            affine_row(x + at, y + at, a, c);
}

/* Normalise rows [from, to).  add: the number of that operand. */
static void normalise_rows(const struct plain *p, int part, int64_t from, int64_t to,
                           struct affine a, int add)
{
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *room = cpu_batch_norm_room_of(p, part, 0, 0),
          *add_room = cpu_batch_norm_room_of(p, part, 0, 1);

    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);

        cpu_batch_norm_normalise(plain_read(p, 0, r * c, n * c, room),
                                 p->in[add] ? plain_read(p, add, r * c, n * c, add_room) : NULL,
                                 plain_dest(p, 0, r * c, room), a, p->attr.norm.act, n, c);
        plain_done(p, 0, r * c, n * c, room);
    }
}

/* The factor of a channel, as float; the gradient must get the same bits as the forward pass. */
static float cpu_batch_norm_scale_of(float weight, double var, float eps)
{
    return (float)((double)weight / sqrt(var + (double)eps));
}

/* Writes the next running statistics, and this step's mean and scale of each channel. */
static void cpu_batch_norm_prepare(const struct plain *p, float *mean_out, float *scale)
{
    const double *sums = p->in[BATCH_NORM_SUMS];
    const float *weight = p->in[BATCH_NORM_WEIGHT], *m = p->in[BATCH_NORM_RUNNING_MEAN],
                *v = p->in[BATCH_NORM_RUNNING_VAR];
    float *next_m = p->out[BATCH_NORM_NEXT_MEAN], *next_v = p->out[BATCH_NORM_NEXT_VAR];
    const double n = sums[2 * p->c], momentum = (double)p->attr.norm.momentum;

    for (int64_t i = 0; i < p->c; i++) {
        double mean = (double)m[i], var = (double)v[i];

        next_m[i] = m[i];
        next_v[i] = v[i];
        if (n > 0)
            cpu_batch_norm_moments(sums, m, p->c, i, &mean, &var);
        if (n > 1) { /* one value has no variance */
            next_m[i] = (float)((1 - momentum) * (double)m[i] + momentum * mean);
            next_v[i] = (float)((1 - momentum) * (double)v[i] + momentum * (var * n / (n - 1)));
        }
        mean_out[i] = (float)mean;
        scale[i] = cpu_batch_norm_scale_of(weight[i], var, p->attr.norm.eps);
    }
}

static void cpu_batch_norm_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const float *mean = p->scratch;

    normalise_rows(p, part, from, to, (struct affine){mean, mean + p->c, p->in[BATCH_NORM_BIAS]},
                   BATCH_NORM_ADD);
}

static void cpu_batch_norm_run(const struct plain *p)
{
    float *mean = p->scratch, *scale = mean + p->c;

    cpu_batch_norm_prepare(p, mean, scale);
    plain_split(p, p->rows, cpu_batch_norm_work_of(p), cpu_batch_norm_rows);
}

int cpu_make_batch_norm(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_batch_norm_run,
                           (size_t)(2 * shape_elements(cpu_in(g, n, BATCH_NORM_WEIGHT))) *
                               sizeof(float),
                           2 * plain_room_of(g, n->in[BATCH_NORM_X]), out, err);
}

static void infer_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    normalise_rows(p, part, from, to,
                   (struct affine){p->in[BATCH_NORM_INFER_RUNNING_MEAN], p->scratch,
                                   p->in[BATCH_NORM_INFER_BIAS]},
                   BATCH_NORM_INFER_ADD);
}

static void cpu_batch_norm_run_infer(const struct plain *p)
{
    const float *weight = p->in[BATCH_NORM_INFER_WEIGHT], *v = p->in[BATCH_NORM_INFER_RUNNING_VAR];
    float *scale = p->scratch;

    for (int64_t i = 0; i < p->c; i++)
        scale[i] = cpu_batch_norm_scale_of(weight[i], (double)v[i], p->attr.norm.eps);
    plain_split(p, p->rows, cpu_batch_norm_work_of(p), infer_rows);
}

int cpu_make_batch_norm_infer(struct cpu *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_batch_norm_run_infer,
                           (size_t)shape_elements(cpu_in(g, n, BATCH_NORM_INFER_WEIGHT)) *
                               sizeof(float),
                           2 * plain_room_of(g, n->in[BATCH_NORM_INFER_X]), out, err);
}

CPU_CLONES static void scale_row(const float *w, float *to, float scale, int64_t n)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        to[i] = w[i] * scale;
}

/* Rows [from, to) of the filter, one for each channel, and their shifts. */
static void fold_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const float *weight = p->in[BATCH_NORM_FOLD_WEIGHT], *bias = p->in[BATCH_NORM_FOLD_BIAS];
    const float *m = p->in[BATCH_NORM_FOLD_RUNNING_MEAN], *v = p->in[BATCH_NORM_FOLD_RUNNING_VAR];
    const void *b = p->in[BATCH_NORM_FOLD_B];
    const struct shape *w = &p->in_shape[BATCH_NORM_FOLD_W];
    const int64_t each = shape_elements(w) / w->dim[0];
    float *room = plain_part_scratch(p, part);

    for (int64_t c = from; c < to; c++) {
        const float scale = cpu_batch_norm_scale_of(weight[c], (double)v[c], p->attr.norm.eps);
        const float own = b ? real_get(b, p->in_type[BATCH_NORM_FOLD_B], c) : 0.0f;

        for (int64_t at = c * each, n; at < (c + 1) * each; at += n) {
            n = min_i64((c + 1) * each - at, PLAIN_PIECE);
            scale_row(plain_read(p, BATCH_NORM_FOLD_W, at, n, room),
                      plain_dest(p, BATCH_NORM_FOLD_FILTER, at, room), scale, n);
            plain_done(p, BATCH_NORM_FOLD_FILTER, at, n, room);
        }
        real_put(p->out[BATCH_NORM_FOLD_SHIFT], p->out_type[BATCH_NORM_FOLD_SHIFT], c,
                 (own - m[c]) * scale + bias[c]);
    }
}

static void cpu_batch_norm_run_fold(const struct plain *p)
{
    plain_split(p, p->in_shape[BATCH_NORM_FOLD_W].dim[0], cpu_batch_norm_work_of(p), fold_rows);
}

int cpu_make_batch_norm_fold(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_batch_norm_run_fold, 0, PLAIN_PIECE * sizeof(float), out,
                           err);
}

/* The numbers of each channel that the gradients read.  `signs` gives the sign of a fused relu's
 * input, with the same bits as in the forward pass. */
struct channels {
    double *mean, *rstd; /* rstd = 1 / sqrt(var + eps) */
    struct affine signs;
};

static size_t channels_bytes(const struct graph *g, const struct node *n)
{
    return (size_t)(2 * shape_elements(cpu_in(g, n, BATCH_NORM_GRAD_RUNNING_MEAN))) *
           (sizeof(double) + sizeof(float));
}

/* The scratch as channels. */
static struct channels channels_at(const struct plain *p, int bias)
{
    double *mean = p->scratch;
    float *f = (float *)(mean + 2 * p->c);

    return (struct channels){mean, mean + p->c, {f, f + p->c, p->in[bias]}};
}

/* Fill the scratch.  weight NULL: there is no fused relu. */
static struct channels find_channels(const struct plain *p, const float *weight, int bias)
{
    const double *sums = p->in[BATCH_NORM_GRAD_SUMS];
    const float *m = p->in[BATCH_NORM_GRAD_RUNNING_MEAN];
    struct channels ch = channels_at(p, bias);
    float *mean = (float *)(ch.rstd + p->c), *scale = mean + p->c;

    for (int64_t i = 0; i < p->c; i++) {
        double var;

        cpu_batch_norm_moments(sums, m, p->c, i, &ch.mean[i], &var);
        ch.rstd[i] = 1.0 / sqrt(var + (double)p->attr.norm.eps);
        if (weight) {
            mean[i] = (float)ch.mean[i];
            scale[i] = cpu_batch_norm_scale_of(weight[i], var, p->attr.norm.eps);
        }
    }
    return ch;
}

/* to = 0 where the relu's input is not positive, else dy, also where it is NaN; to may be dy. */
CPU_CLONES static void mask_row(const float *x, const float *dy, float *to, struct affine a,
                                int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        to[i] = affine_at(a, x[i], i) <= 0.0f ? 0.0f : dy[i];
}

/* dy of n rows, masked in `room` if the node has a fused relu. */
static const float *cpu_batch_norm_masked(const struct plain *p, const float *x, const float *dy,
                                          float *room, struct affine a, int64_t n)
{
    if (p->attr.norm.act != ACT_RELU)
        return dy;
    for (int64_t at = 0; at < n * p->c; at += p->c)
        mask_row(x + at, dy + at, room + at, a, p->c);
    return room;
}

/* sum += dy and product += dy * (x - mean) * rstd, by channel. */
CPU_CLONES static void add_grad_stats(const float *restrict x, const float *restrict dy,
                                      const double *restrict mean, const double *restrict rstd,
                                      double *restrict sum, double *restrict product, int64_t c)
{
    for (int64_t i = 0; i < c; i++) {
        const double d = (double)dy[i];

        sum[i] += d;
        product[i] += d * (((double)x[i] - mean[i]) * rstd[i]);
    }
}

static void grad_sums_of_rows(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct channels ch = channels_at(p, BATCH_NORM_GRAD_STATS_BIAS);
    double *sum = plain_part_scratch(p, part);
    const int64_t c = p->c, piece = plain_piece_rows(c);
    float *x_room = cpu_batch_norm_room_of(p, part, 2 * c, 0),
          *dy_room = cpu_batch_norm_room_of(p, part, 2 * c, 1);

    memset(sum, 0, (size_t)(2 * c) * sizeof *sum);
    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);
        const float *x = plain_read(p, BATCH_NORM_GRAD_STATS_X, r * c, n * c, x_room);
        const float *dy = plain_read(p, BATCH_NORM_GRAD_STATS_DY, r * c, n * c, dy_room);

        dy = cpu_batch_norm_masked(p, x, dy, dy_room, ch.signs, n);
        for (int64_t at = 0; at < n * c; at += c)
            add_grad_stats(x + at, dy + at, ch.mean, ch.rstd, sum, sum + c, c);
    }
}

/* Write C sums to out[i], if it is wanted. */
static void round_to(const struct plain *p, int i, const double *sums)
{
    for (int64_t k = 0; p->out[i] && k < p->c; k++)
        real_put(p->out[i], p->out_type[i], k, (float)sums[k]);
}

static void cpu_batch_norm_run_grad_stats(const struct plain *p)
{
    double *gsums = p->out[BATCH_NORM_GRAD_STATS_GSUMS];

    (void)find_channels(p, p->in[BATCH_NORM_GRAD_STATS_WEIGHT], BATCH_NORM_GRAD_STATS_BIAS);
    plain_split(p, p->rows, cpu_batch_norm_work_of(p), grad_sums_of_rows);
    cpu_batch_norm_add_parts(p, plain_parts(p, p->rows, cpu_batch_norm_work_of(p)), gsums);
    round_to(p, BATCH_NORM_GRAD_STATS_DWEIGHT, gsums + p->c);
    round_to(p, BATCH_NORM_GRAD_STATS_DBIAS, gsums);
}

int cpu_make_batch_norm_grad_stats(struct cpu *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_batch_norm_run_grad_stats, channels_bytes(g, n),
                           part_bytes(g, n, BATCH_NORM_GRAD_STATS_RUNNING_MEAN, 2), out, err);
}

/* By channel, for dx = a * (dy - b - (x - mean) * d). */
struct slopes {
    const float *a, *b, *mean, *d;
};

/* Behind the channels in the scratch. */
static float *slopes_at(const struct plain *p)
{
    return (float *)((double *)p->scratch + 2 * p->c) + 2 * p->c;
}

/* dx may be dy. */
CPU_CLONES static void cpu_batch_norm_grad_row(const float *x, const float *dy, float *dx,
                                               struct slopes s, int64_t c)
{
    CPU_INDEPENDENT
    for (int64_t i = 0; i < c; i++)
        dx[i] = s.a[i] * (dy[i] - s.b[i] - (x[i] - s.mean[i]) * s.d[i]);
}

static void cpu_batch_norm_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct channels ch = channels_at(p, BATCH_NORM_GRAD_BIAS);
    const int64_t c = p->c, piece = plain_piece_rows(c);
    const float *k = slopes_at(p);
    const struct slopes s = {k, k + c, k + 2 * c, k + 3 * c};
    float *x_room = cpu_batch_norm_room_of(p, part, 0, 0),
          *dy_room = cpu_batch_norm_room_of(p, part, 0, 1);

    for (int64_t r = from; r < to; r += piece) {
        const int64_t n = min_i64(to - r, piece);
        const float *x = plain_read(p, BATCH_NORM_GRAD_X, r * c, n * c, x_room);
        const float *dy = plain_read(p, BATCH_NORM_GRAD_DY, r * c, n * c, dy_room);
        float *dx = plain_dest(p, BATCH_NORM_GRAD_DX, r * c, dy_room);

        dy = cpu_batch_norm_masked(p, x, dy, dy_room, ch.signs, n);
        for (int64_t at = 0; at < n * c; at += c)
            cpu_batch_norm_grad_row(x + at, dy + at, dx + at, s, c);
        plain_done(p, BATCH_NORM_GRAD_DX, r * c, n * c, dy_room);
    }
}

static void cpu_batch_norm_run_grad(const struct plain *p)
{
    const double *gsums = p->in[BATCH_NORM_GRAD_GSUMS],
                 n = ((const double *)p->in[BATCH_NORM_GRAD_SUMS])[2 * p->c];
    const float *weight = p->in[BATCH_NORM_GRAD_WEIGHT];
    const struct channels ch =
        find_channels(p, p->in[BATCH_NORM_GRAD_BIAS] ? weight : NULL, BATCH_NORM_GRAD_BIAS);
    const int64_t c = p->c;
    float *k = slopes_at(p);

    for (int64_t i = 0; i < c; i++) {
        k[i] = (float)((double)weight[i] * ch.rstd[i]);
        k[c + i] = (float)(gsums[i] / n);
        k[2 * c + i] = (float)ch.mean[i];
        k[3 * c + i] = (float)(ch.rstd[i] * (gsums[c + i] / n));
    }
    plain_split(p, p->rows, cpu_batch_norm_work_of(p), cpu_batch_norm_grad_part);
}

int cpu_make_batch_norm_grad(struct cpu *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    const size_t slopes =
        (size_t)(4 * shape_elements(cpu_in(g, n, BATCH_NORM_GRAD_WEIGHT))) * sizeof(float);

    return plain_new_split(b, g, n, cpu_batch_norm_run_grad, channels_bytes(g, n) + slopes,
                           2 * plain_room_of(g, n->in[BATCH_NORM_GRAD_X]), out, err);
}
