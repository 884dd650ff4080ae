/* The definitions of the strategies that combine the gradients of all ranks, so that all weights
 * stay equal, as the reference simulator plays them. */
#include <math.h>
#include <string.h>

#include "definitions.h"

/* The same for all ranks. */
static void give_all(struct sim *s, const double *g)
{
    for (int r = 0; r < s->n; r++)
        memmove(s->g[r], g, sizeof s->g[r]);
}

void sim_allreduce(struct sim *s)
{
    double sum[SIM_MAX_LEN] = {0};

    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            sum[i] += s->g[r][i];
    give_all(s, sum);
}

/* zero: the sums have the bits of those in rank order, and every update uses the same momentum,
 * whichever rank makes it. */
static void sum_in_order(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++) {
        float sum = (float)s->g[0][i];

        for (int r = 1; r < s->n; r++)
            sum = sum + (float)s->g[r][i];
        for (int r = 0; r < s->n; r++)
            s->g[r][i] = (double)sum;
    }
}

#define MOMENTUM 0.75f

static void update_momentum(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++) {
        const float m = MOMENTUM * (float)s->keep[0][0][i] + (float)s->g[0][i];

        s->keep[0][0][i] = (double)m;
        for (int r = 0; r < s->n; r++)
            s->w[r][i] = (double)((float)s->w[r][i] - SIM_RATE * m);
    }
}

/* shards: the gradients of five shares are added in one binary tree, whatever the number of ranks.
 */
enum { SHARES = 5 };

static float add_shares(const struct sim *s, int64_t i, int first, int width)
{
    const float w = (float)s->w[0][i];

    if (width == 1)
        return sim_gradient(first, SHARES, s->step, i, w);
    if (first + width / 2 >= SHARES)
        return add_shares(s, i, first, width / 2);
    return add_shares(s, i, first, width / 2) + add_shares(s, i, first + width / 2, width / 2);
}

static void sum_shares(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++)
        for (int r = 0; r < s->n; r++)
            s->g[r][i] = (double)add_shares(s, i, 0, 8);
}

/* ---- Adasum ---- */

static double dot(const double *a, const double *b, const struct sim_segment *t)
{
    double sum = 0;

    for (int64_t i = t->at; i < t->at + t->n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* a becomes the combination of a and b, tensor by tensor. */
static void combine_pair(double *a, const double *b)
{
    for (int k = 0; k < sim_space.n_segments; k++) {
        const struct sim_segment *t = &sim_space.segment[k];
        const double ab = dot(a, b, t), aa = dot(a, a, t), bb = dot(b, b, t);

        for (int64_t i = t->at; i < t->at + t->n; i++)
            a[i] =
                (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
    }
}

/* The means over the ranks' own samples, by a tree over pairs: after the round of distance d,
 * every 2d-th rank has what d ranks before and after it gave.  Zeros stand for no samples. */
static void adasum(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            s->g[r][i] *= s->part[r] > 0 ? 1 / s->part[r] : 0;
    for (int d = 1; d < s->n; d *= 2)
        for (int r = 0; r + d < s->n; r += 2 * d)
            combine_pair(s->g[r], s->g[r + d]);
    give_all(s, s->g[0]);
}

/* ---- rounded to 16 bits ---- */

/* v rounded to a binary number of so many digits, ties to even.  The problem's numbers are neither
 * too large for float16 nor, but for a few, too small. */
static double round_to(double v, int digits, double smallest)
{
    int exponent;
    double unit;

    if (v == 0)
        return 0;
    (void)frexp(v, &exponent);
    unit = fmax(ldexp(1, exponent - digits), smallest);
    return rint(v / unit) * unit;
}

/* Each rank's numbers are rounded, and their sum after each rank that is added. */
static void sum_rounded(struct sim *s, int digits, double smallest, double factor)
{
    double sum[SIM_MAX_LEN];

    for (int64_t i = 0; i < sim_space.len; i++) {
        sum[i] = round_to((double)((float)s->g[0][i] * (float)(1 / factor)), digits, smallest);
        for (int r = 1; r < s->n; r++)
            sum[i] = round_to(sum[i] + round_to((double)((float)s->g[r][i] * (float)(1 / factor)),
                                                digits, smallest),
                              digits, smallest);
        sum[i] = (double)((float)sum[i] * (float)factor);
    }
    give_all(s, sum);
}

static void float16(struct sim *s) { sum_rounded(s, 11, 0x1p-24, 1); }
static void float16_divided(struct sim *s) { sum_rounded(s, 11, 0x1p-24, 0.125); }
static void bfloat16(struct sim *s) { sum_rounded(s, 8, 0, 1); }

/* ---- codes ---- */

int sim_next_bucket(struct range *b)
{
    int64_t to = b->to;

    if (to >= sim_space.len)
        return 0;
    b->from = to;
    for (int i = 0; i < sim_space.n_segments; i++)
        if (sim_space.segment[i].at >= b->from && sim_space.segment[i].ends_bucket) {
            b->to = i + 1 < sim_space.n_segments ? sim_space.segment[i + 1].at : sim_space.len;
            return 1;
        }
    return 0;
}

void sim_through_bytes(double *x, struct range r)
{
    float min = INFINITY, max = -INFINITY, scale, upper, lower;

    for (int64_t i = r.from; i < r.to; i++) {
        min = fminf(min, (float)x[i]);
        max = fmaxf(max, (float)x[i]);
    }
    scale = 255.0f / (max - min + 1e-7f);
    upper = rintf(max * scale);
    lower = upper - 255.0f;
    for (int64_t i = r.from; i < r.to; i++) {
        const float q = fminf(rintf((float)x[i] * scale), upper) - lower;

        x[i] = (double)((fminf(fmaxf(q, 0.0f), 255.0f) + lower) / scale);
    }
}

/* The same with 1 bit: the sign times the mean size. */
static void through_signs(double *x, struct range r)
{
    double sum = 0;
    float mean;

    for (int64_t i = r.from; i < r.to; i++)
        sum += fabs((double)(float)x[i]);
    mean = r.to > r.from ? (float)(sum / (double)(r.to - r.from)) : 0;
    for (int64_t i = r.from; i < r.to; i++)
        x[i] = (double)(x[i] >= 0 ? mean : -mean);
}

/* Chunk k of n of a bucket: equal parts, of which the last ones are short or empty. */
static struct range chunk_of(struct range b, int n, int k)
{
    const int64_t whole = (b.to - b.from + n - 1) / n;
    const struct range r = {b.from + k * whole, b.from + (k + 1) * whole};

    return (struct range){r.from < b.to ? r.from : b.to, r.to < b.to ? r.to : b.to};
}

typedef void codec(double *x, struct range r);

/* keep: each rank's error of its gradients, and the error of each chunk's sum; NULL: none is kept.
 */
static void sum_chunk(struct sim *s, codec *through, struct range r, float factor, double *sum,
                      double (*keep)[2 * SIM_MAX_LEN])
{
    double with[SIM_MAX_LEN];

    for (int k = 0; k < s->n; k++) {
        for (int64_t i = r.from; i < r.to; i++)
            with[i] = s->g[k][i] =
                keep ? (double)((float)s->g[k][i] + (float)keep[k][i]) : s->g[k][i];
        through(s->g[k], r);
        for (int64_t i = r.from; i < r.to; i++) {
            sum[i] = k == 0 ? s->g[k][i] : (double)((float)sum[i] + (float)s->g[k][i]);
            if (keep)
                keep[k][i] = (double)((float)with[i] - (float)s->g[k][i]);
        }
    }
    for (int64_t i = r.from; i < r.to; i++)
        with[i] = sum[i] = keep ? (double)((float)sum[i] + (float)keep[0][SIM_MAX_LEN + i])
                                : (double)((float)sum[i] * factor);
    through(sum, r);
    for (int64_t i = r.from; i < r.to && keep; i++)
        keep[0][SIM_MAX_LEN + i] = (double)((float)with[i] - (float)sum[i]);
}

static void sum_codes(struct sim *s, codec *through, float factor, double (*keep)[2 * SIM_MAX_LEN])
{
    struct range bucket = {0, 0};
    double sum[SIM_MAX_LEN] = {0};

    if (s->n == 1)
        return;
    while (sim_next_bucket(&bucket))
        for (int k = 0; k < s->n; k++)
            sum_chunk(s, through, chunk_of(bucket, s->n, k), factor, sum, keep);
    for (int64_t i = 0; i < sim_space.len; i++)
        sum[i] = sim_is_padding(i) ? 0 : sum[i];
    give_all(s, sum);
}

static void bytegrad(struct sim *s) { sum_codes(s, sim_through_bytes, 1, NULL); }
static void onebit(struct sim *s) { sum_codes(s, through_signs, 1, s->keep[0]); }

/* ---- qadam ---- */

enum { WARMUP = 2 };

/* keep[0][0] is the mean of the gradient, keep[1][0] that of its square, the same on all ranks.
 * Floats are rounded as by the product, because a code is another number one unit further. */
static void combine_qadam(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++) {
        float sum = (float)s->g[0][i];

        for (int r = 1; r < s->n; r++)
            sum = sum + (float)s->g[r][i];
        for (int r = 0; r < s->n; r++) {
            const float kept = 0.9f * (float)s->keep[0][0][i];
            const float fresh = (1 - 0.9f) * ((float)s->n * (float)s->g[r][i]);

            s->g[r][i] = s->n_updates < WARMUP ? (double)sum : (double)(kept + fresh);
        }
    }
    if (s->n_updates >= WARMUP)
        sum_codes(s, sim_through_bytes, (float)(1.0 / s->n), NULL);
}

static void update_qadam(struct sim *s)
{
    double power1 = 1, power2 = 1;
    float rate, correction;

    for (int64_t t = 0; t <= s->n_updates; t++) {
        power1 *= 0.9;
        power2 *= 0.99;
    }
    rate = (float)((double)SIM_RATE / (1 - power1));
    correction = (float)sqrt(1 - power2);
    for (int64_t i = 0; i < sim_space.len; i++) {
        const float g = (float)s->g[0][i], m = (float)s->keep[0][0][i];
        const float v = (float)s->keep[1][0][i], fresh1 = (float)(1 - 0.9);
        const float next = s->n_updates < WARMUP ? m + fresh1 * (g - m) : g;
        const float squares = s->n_updates < WARMUP ? 0.99f * v + (float)(1 - 0.99) * (g * g) : v;

        s->keep[0][0][i] = (double)next;
        s->keep[1][0][i] = (double)squares;
        for (int r = 0; r < s->n; r++)
            s->w[r][i] =
                (double)((float)s->w[r][i] - rate * next / (sqrtf(squares) / correction + 1e-8f));
    }
}

/* ---- PowerSGD ---- */

/* The columns of p [n, r] become orthonormal, one after another. */
static void gram_schmidt(double *p, int64_t n, int64_t r)
{
    for (int64_t c = 0; c < r; c++) {
        double norm = 0;

        for (int64_t j = 0; j < c; j++) {
            double part = 0;

            for (int64_t i = 0; i < n; i++)
                part += p[i * r + c] * p[i * r + j];
            for (int64_t i = 0; i < n; i++)
                p[i * r + c] -= part * p[i * r + j];
        }
        for (int64_t i = 0; i < n; i++)
            norm += p[i * r + c] * p[i * r + c];
        for (int64_t i = 0; i < n; i++)
            p[i * r + c] /= sqrt(norm);
    }
}

/* All ranks' m are replaced by the same product, whose error each rank keeps.  q [cols, r]. */
static void approximate(struct sim *s, const struct sim_segment *t, int64_t r, double *q)
{
    const int64_t rows = t->dim[0], cols = t->n / t->dim[0];
    double p[SIM_MAX_LEN] = {0}, m_mean[SIM_MAX_LEN] = {0}, m[SIM_MAX_RANKS][SIM_MAX_LEN];

    for (int k = 0; k < s->n; k++)
        for (int64_t i = 0; i < t->n; i++) {
            m[k][i] = s->g[k][t->at + i] + s->keep[0][k][t->at + i];
            m_mean[i] += m[k][i] / s->n;
        }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            for (int64_t c = 0; c < r; c++)
                p[i * r + c] += m_mean[i * cols + j] * q[j * r + c];
    gram_schmidt(p, rows, r);
    for (int64_t j = 0; j < cols; j++)
        for (int64_t c = 0; c < r; c++) {
            q[j * r + c] = 0;
            for (int64_t i = 0; i < rows; i++)
                q[j * r + c] += s->n * m_mean[i * cols + j] * p[i * r + c];
        }
    for (int64_t i = 0; i < t->n; i++) {
        double y = 0;

        for (int64_t c = 0; c < r; c++)
            y += p[i / cols * r + c] * q[i % cols * r + c];
        for (int k = 0; k < s->n; k++) {
            s->keep[0][k][t->at + i] = m[k][i] - y / s->n;
            s->g[k][t->at + i] = y;
        }
    }
}

/* The fixed numbers that q begins with, for a bucket's matrices one after another. */
static double first_q(int64_t i)
{
    return (double)((uint32_t)(i + 1) * 2654435761u >> 8) / 8388608.0 - 1.0;
}

/* The columns turn a little with each rounding, so the product follows more loosely than others.
 * keep[0]: errors; keep[1][0]: the matrices q, each where its segment begins. */
static void powersgd(struct sim *s, int64_t r)
{
    int64_t n_q = 0;

    if (s->n == 1)
        return;
    for (int i = 0; i < sim_space.n_segments; i++) {
        const struct sim_segment *t = &sim_space.segment[i];
        const int64_t rows = t->dim[0], cols = t->n / rows;
        double *q = s->keep[1][0] + t->at;

        if (t->dim[1] && 2 * r * (rows + cols) <= rows * cols) {
            for (int64_t k = 0; k < cols * r && s->keep[2][0][0] == 0; k++)
                q[k] = first_q(n_q + k % r * cols + k / r);
            n_q += cols * r;
            approximate(s, t, r, q);
        } else {
            for (int64_t k = t->at; k < t->at + t->n; k++) {
                double sum = 0;

                for (int rank = 0; rank < s->n; rank++)
                    sum += s->g[rank][k];
                for (int rank = 0; rank < s->n; rank++)
                    s->g[rank][k] = sum;
            }
        }
        if (t->ends_bucket)
            n_q = 0;
    }
    s->keep[2][0][0] = 1;
}

static void powersgd_1(struct sim *s) { powersgd(s, 1); }
static void powersgd_2(struct sim *s) { powersgd(s, 2); }

#define ZERO(text)                                                                        \
    {                                                                                     \
        .name = text, .job = "{" text "}", .combine = sum_in_order, .momentum = MOMENTUM, \
        .update = update_momentum                                                         \
    }

const struct sim_strategy sim_sums[] = {
    {.name = "allreduce", .job = "{name: allreduce}", .combine = sim_allreduce, .tol = 1e-5},
    {.name = "gradient_allreduce",
     .job = "{name: gradient_allreduce}",
     .combine = sim_allreduce,
     .tol = 1e-5},
    {.name = "adasum", .job = "{name: adasum}", .combine = adasum, .tol = 1e-5},
    {.name = "adasum, unequal parts",
     .job = "{name: adasum}",
     .combine = adasum,
     .is_uneven = 1,
     .tol = 1e-5},
    {.name = "float16", .job = "{compress: float16}", .combine = float16},
    {.name = "float16, divided",
     .job = "{compress: float16, gradient_predivide_factor: 0.125}",
     .combine = float16_divided},
    {.name = "bfloat16", .job = "{compress: bfloat16}", .combine = bfloat16},
    {.name = "uint8", .job = "{compress: uint8}", .combine = bytegrad},
    {.name = "bytegrad", .job = "{name: bytegrad}", .combine = bytegrad},
    {.name = "qadam",
     .job = "{name: qadam, warmup_steps: 2}",
     .optimizer = "{name: adam, betas: [0.9, 0.99]}",
     .combine = combine_qadam,
     .update = update_qadam,
     .tol = 1e-5},
    {.name = "powersgd", .job = "{compress: powersgd}", .combine = powersgd_1, .tol = 5e-3},
    {.name = "powersgd, 2 columns",
     .job = "{compress: powersgd, rank: 2}",
     .combine = powersgd_2,
     .tol = 5e-3},
    {.name = "onebit", .job = "{compress: onebit}", .combine = onebit, .tol = 1e-5},
    ZERO("zero: 1"),
    ZERO("zero: 1, buddy: false"),
    ZERO("zero: 2"),
    ZERO("zero: 2, buddy: false"),
    ZERO("zero: 3"),
    ZERO("zero: 3, buddy: false"),
    {.name = "shards", .job = "{shards: 5}", .combine = sum_shares, .n_shares = SHARES},
};

const int sim_n_sums = sizeof sim_sums / sizeof sim_sums[0];
