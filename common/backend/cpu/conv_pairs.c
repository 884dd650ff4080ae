/* conv_pairs - dw[k][c][r][s] = sum over samples and pixels p,q of dy[p,q,k] * x[p+r,q+s,c], for
 * each tap r,s a product of matrices whose sum runs over pairs of pixels.
 *
 *   pairs of x    [S][samples][H][Qp][channels of a panel][2]   pixels q+s and q+1+s of a row
 *   pairs of dy   [samples][P][Qp][K][2]                        pixels q and q+1
 *   sums          [panels of channels][R*S][K][64]
 *
 * Qp is the number of pairs in a row of dy; strides and padding are in the pairs of x already, and
 * behind an odd row's end there are zeros.  Work goes by groups of samples of about PAIRS pairs
 * altogether, and for each group by panels of 64 channels of x, so that the pairs of x stay in the
 * nearest large cache for all taps, and the sums pass through it once for each group.
 * Sums of a block of rows k and of a panel's vectors stay in registers for a whole group.
 *
 * Eight steps of ResNet-18 on CIFAR (batch 128) spent 6.7 s of one Zen 4 core in these gradients by
 * oneDNN 2.6, and 5.6 s here, pairs and the filter's layout included.  (Since then winograd.h takes
 * those of its filters, and strides and other filters are left.) */
#include "backend/cpu/conv_pairs.h"

#include "backend/cpu/outer.h"
#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/op.h"

#ifdef __x86_64__

#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bf16")))

#include "backend/cpu/pairs.h"

enum {
    LANES = 16,
    PANEL = 64, /* MOST_V vectors */
    MOST_V = 4,
    MOST_ROWS = 6, /* 6*4 sums, 4 vectors of x and one of dy fit into 32 registers */
    PAIRS = 512,
    MOST_SUMS = 1 << 26 /* numbers that all threads' sums hold, 256 MiB */
};

/* Two numbers that are multiplied at once. */
typedef int32_t pair;

struct dims {
    int64_t N, H, W, C, P, Q, K, R, S, Qp;
    int64_t stride[2], pad[2];
    int64_t group; /* samples of a group */
};

static struct dims cpu_conv_pairs_dims_of(const struct shape *x, const struct shape *w,
                                          const struct shape *dy, const union node_attr *attr,
                                          int n_threads)
{
    struct dims d = {x->dim[0],  x->dim[1],  x->dim[2], x->dim[3], dy->dim[1],
                     dy->dim[2], dy->dim[3], w->dim[2], w->dim[3], ceil_div_i64(dy->dim[2], 2)};

    for (int i = 0; i < 2; i++) {
        d.stride[i] = attr->conv.stride[i];
        d.pad[i] = attr->conv.pad[i];
    }
    d.group = max_i64(1, min_i64(PAIRS / (d.P * d.Qp), d.N / n_threads));
    return d;
}

static struct dims dims_at(const struct plain *p)
{
    return cpu_conv_pairs_dims_of(&p->in_shape[CONV2D_GRAD_W_X], &p->out_shape[CONV2D_GRAD_W_DW],
                                  &p->in_shape[CONV2D_GRAD_W_DY], &p->attr, p->n_threads);
}

static int64_t n_panels(const struct dims *d) { return ceil_div_i64(d->C, PANEL); }
static int64_t cpu_conv_pairs_n_sums(const struct dims *d)
{
    return n_panels(d) * d->R * d->S * d->K * PANEL;
}
static int64_t n_x_pairs(const struct dims *d) { return d->S * d->group * d->H * d->Qp * PANEL; }
static int64_t n_dy_pairs(const struct dims *d) { return d->group * d->P * d->Qp * d->K; }
static int64_t n_groups(const struct dims *d) { return ceil_div_i64(d->N, d->group); }
static int64_t cpu_conv_pairs_work(const struct dims *d)
{
    return d->N * d->P * d->Qp * d->R * d->S * d->K * d->C / LANES;
}

/* ---- pairs ---- */

/* The pixel of row `row` of x, of W pixels, that tap s multiplies by pixel q of dy; or NULL. */
static const uint16_t *pixel_of_x(const struct dims *d, const uint16_t *row, int64_t q, int64_t s)
{
    const int64_t at = q * d->stride[1] + s - d->pad[1];

    return q < d->Q && at >= 0 && at < d->W ? row + at * d->C : NULL;
}

/* Pairs of n channels of the samples from x on. */
static void pair_x(const struct dims *d, const uint16_t *x, int64_t samples, int64_t n, pair *to)
{
    for (int64_t s = 0; s < d->S; s++)
        for (int64_t i = 0; i < samples * d->H; i++)
            for (int64_t q = 0; q < d->Q; q += 2, to += n)
                pairs_zip(pixel_of_x(d, x + i * d->W * d->C, q, s),
                          pixel_of_x(d, x + i * d->W * d->C, q + 1, s), n, to);
}

static void pair_dy(const struct dims *d, const uint16_t *dy, int64_t samples, pair *to)
{
    for (int64_t i = 0; i < samples * d->P; i++)
        for (int64_t q = 0; q < d->Q; q += 2, to += d->K) {
            const uint16_t *at = dy + (i * d->Q + q) * d->K;

            pairs_zip(at, q + 1 < d->Q ? at + d->K : NULL, d->K, to);
        }
}

/* ---- products ---- */

/* sum[i][j] += sum over t0 < n0, t1 < n1, t2 < n2 of a[t0*a0 + t1*a1 + t2*a2 + i] times
 * b[t0*b0 + t1*b1 + t2*b2 + j], for n_i rows and n_v vectors; rows of `sum` are PANEL apart. */
struct product {
    int64_t n0, n1, n2, a0, a1, a2, b0, b1, b2;
};

/* clang-format off */
INLINE void conv_pairs_block(const struct product *x, const pair *a, const pair *b, float *sum,
                             const int V, const int I)
{
    __m512 acc[MOST_ROWS][MOST_V];

    EACH(i, I) EACH(v, V)
        acc[i][v] = _mm512_loadu_ps(sum + i * PANEL + v * LANES);
    for (int64_t t0 = 0; t0 < x->n0; t0++)
        for (int64_t t1 = 0; t1 < x->n1; t1++) {
            const pair *a_at = a + t0 * x->a0 + t1 * x->a1, *b_at = b + t0 * x->b0 + t1 * x->b1;

            for (int64_t t2 = 0; t2 < x->n2; t2++, a_at += x->a2, b_at += x->b2) {
                __m512i row[MOST_V];

                EACH(v, V)
                    row[v] = _mm512_loadu_si512(b_at + v * LANES);
                EACH(v, V)
                    KEEP(row[v]);
                EACH(i, I) {
                    const __m512i y = _mm512_set1_epi32(a_at[i]);

                    EACH(v, V)
                        acc[i][v] = _mm512_dpbf16_ps(acc[i][v], (__m512bh)y, (__m512bh)row[v]);
                }
            }
        }
    EACH(i, I) EACH(v, V)
        _mm512_storeu_ps(sum + i * PANEL + v * LANES, acc[i][v]);
}

#define BLOCK(V, I)                   \
    case (V)*16 + (I):                \
        conv_pairs_block(x, a, b, sum, (V), (I)); \
        return;
#define BLOCKS(V) BLOCK(V, 1) BLOCK(V, 2) BLOCK(V, 3) BLOCK(V, 4) BLOCK(V, 5) BLOCK(V, 6)

AVX512 static void run_block(const struct product *x, const pair *a, const pair *b, float *sum,
                             int64_t n_v, int64_t n_i)
{
    switch (n_v * 16 + n_i) {
        BLOCKS(1) BLOCKS(2) BLOCKS(3) BLOCKS(4)
    default:
        ASSERT(!"no such block");
    }
}
/* clang-format on */

/* The first row p of dy whose pixels tap r multiplies by row `row` of x or by a later one. */
static int64_t first_row(const struct dims *d, int64_t r, int64_t row)
{
    return min_i64(d->P, max_i64(0, ceil_div_i64(max_i64(0, row + d->pad[0] - r), d->stride[0])));
}

/* Add one tap's products to sum [K][PANEL]; the panel has n channels. */
static void add_tap(const struct dims *d, int64_t samples, const pair *x, const pair *dy, int64_t r,
                    int64_t n, float *sum)
{
    const int64_t from = first_row(d, r, 0), rows = first_row(d, r, d->H) - from;
    struct product m = {.n0 = samples,
                        .n1 = rows,
                        .n2 = d->Qp,
                        .a0 = d->P * d->Qp * d->K,
                        .a1 = d->Qp * d->K,
                        .a2 = d->K,
                        .b0 = d->H * d->Qp * n,
                        .b1 = d->stride[0] * d->Qp * n,
                        .b2 = n};

    if (d->stride[0] == 1) { /* the rows lie side by side */
        m.n1 = 1;
        m.n2 = rows * d->Qp;
    }
    x += (from * d->stride[0] + r - d->pad[0]) * d->Qp * n;
    dy += from * d->Qp * d->K;
    for (int64_t k = 0, n_i; rows > 0 && k < d->K; k += n_i) {
        n_i = ceil_div_i64(d->K - k, ceil_div_i64(d->K - k, MOST_ROWS)); /* about equal blocks */
        run_block(&m, dy + k, x, sum + k * PANEL, n / LANES, n_i);
    }
}

static void add_group(const struct dims *d, const uint16_t *x, const uint16_t *dy, int64_t samples,
                      pair *x_pairs, pair *dy_pairs, float *sums)
{
    pair_dy(d, dy, samples, dy_pairs);
    for (int64_t c = 0; c < d->C; c += PANEL) {
        const int64_t n = min_i64(PANEL, d->C - c), each = samples * d->H * d->Qp * n;

        pair_x(d, x + c, samples, n, x_pairs);
        for (int64_t r = 0; r < d->R; r++)
            for (int64_t s = 0; s < d->S; s++, sums += d->K * PANEL)
                add_tap(d, samples, x_pairs + s * each, dy_pairs, r, n, sums);
    }
}

static void groups_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct dims d = dims_at(p);
    float *sums = plain_part_scratch(p, part);
    pair *x_pairs = (pair *)(sums + cpu_conv_pairs_n_sums(&d)), *dy_pairs = x_pairs + n_x_pairs(&d);

    memset(sums, 0, (size_t)cpu_conv_pairs_n_sums(&d) * sizeof *sums);
    for (int64_t g = from; g < to; g++) {
        const int64_t first = g * d.group, samples = min_i64(d.group, d.N - first);

        add_group(&d, (const uint16_t *)p->in[CONV2D_GRAD_W_X] + first * d.H * d.W * d.C,
                  (const uint16_t *)p->in[CONV2D_GRAD_W_DY] + first * d.P * d.Q * d.K, samples,
                  x_pairs, dy_pairs, sums);
    }
}

/* Rows [from, to) of K: the sum of all parts, in the filter's layout, where it replaces or is added
 * to what is there. */
static void filter_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct dims d = dims_at(p);
    const int64_t taps = d.R * d.S;
    const int n_parts = plain_parts(p, n_groups(&d), cpu_conv_pairs_work(&d));
    const int adds = plain_adds(p, CONV2D_GRAD_W_DW);

    (void)part;
    for (int64_t k = from; k < to; k++)
        for (int64_t c = 0; c < d.C; c += PANEL)
            for (int64_t t = 0; t < taps; t++) {
                const int64_t at = ((c / PANEL * taps + t) * d.K + k) * PANEL;
                const int64_t n = min_i64(PANEL, d.C - c);
                float *to_at = (float *)p->out[CONV2D_GRAD_W_DW] + (k * d.C + c) * taps + t;
                float *sum = (float *)plain_part_scratch(p, 0) + at;

                for (int i = 1; i < n_parts; i++)
                    plain_add(sum, (float *)plain_part_scratch(p, i) + at, n);
                for (int64_t j = 0; j < n; j++)
                    to_at[j * taps] = adds ? to_at[j * taps] + sum[j] : sum[j];
            }
}

static void cpu_conv_pairs_run(const struct plain *p)
{
    const struct dims d = dims_at(p);

    plain_split(p, n_groups(&d), cpu_conv_pairs_work(&d), groups_part);
    plain_split(p, d.K, cpu_conv_pairs_n_sums(&d), filter_part);
}

/* The conditions: BF16 with a float32 gradient, one group, no dilation, no bias; whole vectors of
 * channels; and bounded memory for the sums, since each thread sums a gradient of its own.  (The
 * pairs of x grow with the image.)  Where the processor has AMX, its tiles are faster
 * (amx_grad_w.h, oneDNN). Where products are widened (dn_widens_bf16), F32's are: a step of
 * ResNet-50 (batch 16, images of 224 x 224) took one core of a busy Xeon 3.1 s, and 4.3 s where the
 * filters' gradients that winograd.h leaves were made here. */
int conv_pairs_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const struct shape *w = cpu_conv_filter(g, n);

    if (n->op != OP_conv2d_grad_w || op_type(g, n) != DTYPE_BF16 || b->widens_bf16 ||
        !outer_has_pairs() || n->attr.conv.groups != 1 || cpu_has_out(n, CONV2D_GRAD_W_DB) ||
        g->value[n->out[CONV2D_GRAD_W_DW]].dtype != DTYPE_F32)
        return 0;
    for (int i = 0; i < 2; i++)
        if (n->attr.conv.dilation[i] != 1)
            return 0;
    return w->dim[0] % LANES == 0 && w->dim[1] % LANES == 0 &&
           shape_elements(w) * b->n_threads <= MOST_SUMS;
}

int conv_pairs_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    const struct dims d =
        cpu_conv_pairs_dims_of(cpu_in(g, n, CONV2D_GRAD_W_X), cpu_out(g, n, CONV2D_GRAD_W_DW),
                               cpu_in(g, n, CONV2D_GRAD_W_DY), &n->attr, b->n_threads);
    const size_t pairs = (size_t)(n_x_pairs(&d) + n_dy_pairs(&d)) * sizeof(pair);

    return plain_new_split(b, g, n, cpu_conv_pairs_run, 0,
                           (size_t)cpu_conv_pairs_n_sums(&d) * sizeof(float) + pairs, out, err);
}

#else

int conv_pairs_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    (void)b, (void)g, (void)n;
    return 0;
}

int conv_pairs_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    (void)b, (void)g, (void)n, (void)out;
    return err_set(err, ERR_UNSUPPORTED, "not on this processor");
}

#endif
