/* conv_rows - the three passes of a convolution as sums of outer products.
 *
 * Each pass works sample by sample, each thread on a part of the batch, with a copy of the filter
 * in the order that suits the pass:
 *
 *   forward  y[p,q..,k]        sum over r, j=(s,c) of x[p+r,q..,j] * w[r,j,k]      vectors of K
 *   grad_x   dx[p+r, q.., j]  += sum over k of dy[p,q..,k] * w[r,k,j]              vectors of S*C
 *   grad_w   dw[r,k..,j]      += sum over p,q of dy[p,q,k..] * x[p+r,q,j]          vectors of S*C
 *   or       dw[r,j..,k]      += sum over p,q of x[p+r,q,j..] * dy[p,q,k]          vectors of K
 *
 * where ".." is the extent that is cut into blocks of accumulators.  grad_w takes the form that
 * needs less padding, or one for whole vectors of K and the other for the rest.  x[p+r,q,j] is
 * number j of the S*C numbers that begin at x[p+r,q,0]; the numbers of neighbouring q overlap.
 *
 * Milliseconds of one core's time for batch 256 (bench_lenet; AVX-512 at about 2.6 GHz, oneDNN 2.6
 * in NHWC with its own layout of filters):
 *                             forward      grad_x      grad_w
 *                          ours  oneDNN  ours oneDNN  ours oneDNN
 *   1 -> 20, 3x3, 28x28     1.9    2.7     -     -     2.0   3.2
 *   20 -> 50, 5x5, 13x13    9.0    8.5    8.9  11.8    9.6  10.1
 * The last row is by whole vectors alone.  So the forward pass is done here only with fewer than 16
 * channels, or where K has one or two more than whole vectors and the filter is large
 * (conv_rows_fits).  These last channels are dot products over j, as another vector would be zeros
 * for the most part: with K = 50, 4.5 ms on a Zen 5 in place of 6.1. */
#include "backend/cpu/conv_rows.h"

#include <string.h>

#include "backend/cpu/onednn.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/plain.h"
#include "base/util.h"
#include "op/op.h"

/* N samples; H x W image and C channels of x; P x Q image and K channels of y; R x S filter;
 * L = S*C; Lp and Kp are L and K rounded up to a multiple of 16, which aligns rows. */
struct dims {
    int64_t N, H, W, C, P, Q, K, R, S, L, Lp, Kp;
};

static struct dims cpu_conv_rows_dims_of(const struct shape *x, const struct shape *w,
                                         const struct shape *y)
{
    return (struct dims){x->dim[0],
                         x->dim[1],
                         x->dim[2],
                         x->dim[3],
                         y->dim[1],
                         y->dim[2],
                         y->dim[3],
                         w->dim[2],
                         w->dim[3],
                         w->dim[3] * x->dim[3],
                         round_up_i64(w->dim[3] * x->dim[3], 16),
                         round_up_i64(y->dim[3], 16)};
}

/* The size of the next block: at most `most`, and such that all blocks are about equal. */
static int cpu_conv_rows_next_block(int64_t left, int most)
{
    const int64_t blocks = ceil_div_i64(left, most);

    return (int)ceil_div_i64(left, blocks);
}

static void set_offsets(struct outer *o, int n_i, int64_t a_step, int64_t to_step)
{
    o->n_i = n_i;
    for (int i = 0; i < n_i; i++) {
        o->a_off[i] = i * a_step;
        o->to_off[i] = i * to_step;
    }
}

/* w [K,C,R,S] -> to[r][s][c][k], rows of Kp */
static void filter_by_k(const struct dims *d, const float *w, float *to)
{
    for (int64_t k = 0; k < d->K; k++)
        for (int64_t c = 0; c < d->C; c++)
            for (int64_t r = 0; r < d->R; r++)
                for (int64_t s = 0; s < d->S; s++)
                    to[((r * d->S + s) * d->C + c) * d->Kp + k] = *w++;
}

/* w [K,C,R,S] -> to[r][k][s][c], rows of Lp */
static void filter_by_row(const struct dims *d, const float *w, float *to)
{
    for (int64_t k = 0; k < d->K; k++)
        for (int64_t c = 0; c < d->C; c++)
            for (int64_t r = 0; r < d->R; r++)
                for (int64_t s = 0; s < d->S; s++)
                    to[(r * d->K + k) * d->Lp + s * d->C + c] = *w++;
}

/* The way back; `adds`: w += what comes from there. */
static void filter_from_k(const struct dims *d, const float *from, int adds, float *w)
{
    for (int64_t k = 0; k < d->K; k++)
        for (int64_t c = 0; c < d->C; c++)
            for (int64_t r = 0; r < d->R; r++)
                for (int64_t s = 0; s < d->S; s++, w++) {
                    const float sum = from[((r * d->S + s) * d->C + c) * d->K + k];

                    *w = adds ? *w + sum : sum;
                }
}

static void filter_from_row(const struct dims *d, const float *from, int adds, float *w)
{
    for (int64_t k = 0; k < d->K; k++)
        for (int64_t c = 0; c < d->C; c++)
            for (int64_t r = 0; r < d->R; r++)
                for (int64_t s = 0; s < d->S; s++, w++) {
                    const float sum = from[(r * d->K + k) * d->Lp + s * d->C + c];

                    *w = adds ? *w + sum : sum;
                }
}

/* The vector instructions of any of the passes; each multiplies 16 numbers. */
static int64_t cpu_conv_rows_work(const struct dims *d)
{
    return d->N * d->P * d->Q * d->R * d->L * d->K / 16;
}

static struct dims dims_forward(const struct plain *p)
{
    return cpu_conv_rows_dims_of(&p->in_shape[CONV2D_X], &p->in_shape[CONV2D_W],
                                 &p->out_shape[CONV2D_Y]);
}

/* Channels of y beyond whole vectors, which are dot products if they are few. */
static int64_t cpu_conv_rows_rest(const struct dims *d)
{
    const int64_t rest = d->K % 16;

    return d->C >= 16 && rest <= OUTER_DOTS_J ? rest : 0;
}

/* The filters of the last channels: w [K,C,R,S] -> to[k][r][s][c], rows of Lp, 0 behind L */
static void filter_of_rest(const struct dims *d, const float *w, float *to)
{
    const int64_t rest = cpu_conv_rows_rest(d);

    memset(to, 0, (size_t)(rest * d->R * d->Lp) * sizeof *to);
    w += (d->K - rest) * d->C * d->R * d->S;
    for (int64_t k = 0; k < rest; k++)
        for (int64_t c = 0; c < d->C; c++)
            for (int64_t r = 0; r < d->R; r++)
                for (int64_t s = 0; s < d->S; s++)
                    to[(k * d->R + r) * d->Lp + s * d->C + c] = *w++;
}

/* The block's pixels of y are the n_i from (*p, *q) on, which then is the next one. */
static void set_pixels(struct outer *o, const struct dims *d, int n_i, int64_t *p, int64_t *q)
{
    o->n_i = n_i;
    for (int i = 0; i < n_i; i++) {
        o->a_off[i] = (*p * d->W + *q) * d->C;
        o->to_off[i] = i * d->K;
        *q = *q + 1 < d->Q ? *q + 1 : 0;
        *p += *q == 0;
    }
}

static void forward_sample(const struct dims *d, struct outer *o, const float *x, const float *w,
                           float *y)
{
    const int64_t rest = cpu_conv_rows_rest(d), whole = d->K - rest;
    const int at_once = outer_max_i((int)whole),
              most = rest ? (int)min_i64(at_once, OUTER_DOTS_I) : at_once;
    const float *bias = o->add;
    int64_t p = 0, q = 0;

    for (int64_t at = 0; at < d->P * d->Q; at += o->n_i) {
        const int64_t left = rest ? d->P * d->Q - at : d->Q - q; /* few channels: row by row */

        set_pixels(o, d, cpu_conv_rows_next_block(left, most), &p, &q);
        o->n_j = (int)whole;
        o->b1 = d->L * d->Kp;
        o->b2 = d->Kp;
        o->add = bias;
        outer_run(o, x, w, y + at * d->K);
        if (rest) {
            o->n_j = (int)rest;
            o->b1 = d->Lp;
            o->b2 = d->R * d->Lp;
            o->add = bias ? bias + whole : NULL;
            outer_dots(o, x, w + d->R * d->L * d->Kp, y + at * d->K + whole);
        }
    }
    o->add = bias;
}

static void forward_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct dims d = dims_forward(p);
    struct outer o = {.n1 = d.R,
                      .n2 = d.L,
                      .a1 = d.W * d.C,
                      .a2 = 1,
                      .add = p->in[CONV2D_B],
                      .end = p->attr.conv.act == ACT_RELU ? OUTER_RELU : OUTER_STORE};
    const float *x = p->in[CONV2D_X];
    float *y = p->out[CONV2D_Y];

    (void)part;
    for (int64_t n = from; n < to; n++)
        forward_sample(&d, &o, x + n * d.H * d.W * d.C, p->scratch, y + n * d.P * d.Q * d.K);
}

static void cpu_conv_rows_run_forward(const struct plain *p)
{
    const struct dims d = dims_forward(p);

    filter_by_k(&d, p->in[CONV2D_W], p->scratch);
    filter_of_rest(&d, p->in[CONV2D_W], (float *)p->scratch + d.R * d.L * d.Kp);
    plain_split(p, d.N, cpu_conv_rows_work(&d), forward_samples);
}

static struct dims dims_grad_x(const struct plain *p)
{
    return cpu_conv_rows_dims_of(&p->out_shape[CONV2D_GRAD_X_DX], &p->in_shape[CONV2D_GRAD_X_W],
                                 &p->in_shape[CONV2D_GRAD_X_DY]);
}

static void grad_x_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct dims d = dims_grad_x(p);
    const int most = outer_max_i((int)d.L);
    struct outer o = {.n1 = 1, .n2 = d.K, .a2 = 1, .b2 = d.Lp, .n_j = (int)d.L, .end = OUTER_ADD};
    const float *dy = p->in[CONV2D_GRAD_X_DY], *w = p->scratch;
    float *dx = p->out[CONV2D_GRAD_X_DX];

    (void)part;
    for (int64_t n = from; n < to; n++) {
        memset(dx + n * d.H * d.W * d.C, 0, (size_t)(d.H * d.W * d.C) * sizeof *dx);
        for (int64_t r = 0; r < d.R; r++)
            for (int64_t i = 0; i < d.P; i++)
                for (int64_t q = 0; q < d.Q; q += o.n_i) {
                    set_offsets(&o, cpu_conv_rows_next_block(d.Q - q, most), d.K, d.C);
                    outer_run(&o, dy + ((n * d.P + i) * d.Q + q) * d.K, w + r * d.K * d.Lp,
                              dx + ((n * d.H + i + r) * d.W + q) * d.C);
                }
    }
}

static void cpu_conv_rows_run_grad_x(const struct plain *p)
{
    const struct dims d = dims_grad_x(p);

    filter_by_row(&d, p->in[CONV2D_GRAD_X_W], p->scratch);
    plain_split(p, d.N, cpu_conv_rows_work(&d), grad_x_samples);
}

/* Adds one sample's part of dw[r][k][j].  Pixels of dy are dy_row numbers apart. */
static void add_by_row(const struct dims *d, const float *x, const float *dy, int64_t dy_row,
                       float *dw)
{
    const int most = outer_max_i((int)d->L);
    struct outer o = {.n1 = d->P,
                      .n2 = d->Q,
                      .a1 = d->Q * dy_row,
                      .a2 = dy_row,
                      .b1 = d->W * d->C,
                      .b2 = d->C,
                      .n_j = (int)d->L,
                      .end = OUTER_ADD};

    for (int64_t r = 0; r < d->R; r++)
        for (int64_t k = 0; k < d->K; k += o.n_i) {
            set_offsets(&o, cpu_conv_rows_next_block(d->K - k, most), 1, d->Lp);
            outer_run(&o, dy + k, x + r * d->W * d->C, dw + (r * d->K + k) * d->Lp);
        }
}

/* Adds one sample's part of dw[r][j][k], in blocks of taps (r,j).  The taps of a block are not
 * equally far apart in x. */
static void add_by_k(const struct dims *d, const float *x, const float *dy, int64_t dy_row,
                     float *dw)
{
    const int most = outer_max_i((int)d->K);
    struct outer o = {.n1 = d->P,
                      .n2 = d->Q,
                      .a1 = d->W * d->C,
                      .a2 = d->C,
                      .b1 = d->Q * dy_row,
                      .b2 = dy_row,
                      .n_j = (int)d->K,
                      .end = OUTER_ADD};

    for (int64_t tap = 0; tap < d->R * d->L; tap += o.n_i) {
        o.n_i = cpu_conv_rows_next_block(d->R * d->L - tap, most);
        for (int i = 0; i < o.n_i; i++) {
            o.a_off[i] = (tap + i) / d->L * d->W * d->C + (tap + i) % d->L;
            o.to_off[i] = i * d->K;
        }
        outer_run(&o, x, dy, dw + tap * d->K);
    }
}

/* The fraction of the vectors' lanes that n numbers fill. */
static double cpu_conv_rows_filled(int64_t n) { return (double)n / (double)round_up_i64(n, 16); }

/* How many of dw's channels are summed by k; the others are summed by row.  Those that fill whole
 * vectors by k and the rest by row, if that takes fewer vectors than all of them in one form. */
static int64_t channels_by_k(const struct dims *d)
{
    const int64_t most = 16 * OUTER_MAX_V, whole = d->K / 16 * 16;
    const int64_t row = ceil_div_i64(d->L, 16), by_k = d->L * ceil_div_i64(d->K, 16);
    const int64_t mixed = d->L * (whole / 16) + (d->K - whole) * row;

    if (d->L > most || d->K > most)
        return d->L > most ? d->K : 0;
    if (whole > 0 && mixed < min_i64(by_k, d->K * row))
        return whole;
    return cpu_conv_rows_filled(d->L) > cpu_conv_rows_filled(d->K) ? 0 : d->K;
}

static struct dims channels_of(struct dims d, int64_t n)
{
    d.K = n;
    return d;
}

/* Adds one sample's part of db, which is first summed by itself (`part`). */
CPU_CLONES static void cpu_conv_rows_add_bias(const struct dims *d, const float *restrict dy,
                                              float *restrict part, float *restrict db)
{
    memset(part, 0, (size_t)d->K * sizeof *part);
    for (int64_t i = 0; i < d->P * d->Q; i++)
        for (int64_t k = 0; k < d->K; k++)
            part[k] += dy[i * d->K + k];
    for (int64_t k = 0; k < d->K; k++)
        db[k] += part[k];
}

static struct dims dims_grad_w(const struct plain *p)
{
    return cpu_conv_rows_dims_of(&p->in_shape[CONV2D_GRAD_W_X], &p->out_shape[CONV2D_GRAD_W_DW],
                                 &p->in_shape[CONV2D_GRAD_W_DY]);
}

/* The scratch of a part of the batch has three arrays: dw [n_w] in the order of add_by_k, and
 * behind that of add_by_row, db [K], and add_bias' sum of one sample [K]. */
static int64_t n_w(const struct dims *d) { return d->R * max_i64(d->K * d->Lp, d->L * d->K); }

static void grad_w_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct dims d = dims_grad_w(p);
    const int64_t n_k = channels_by_k(&d);
    const struct dims by_k = channels_of(d, n_k), by_row = channels_of(d, d.K - n_k);
    float *dw = plain_part_scratch(p, part), *db = dw + n_w(&d), *of_sample = db + d.K;

    memset(dw, 0, (size_t)(n_w(&d) + d.K) * sizeof *dw);
    for (int64_t n = from; n < to; n++) {
        const float *x = (const float *)p->in[CONV2D_GRAD_W_X] + n * d.H * d.W * d.C;
        const float *dy = (const float *)p->in[CONV2D_GRAD_W_DY] + n * d.P * d.Q * d.K;

        if (by_k.K)
            add_by_k(&by_k, x, dy, d.K, dw);
        if (by_row.K)
            add_by_row(&by_row, x, dy + n_k, d.K, dw + d.R * d.L * n_k);
        if (p->out[CONV2D_GRAD_W_DB])
            cpu_conv_rows_add_bias(&d, dy, of_sample, db);
    }
}

static void cpu_conv_rows_run_grad_w(const struct plain *p)
{
    const struct dims d = dims_grad_w(p);
    const int n_parts = plain_parts(p, d.N, cpu_conv_rows_work(&d));
    const int64_t n_k = channels_by_k(&d);
    const struct dims by_k = channels_of(d, n_k), by_row = channels_of(d, d.K - n_k);
    const int adds = plain_adds(p, CONV2D_GRAD_W_DW);
    float *sum = plain_part_scratch(p, 0), *dw = p->out[CONV2D_GRAD_W_DW];

    plain_split(p, d.N, cpu_conv_rows_work(&d), grad_w_samples);
    for (int i = 1; i < n_parts; i++)
        plain_add(sum, plain_part_scratch(p, i), n_w(&d) + d.K);
    filter_from_k(&by_k, sum, adds, dw);
    filter_from_row(&by_row, sum + d.R * d.L * n_k, adds, dw + n_k * d.C * d.R * d.S);
    if (p->out[CONV2D_GRAD_W_DB])
        plain_give(p, CONV2D_GRAD_W_DB, sum + n_w(&d), d.K);
}

static int64_t samples_of(const struct graph *g, const struct node *n)
{
    return n->op == OP_conv2d          ? cpu_in(g, n, CONV2D_X)->dim[0]
           : n->op == OP_conv2d_grad_x ? cpu_in(g, n, CONV2D_GRAD_X_DY)->dim[0]
                                       : cpu_in(g, n, CONV2D_GRAD_W_X)->dim[0];
}

/* Large filters of few channels beyond whole vectors, so that oneDNN would fill one vector more
 * nearly with zeros.  (Those of 3 x 3 are Winograd's.) */
static int has_few_dots(const struct shape *w)
{
    const int64_t rest = w->dim[0] % 16;

    return w->dim[0] > 16 && rest >= 1 && rest <= OUTER_DOTS_J && w->dim[1] % 16 &&
           w->dim[2] >= 5 && w->dim[3] >= 5;
}

/* The conditions: stride 1, no dilation, no padding, one group; few numbers side by side; and a
 * sample for each thread, since oneDNN can divide an image among threads and we cannot. */
int conv_rows_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const struct shape *w = cpu_conv_filter(g, n);
    const int64_t samples = samples_of(g, n);
    const int64_t K = w->dim[0], C = w->dim[1], L = C * w->dim[3], most = 16 * OUTER_MAX_V;

    for (int i = 0; i < 2; i++)
        if (n->attr.conv.stride[i] != 1 || n->attr.conv.dilation[i] != 1 || n->attr.conv.pad[i])
            return 0;
    if (op_type(g, n) != DTYPE_F32)
        return 0;
    if (n->attr.conv.groups != 1 || samples < b->n_threads || !outer_available())
        return 0;
    if (n->op == OP_conv2d)
        return K <= most && (C < 16 || has_few_dots(w)) && !cpu_has_in(n, CONV2D_ADD) &&
               (n->attr.conv.act == ACT_NONE || n->attr.conv.act == ACT_RELU);
    if (n->op == OP_conv2d_grad_x)
        return L <= most && C % 16;
    return (L <= most || K <= most) && C % 16;
}

int conv_rows_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err)
{
    const int grad_w = n->op == OP_conv2d_grad_w;
    const struct shape *w = cpu_conv_filter(g, n);
    const int64_t K = w->dim[0], L = w->dim[1] * w->dim[3];
    const int64_t by_row = K * round_up_i64(L, 16), by_k = L * round_up_i64(K, 16);
    const int64_t filters = w->dim[2] * max_i64(by_row, by_k);
    const int64_t dots = n->op == OP_conv2d ? OUTER_DOTS_J * w->dim[2] * round_up_i64(L, 16) : 0;
    const size_t scratch = (size_t)(filters + dots) * sizeof(float),
                 sums = scratch + (size_t)(2 * K) * sizeof(float);

    if (grad_w)
        return plain_new_split(b, g, n, cpu_conv_rows_run_grad_w, 0, sums, out, err);
    return plain_new_split(
        b, g, n, n->op == OP_conv2d ? cpu_conv_rows_run_forward : cpu_conv_rows_run_grad_x, scratch,
        0, out, err);
}
