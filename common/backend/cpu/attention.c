/* attention - softmax(q k^T) v by blocks of queries, and its gradient, without the T x T matrix.
 *
 * A thread computes whole heads of whole samples.  For each head k is transposed once; then a block
 * of BLOCK queries has its scores against all keys from the first to the last one that one of them
 * may see, which stay in the thread's scratch.  So keys of documents before the block's are not
 * read.  All products are sums of outer products (outer.h; tile.h with AVX2), on older processors
 * plain loops.  The head's part of a BF16 tensor is widened to F32 in the scratch, or rounded from
 * there, but where the processor's tiles multiply BF16 (amx_attention.h).  One thread adds up all
 * of a head's gradient, so the bits do not depend on the number of threads. op/attention.c has the
 * formulas; the twin is cuda/attention.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/amx_attention.h"
#include "backend/cpu/dropout.h"
#include "backend/cpu/outer.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vector.h"
#include "base/util.h"

enum { BLOCK = AMX_QUERIES, QKV = 3 };

/* One head of one sample. */
struct head {
    const struct plain *p;
    int64_t sample, head;  /* which one */
    int64_t t, d, width;   /* rows, columns of the head, columns of all heads */
    int64_t stride;        /* of a row of scores: t, rounded up to LANES */
    int64_t in;            /* from one row of q, k, v, dq, dk and dv to the next */
    int64_t row_y;         /* the same of y and dy */
    const int32_t *starts; /* [t], of the sample; NULL: no row begins a document but the first */
    const float *q, *k, *v;
    const float *dy;          /* gradient only */
    float *y;                 /* or NULL */
    float *dq, *dk, *dv;      /* gradient only */
    float *kt, *vt;           /* scratch [d,t]: k and v transposed; vt in the gradient alone */
    float *score, *dp, *keep; /* scratch [BLOCK,stride], the same, [stride] */
    int by_tiles;             /* 1: the operands are those of `amx`, and not F32's */
    struct amx_head amx;
};

/* A block of queries [from, from + n), which see keys of [begin, end) alone. */
struct block {
    int64_t from, n, begin, end;
};

/* The first element of the head's columns in row i, which has n_parts times `width` columns;
 * `which` is the part: of q, k and v. */
static int64_t at_row(const struct head *h, int64_t i, int64_t n_parts, int64_t which)
{
    return ((h->sample * h->t + i) * n_parts + which) * h->width + h->head * h->d;
}

/* The same in a BF16 tensor. */
static const uint16_t *bf16_at(const struct head *h, int in, int64_t i, int64_t n_parts,
                               int64_t which)
{
    return (const uint16_t *)h->p->in[in] + at_row(h, i, n_parts, which);
}

static uint16_t *dqkv_at(const struct head *h, int64_t i, int64_t which)
{
    return (uint16_t *)h->p->out[ATTENTION_GRAD_DQKV] + at_row(h, i, QKV, which);
}

/* Row i of the block sees the keys [first, end). */
static int64_t cpu_attention_end(const struct head *h, const struct block *b, int64_t i)
{
    return h->p->attr.attention.causal ? b->from + i + 1 : h->t;
}

static int64_t cpu_attention_first(const struct head *h, const struct block *b, int64_t i)
{
    const int64_t at = b->from + i, window = h->p->attr.attention.window;
    const int64_t near = window > 0 ? max_i64(0, at - window + 1) : 0;

    return h->starts ? max_i64(near, min_i64(h->starts[at], at)) : near;
}

/* ---- products ---- */

CPU_CLONES static void product_row(struct matrix a, int64_t i, int64_t n, int64_t k, const float *b,
                                   int64_t b_row, float *restrict to, int adds)
{
    if (!adds)
        memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t l = 0; l < k; l++) {
        const float x = a.at[i * a.row + l * a.col], *restrict y = b + l * b_row;

        for (int64_t j = 0; j < n; j++)
            to[j] += x * y[j];
    }
}

/* to [m,n] = a [m,k] b [k,n], or += ; rows of b and of `to` are contiguous. */
static void cpu_attention_product(struct matrix a, const float *b, int64_t b_row, float *to,
                                  int64_t to_row, int64_t m, int64_t n, int64_t k, int adds)
{
    struct outer o = {
        .n1 = 1, .n2 = k, .a2 = a.col, .b2 = b_row, .end = adds ? OUTER_ADD : OUTER_STORE};

    if (!outer_available() && tile_available()) {
        tile_product(a, b, b_row, to, to_row, m, n, k, adds);
        return;
    }
    if (!outer_available()) {
        for (int64_t i = 0; i < m; i++)
            product_row(a, i, n, k, b, b_row, to + i * to_row, adds);
        return;
    }
    for (int64_t j = 0; j < n; j += o.n_j) {
        o.n_j = (int)min_i64(n - j, 4 * LANES);
        for (int64_t i = 0; i < m; i += o.n_i) {
            o.n_i = (int)min_i64(m - i, outer_max_i(o.n_j));
            for (int e = 0; e < o.n_i; e++) {
                o.a_off[e] = (i + e) * a.row;
                o.to_off[e] = (i + e) * to_row + j;
            }
            outer_run(&o, a.at, b + j, to);
        }
    }
}

/* to [d,t] = the transpose of from [t,d].  A few rows of `to` are written at a time, because rows
 * whose distance is a power of two share their place in the nearest cache: with all 64 rows of a
 * head at once, 256 long, it took 55 us instead of 9. */
static void cpu_attention_transpose(const float *from, int64_t row, int64_t t, int64_t d, float *to)
{
    for (int64_t first = 0; first < d; first += LANES)
        for (int64_t i = 0; i < t; i++)
            for (int64_t e = first; e < min_i64(d, first + LANES); e++)
                to[e * t + i] = from[i * row + e];
}

/* ---- rows of scores ---- */

static float cpu_attention_largest_of(const float *lane)
{
    float most = lane[0];

    for (int l = 1; l < LANES; l++)
        most = lane[l] > most ? lane[l] : most;
    return most;
}

static float cpu_attention_sum_of(const float *lane)
{
    float sum = 0;

    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

CPU_CLONES static float cpu_attention_largest(const float *x, int64_t n)
{
    lanes most = *(const lanes *)x;
    float lane[LANES];

    for (int64_t i = LANES; i < n; i += LANES)
        lanes_max(&most, x + i);
    memcpy(lane, &most, sizeof lane);
    return cpu_attention_largest_of(lane);
}

CPU_CLONES static float cpu_attention_sum(const float *x, int64_t n)
{
    lanes total = *(const lanes *)x;
    float lane[LANES];

    for (int64_t i = LANES; i < n; i += LANES)
        total += *(const lanes *)(x + i);
    memcpy(lane, &total, sizeof lane);
    return cpu_attention_sum_of(lane);
}

CPU_CLONES static float cpu_attention_dot(const float *x, const float *y, int64_t n)
{
    lanes total = *(const lanes *)x * *(const lanes *)y;
    float lane[LANES];

    for (int64_t i = LANES; i < n; i += LANES)
        total += *(const lanes *)(x + i) * *(const lanes *)(y + i);
    memcpy(lane, &total, sizeof lane);
    return cpu_attention_sum_of(lane);
}

/* x = e^(x*scale - shift) */
CPU_CLONES static void cpu_attention_exps(float *restrict x, int64_t n, float scale, float shift)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = exp_of(x[i] * scale - shift);
}

CPU_CLONES static void cpu_attention_times(float *restrict x, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

CPU_CLONES static void times_row(float *restrict x, const float *restrict by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= by[i];
}

/* ds = p * (dp - delta) * scale, in place of dp */
CPU_CLONES static void score_grad(const float *restrict p, float *restrict dp, int64_t n,
                                  float delta, float scale)
{
    for (int64_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - delta) * scale;
}

static void cpu_attention_fill(float *x, int64_t from, int64_t to, float value)
{
    for (int64_t i = from; i < to; i++)
        x[i] = value;
}

static int64_t round_up(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static float cpu_attention_scale_of(const struct head *h) { return 1.0f / sqrtf((float)h->d); }

/* keep = kept, or 0 for what is dropped */
CPU_CLONES static void keep_of(const uint32_t *restrict word, float *restrict keep, float drop,
                               float kept, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        keep[j] = dropout_unit(word[j]) >= drop ? kept : 0.0f;
}

/* m[i,j] of row i of the sample, for begin <= j < n; zeros up to the next multiple of LANES. */
static void draw_keep(const struct head *h, const struct step_scalars *s, int64_t i, int64_t begin,
                      int64_t n)
{
    const union node_attr *a = &h->p->attr;
    const float kept = 1.0f / (1.0f - a->attention.p);
    const uint64_t row = (uint64_t)((s->first_position + h->sample) * a->attention.heads + h->head);
    const uint64_t first = (row * (uint64_t)h->t + (uint64_t)i) * (uint64_t)h->t;

    for (int64_t j = begin; j < n; j += PLAIN_PIECE) {
        const int64_t piece = min_i64(n - j, PLAIN_PIECE);
        struct rng_block room[DROPOUT_BLOCKS];

        keep_of(dropout_words(s, a->attention.tag, first + (uint64_t)j, piece, room), h->keep + j,
                a->attention.p, kept, piece);
    }
    cpu_attention_fill(h->keep, n, round_up(n), 0.0f);
}

/* ---- forward ---- */

/* Row i of the block: the scores become m*p, and 0 for keys that it does not see.  Returns lse. */
static float cpu_attention_softmax(const struct head *h, const struct block *b, int64_t i)
{
    float *x = h->score + i * h->stride;
    const int64_t end = cpu_attention_end(h, b, i), whole = round_up(end), from = b->begin;
    float most, total;

    cpu_attention_fill(x, from, cpu_attention_first(h, b, i), -INFINITY);
    cpu_attention_fill(x, end, whole, -INFINITY);
    most = cpu_attention_largest(x + from, whole - from) * cpu_attention_scale_of(h);
    cpu_attention_exps(x + from, whole - from, cpu_attention_scale_of(h), most);
    total = cpu_attention_sum(x + from, whole - from);
    cpu_attention_times(x + from, whole - from, 1.0f / total);
    if (h->p->attr.attention.p > 0) {
        draw_keep(h, h->p->in[ATTENTION_SCALARS], b->from + i, from, end);
        times_row(x + from, h->keep + from, end - from);
    }
    cpu_attention_fill(x, end, b->end, 0.0f);
    return most + logf(total);
}

static struct matrix cpu_attention_rows_of(const float *at, int64_t row)
{
    return (struct matrix){at, row, 1};
}

static struct matrix columns_of(const float *at, int64_t row)
{
    return (struct matrix){at, 1, row};
}

static void forward_block(const struct head *h, const struct block *b)
{
    const int64_t heads = h->p->attr.attention.heads, in = h->in;
    const int64_t row = h->sample * h->t + b->from;
    float *lse = h->p->out[ATTENTION_LSE];

    if (h->by_tiles)
        amx_head_scores(&h->amx, 0, bf16_at(h, ATTENTION_QKV, b->from, QKV, 0), QKV * h->width,
                        b->begin, b->end, h->score);
    else
        cpu_attention_product(cpu_attention_rows_of(h->q + b->from * in, in), h->kt + b->begin,
                              h->t, h->score + b->begin, h->stride, b->n, b->end - b->begin, h->d,
                              0);
    for (int64_t i = 0; i < b->n; i++) {
        const float l = cpu_attention_softmax(h, b, i);

        if (lse)
            lse[(row + i) * heads + h->head] = l;
    }
    if (h->by_tiles)
        amx_head_values(&h->amx, h->score, b->begin, b->end,
                        (uint16_t *)h->p->out[ATTENTION_Y] + at_row(h, b->from, 1, 0), h->width);
    else
        cpu_attention_product(cpu_attention_rows_of(h->score + b->begin, h->stride),
                              h->v + b->begin * in, in, h->y + b->from * h->row_y, h->row_y, b->n,
                              h->d, b->end - b->begin, 0);
}

/* ---- the gradient ---- */

/* Row i of the block: dp becomes ds, and the scores become m*p; both are 0 for keys that it does
 * not see. */
static void cpu_attention_softmax_grad(const struct head *h, const struct block *b, int64_t i,
                                       float lse)
{
    float *x = h->score + i * h->stride, *dp = h->dp + i * h->stride;
    const int64_t first = cpu_attention_first(h, b, i), end = cpu_attention_end(h, b, i);
    const int64_t from = b->begin, n = end - from, whole = round_up(end);
    const int drops = h->p->attr.attention.p > 0;

    cpu_attention_exps(x + first, end - first, cpu_attention_scale_of(h), lse);
    cpu_attention_fill(x, from, first, 0.0f);
    cpu_attention_fill(dp, from, first, 0.0f);
    cpu_attention_fill(x, end, whole, 0.0f);
    cpu_attention_fill(dp, end, whole, 0.0f);
    if (drops) {
        draw_keep(h, h->p->in[ATTENTION_GRAD_SCALARS], b->from + i, from, end);
        times_row(dp + from, h->keep + from, n);
    }
    score_grad(x + from, dp + from, n, cpu_attention_dot(x + from, dp + from, whole - from),
               cpu_attention_scale_of(h));
    if (drops)
        times_row(x + from, h->keep + from, n);
    cpu_attention_fill(x, end, b->end, 0.0f);
    cpu_attention_fill(dp, end, b->end, 0.0f);
}

static void grad_scores(const struct head *h, const struct block *b)
{
    const int64_t from = b->begin, n = b->end - from;

    if (h->by_tiles) {
        amx_head_scores(&h->amx, 0, bf16_at(h, ATTENTION_QKV, b->from, QKV, 0), QKV * h->width,
                        from, b->end, h->score);
        amx_head_scores(&h->amx, 1, bf16_at(h, ATTENTION_GRAD_DY, b->from, 1, 0), h->width, from,
                        b->end, h->dp);
        return;
    }
    cpu_attention_product(cpu_attention_rows_of(h->q + b->from * h->in, h->in), h->kt + from, h->t,
                          h->score + from, h->stride, b->n, n, h->d, 0);
    cpu_attention_product(cpu_attention_rows_of(h->dy + b->from * h->row_y, h->row_y), h->vt + from,
                          h->t, h->dp + from, h->stride, b->n, n, h->d, 0);
}

static void grad_values(const struct head *h, const struct block *b)
{
    const int64_t in = h->in, from = b->begin, n = b->end - from;
    const float *q = h->q + b->from * in, *dy = h->dy + b->from * h->row_y;

    cpu_attention_product(cpu_attention_rows_of(h->dp + from, h->stride), h->k + from * in, in,
                          h->dq + b->from * in, in, b->n, h->d, n, 0);
    cpu_attention_product(columns_of(h->dp + from, h->stride), q, in, h->dk + from * in, in, n,
                          h->d, b->n, 1);
    cpu_attention_product(columns_of(h->score + from, h->stride), dy, h->row_y, h->dv + from * in,
                          in, n, h->d, b->n, 1);
}

static void grad_block(const struct head *h, const struct block *b)
{
    const int64_t heads = h->p->attr.attention.heads, row = h->sample * h->t + b->from;
    const float *lse = h->p->in[ATTENTION_GRAD_LSE];

    grad_scores(h, b);
    for (int64_t i = 0; i < b->n; i++)
        cpu_attention_softmax_grad(h, b, i, lse[(row + i) * heads + h->head]);
    if (!h->by_tiles)
        grad_values(h, b);
    else
        amx_head_grad(&h->amx, h->score, h->dp, b->begin, b->end,
                      bf16_at(h, ATTENTION_QKV, b->from, QKV, 0), QKV * h->width,
                      bf16_at(h, ATTENTION_GRAD_DY, b->from, 1, 0), h->width,
                      dqkv_at(h, b->from, 0), QKV * h->width);
}

static void zero_kv(const struct head *h)
{
    for (int64_t i = 0; i < h->t; i++) {
        memset(h->dk + i * h->in, 0, (size_t)h->d * sizeof *h->dk);
        memset(h->dv + i * h->in, 0, (size_t)h->d * sizeof *h->dv);
    }
}

/* ---- the kernels ---- */

/* Room for q, k and v, and for dy, y and dq, dk, dv of one head; used if they are widened. */
static int64_t n_widened(int64_t t, int64_t d, int is_grad) { return (is_grad ? 7 : 4) * t * d; }

/* 1: tiles multiply the operands, of which q, dy, y and dq stay where they are. */
static int has_tiles(const struct plain *p)
{
    return amx_attention_fits(p->in_type[ATTENTION_QKV], p->widens_bf16, p->attr.attention.length,
                              p->c / QKV / p->attr.attention.heads);
}

static size_t cpu_attention_scratch_bytes(const struct graph *g, const struct node *n, int widens,
                                          int is_grad)
{
    const struct value *qkv = &g->value[n->in[ATTENTION_QKV]];
    const int64_t t = n->attr.attention.length,
                  d = qkv->shape.dim[1] / QKV / n->attr.attention.heads;
    const int64_t widened = qkv->dtype == DTYPE_F32 ? 0 : n_widened(t, d, is_grad);
    const int64_t scores = (is_grad ? 2 : 1) * BLOCK * round_up(t) + round_up(t);
    const int64_t operands = (is_grad ? 2 : 1) * t * d + widened;

    return (size_t)scores * sizeof(float) + (amx_attention_fits(qkv->dtype, widens, t, d)
                                                 ? amx_head_bytes(t, d, is_grad)
                                                 : (size_t)operands * sizeof(float));
}

/* Copies the head's part of input `in` to the room [t, n_parts*d]. */
static void cpu_attention_widen(const struct head *h, int in, int64_t n_parts, float *room)
{
    for (int64_t i = 0; i < h->t * n_parts; i++)
        (void)plain_read(h->p, in, at_row(h, i / n_parts, n_parts, i % n_parts), h->d,
                         room + i * h->d);
}

/* Rounds the room [t, n_parts*d] to the head's part of output `out`. */
static void cpu_attention_narrow(const struct head *h, int out, int64_t n_parts, const float *room)
{
    for (int64_t i = 0; i < h->t * n_parts; i++)
        plain_done(h->p, out, at_row(h, i / n_parts, n_parts, i % n_parts), h->d, room + i * h->d);
}

/* The operands of a head whose tensors are F32: they stay where they are. */
static void cpu_attention_place(struct head *h, int is_grad)
{
    h->in = QKV * h->width;
    h->row_y = h->width;
    h->q = (const float *)h->p->in[ATTENTION_QKV] + at_row(h, 0, QKV, 0);
    h->k = h->q + h->width;
    h->v = h->k + h->width;
    if (!is_grad) {
        h->y = (float *)h->p->out[ATTENTION_Y] + at_row(h, 0, 1, 0);
        return;
    }
    h->dy = (const float *)h->p->in[ATTENTION_GRAD_DY] + at_row(h, 0, 1, 0);
    h->dq = (float *)h->p->out[ATTENTION_GRAD_DQKV] + at_row(h, 0, QKV, 0);
    h->dk = h->dq + h->width;
    h->dv = h->dk + h->width;
}

/* The same of BF16: they are in the room. */
static void place_widened(struct head *h, float *room, int is_grad)
{
    float *more = room + h->t * QKV * h->d;

    h->in = QKV * h->d;
    h->row_y = h->d;
    cpu_attention_widen(h, ATTENTION_QKV, QKV, room);
    h->q = room;
    h->k = h->q + h->d;
    h->v = h->k + h->d;
    if (!is_grad) {
        h->y = more;
        return;
    }
    cpu_attention_widen(h, ATTENTION_GRAD_DY, 1, more);
    h->dy = more;
    h->dq = more + h->t * h->d;
    h->dk = h->dq + h->d;
    h->dv = h->dk + h->d;
}

static int is_widened(const struct plain *p) { return p->in_type[ATTENTION_QKV] != DTYPE_F32; }

static struct head cpu_attention_head_of(const struct plain *p, int part, int64_t i, int is_grad)
{
    const int64_t heads = p->attr.attention.heads, width = p->c / QKV;
    struct head h = {.p = p,
                     .sample = i / heads,
                     .head = i % heads,
                     .t = p->attr.attention.length,
                     .d = width / heads,
                     .width = width};

    h.stride = round_up(h.t);
    h.starts = p->in[is_grad ? ATTENTION_GRAD_STARTS : ATTENTION_STARTS];
    if (h.starts)
        h.starts += h.sample * h.t;
    h.score = plain_part_scratch(p, part);
    h.keep = h.score + BLOCK * h.stride;
    h.dp = h.keep + h.stride;
    h.kt = h.dp + (is_grad ? BLOCK * h.stride : 0);
    h.vt = h.kt + h.t * h.d;
    h.by_tiles = has_tiles(p);
    if (h.by_tiles) {
        amx_begin();
        h.amx = amx_head_of(h.kt, h.t, h.d, bf16_at(&h, ATTENTION_QKV, 0, QKV, 1),
                            bf16_at(&h, ATTENTION_QKV, 0, QKV, 2), QKV * width, is_grad);
        return h;
    }
    if (is_widened(p))
        place_widened(&h, h.vt + (is_grad ? h.t * h.d : 0), is_grad);
    else
        cpu_attention_place(&h, is_grad);
    cpu_attention_transpose(h.k, h.in, h.t, h.d, h.kt);
    if (is_grad)
        cpu_attention_transpose(h.v, h.in, h.t, h.d, h.vt);
    return h;
}

/* The first key that a row of the block sees, or one just before it: rows of scores begin at a
 * multiple of LANES, those of tiles at one of AMX_QUERIES. */
static int64_t cpu_attention_begin(const struct head *h, const struct block *b)
{
    int64_t least = b->from;

    for (int64_t i = 0; i < b->n; i++)
        least = min_i64(least, cpu_attention_first(h, b, i));
    return h->by_tiles ? least / AMX_QUERIES * AMX_QUERIES : least / LANES * LANES;
}

static void each_block(const struct head *h,
                       void (*run)(const struct head *h, const struct block *b))
{
    for (int64_t from = 0; from < h->t; from += BLOCK) {
        struct block b = {.from = from, .n = min_i64(BLOCK, h->t - from)};

        b.end = h->p->attr.attention.causal ? from + b.n : h->t;
        b.begin = cpu_attention_begin(h, &b);
        run(h, &b);
    }
}

static void cpu_attention_forward_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const struct head h = cpu_attention_head_of(p, part, i, 0);

        each_block(&h, forward_block);
        if (h.by_tiles)
            amx_end();
        else if (is_widened(p))
            cpu_attention_narrow(&h, ATTENTION_Y, 1, h.y);
    }
}

static void cpu_attention_grad_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++) {
        const struct head h = cpu_attention_head_of(p, part, i, 1);

        if (!h.by_tiles)
            zero_kv(&h);
        each_block(&h, grad_block);
        if (h.by_tiles) {
            amx_head_finish(&h.amx, dqkv_at(&h, 0, 1), dqkv_at(&h, 0, 2), QKV * h.width);
            amx_end();
        } else if (is_widened(p))
            cpu_attention_narrow(&h, ATTENTION_GRAD_DQKV, QKV, h.dq);
    }
}

static void cpu_attention_split(const struct plain *p, plain_part *part)
{
    const int64_t heads = p->attr.attention.heads, t = p->attr.attention.length;

    plain_split(p, p->rows / t * heads, p->rows * t * p->c / 48, part);
}

static void cpu_attention_run(const struct plain *p)
{
    cpu_attention_split(p, cpu_attention_forward_part);
}

static void cpu_attention_run_grad(const struct plain *p)
{
    cpu_attention_split(p, cpu_attention_grad_part);
}

int cpu_make_attention(struct cpu *b, const struct graph *g, const struct node *n,
                       struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_attention_run, 0,
                           cpu_attention_scratch_bytes(g, n, b->widens_bf16, 0), out, err);
}

int cpu_make_attention_grad(struct cpu *b, const struct graph *g, const struct node *n,
                            struct kernel **out, struct err *err)
{
    return plain_new_split(b, g, n, cpu_attention_run_grad, 0,
                           cpu_attention_scratch_bytes(g, n, b->widens_bf16, 1), out, err);
}
