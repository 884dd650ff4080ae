/* definitions - each strategy, by its definition, as the reference simulator plays it. */
#include <math.h>
#include <string.h>

#include "sim.h"

/* The same for all ranks. */
static void give_all(struct sim *s, const double *g)
{
    for (int r = 0; r < s->n; r++)
        memmove(s->g[r], g, sizeof s->g[r]);
}

/* allreduce: every rank's update uses the sum of all ranks' gradients. */
static void allreduce(struct sim *s)
{
    double sum[SIM_MAX_LEN] = {0};

    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            sum[i] += s->g[r][i];
    give_all(s, sum);
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

/* The elements of a bucket of the space, which is cut into a chunk for each rank. */
struct range {
    int64_t from, to;
};

static int next_bucket(struct range *b)
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

/* Replace x[from, to) by what its code of 8 bits is read as: Bagua's MinMaxUInt8. */
static void through_bytes(double *x, struct range r)
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
    while (next_bucket(&bucket))
        for (int k = 0; k < s->n; k++)
            sum_chunk(s, through, chunk_of(bucket, s->n, k), factor, sum, keep);
    for (int64_t i = 0; i < sim_space.len; i++)
        sum[i] = sim_is_padding(i) ? 0 : sum[i];
    give_all(s, sum);
}

static void bytegrad(struct sim *s) { sum_codes(s, through_bytes, 1, NULL); }
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
        sum_codes(s, through_bytes, (float)(1.0 / s->n), NULL);
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

/* ---- strategies in which each rank updates by its own gradients ---- */

/* Each rank's share of the gradient, times the number of ranks. */
static void own(struct sim *s)
{
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++)
            s->g[r][i] *= s->n;
}

static double mean_weight(const struct sim *s, int64_t i)
{
    double sum = 0;

    for (int r = 0; r < s->n; r++)
        sum += s->w[r][i];
    return sum / s->n;
}

static void set_all(struct sim *s, int64_t i, double w)
{
    for (int r = 0; r < s->n; r++)
        s->w[r][i] = w;
}

static void take_means(struct sim *s)
{
    for (int64_t i = 0; i < sim_space.len; i++)
        set_all(s, i, mean_weight(s, i));
}

enum { EVERY = 3, START = 7 };

/* local_sgd: after every so many steps all ranks take the mean of their weights. */
static void mix_local(struct sim *s)
{
    if ((s->step + 1) % EVERY == 0)
        take_means(s);
}

/* Post-local SGD: so many steps of all-reduce come first. */
static void combine_post_local(struct sim *s)
{
    if (s->step < START)
        allreduce(s);
    else
        own(s);
}

static void mix_post_local(struct sim *s)
{
    if (s->step >= START && (s->step - START + 1) % EVERY == 0)
        take_means(s);
}

/* DiLoCo: keep[0] is where all ranks were after the exchange before, keep[1] the momentum. */
static void combine_outer(struct sim *s)
{
    if (s->step == 0)
        memcpy(s->keep[0][0], s->w[0], sizeof s->w[0]);
    own(s);
}

static void mix_outer(struct sim *s)
{
    const double lr = 0.5, mu = 0.8;
    double *start = s->keep[0][0], *momentum = s->keep[1][0];

    for (int64_t i = 0; i < sim_space.len && (s->step + 1) % EVERY == 0; i++) {
        const double d = start[i] - mean_weight(s, i);

        momentum[i] = mu * momentum[i] + d;
        start[i] -= lr * (d + mu * momentum[i]);
        set_all(s, i, start[i]);
    }
}

/* decentralized: the gradient is that at the weights before the exchange, and is applied to the
 * weights after it. */
static void decentralized(struct sim *s)
{
    own(s);
    if (s->step % 2 == 0)
        take_means(s);
}

/* Of an even number of ranks each of the lower half meets another one of the upper half in each
 * round.  An odd number has one rank more, which is not there. */
static void shift_one(struct sim *s)
{
    const int half = (s->n + 1) / 2;

    own(s);
    for (int a = 0; a < half; a++) {
        const int b = half + (int)((s->step + a) % half);

        for (int64_t i = 0; i < sim_space.len && b < s->n; i++)
            s->w[a][i] = s->w[b][i] = (s->w[a][i] + s->w[b][i]) / 2;
    }
}

/* low_precision_decentralized: keep[0] is what the neighbours know of each rank, keep[1] and
 * keep[2] what each rank knows of its left and right neighbour. */
static void combine_low_precision(struct sim *s)
{
    for (int r = 0; r < s->n && s->step == 0; r++)
        for (int k = 0; k < 3; k++)
            memcpy(s->keep[k][r], s->w[r], sizeof s->w[r]);
    own(s);
}

static float difference(const struct sim *s, int r, int64_t i)
{
    const float x = (float)s->w[r][i], known = (float)s->keep[0][r][i];
    const float left = (float)s->keep[1][r][i], right = (float)s->keep[2][r][i];

    return x + left / 3 + right / 3 - known * (5.0f / 3.0f);
}

static void mix_low_precision(struct sim *s)
{
    static double d[SIM_MAX_RANKS][SIM_MAX_LEN];

    if (s->n == 1)
        return;
    for (int r = 0; r < s->n; r++) {
        for (int64_t i = 0; i < sim_space.len; i++)
            d[r][i] = (double)difference(s, r, i);
        for (struct range b = {0, 0}; next_bucket(&b);)
            through_bytes(d[r], b);
    }
    for (int r = 0; r < s->n; r++)
        for (int64_t i = 0; i < sim_space.len; i++) {
            const int from[] = {r, (r + s->n - 1) % s->n, (r + 1) % s->n};

            for (int k = 0; k < 3; k++)
                s->keep[k][r][i] = (double)((float)s->keep[k][r][i] + (float)d[from[k]][i]);
            s->w[r][i] = s->keep[0][r][i];
        }
}

const struct sim_strategy sim_strategies[] = {
    {.name = "allreduce", .job = "{name: allreduce}", .combine = allreduce, .tol = 1e-5},
    {.name = "gradient_allreduce",
     .job = "{name: gradient_allreduce}",
     .combine = allreduce,
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
    {.name = "local_sgd",
     .job = "{name: local_sgd, every: 3}",
     .combine = own,
     .mix = mix_local,
     .is_own = 1,
     .tol = 1e-5},
    {.name = "post-local SGD",
     .job = "{name: local_sgd, every: 3, start: 7}",
     .combine = combine_post_local,
     .mix = mix_post_local,
     .is_own = 1,
     .tol = 1e-5},
    {.name = "DiLoCo",
     .job = "{name: local_sgd, every: 3, outer: nesterov, outer_lr: 0.5, outer_momentum: 0.8}",
     .combine = combine_outer,
     .mix = mix_outer,
     .is_own = 1,
     .tol = 1e-5},
    {.name = "decentralized",
     .job = "{name: decentralized, every: 2}",
     .combine = decentralized,
     .is_own = 1,
     .tol = 1e-5},
    {.name = "decentralized, one peer",
     .job = "{name: decentralized, peers: shift_one}",
     .combine = shift_one,
     .is_own = 1,
     .tol = 1e-5},
    {.name = "low_precision_decentralized",
     .job = "{name: low_precision_decentralized}",
     .combine = combine_low_precision,
     .mix = mix_low_precision,
     .is_own = 1,
     .tol = 0},
};

const int sim_n_strategies = sizeof sim_strategies / sizeof sim_strategies[0];
