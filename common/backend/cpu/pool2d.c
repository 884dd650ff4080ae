/* pool2d - maximum and average pools, and their gradients.
 *
 * The average is oneDNN's.  The maximum is plain C, since oneDNN's loses a NaN.  The gradients are
 * plain C, since one pass also computes the gradient of the activation before the pool.
 * op/pool2d.c has the formulas; the twin is cuda/pool2d.cu. */
#include <math.h>
#include <string.h>

#include "backend/cpu/chain.h"
#include "backend/cpu/plain.h"
#include "base/util.h"

/* One sample's window: rows [h0,h1) and columns [w0,w1) of the image; tap 0 is at (top, left). */
struct window {
    int64_t top, left, h0, h1, w0, w1;
};

static inline struct window window_at(const struct plain *p, int64_t height, int64_t width,
                                      int64_t i, int64_t j)
{
    const int *kernel = p->attr.pool.kernel, *stride = p->attr.pool.stride, *pad = p->attr.pool.pad;
    const int64_t top = i * stride[0] - pad[0], left = j * stride[1] - pad[1];

    return (struct window){top,
                           left,
                           max_i64(top, 0),
                           min_i64(top + kernel[0], height),
                           max_i64(left, 0),
                           min_i64(left + kernel[1], width)};
}

/* If x[c] is larger than y[c], or NaN, it wins: y[c] = x[c] and which[c] = tap. */
CPU_CLONES static void take_larger(const float *restrict x, float *restrict y,
                                   int32_t *restrict which, int32_t tap, int64_t c)
{
    for (int64_t i = 0; i < c; i++) {
        const int wins = (x[i] > y[i]) | (x[i] != x[i]);

        y[i] = wins ? x[i] : y[i];
        which[i] = wins ? tap : which[i];
    }
}

/* x begins with row h_first of the image. */
static void max_of_window(const struct plain *p, const float *x, int64_t h_first, struct window v,
                          float *y, int32_t *which)
{
    const int64_t width = p->in_shape[POOL2D_X].dim[2], c = p->c;

    memcpy(y, x + ((v.h0 - h_first) * width + v.w0) * c, (size_t)c * sizeof *y);
    for (int64_t i = 0; i < c; i++)
        which[i] = (int32_t)((v.h0 - v.top) * p->attr.pool.kernel[1] + v.w0 - v.left);
    for (int64_t h = v.h0; h < v.h1; h++)
        for (int64_t w = v.w0; w < v.w1; w++)
            take_larger(x + ((h - h_first) * width + w) * c, y, which,
                        (int32_t)((h - v.top) * p->attr.pool.kernel[1] + w - v.left), c);
}

/* Row i of sample n's output.  The windows' rows of the image pass through x_room, the output's row
 * through y_room.  If the node has no output `which`, `spare` takes it. */
static void max_of_row(const struct plain *p, int64_t n, int64_t i, float *x_room, int32_t *spare)
{
    const int64_t *x_dim = p->in_shape[POOL2D_X].dim, *y_dim = p->out_shape[POOL2D_Y].dim, c = p->c;
    const struct window all = window_at(p, x_dim[1], x_dim[2], i, 0);
    const int64_t x_row = x_dim[2] * c, y_at = (n * y_dim[1] + i) * y_dim[2] * c;
    float *y_room = x_room + p->attr.pool.kernel[0] * x_row;
    float *y = plain_dest(p, POOL2D_Y, y_at, y_room);
    /* row `all.h0` of the image is the first in the room */
    const float *x =
        plain_read(p, POOL2D_X, (n * x_dim[1] + all.h0) * x_row, (all.h1 - all.h0) * x_row, x_room);

    for (int64_t j = 0; j < y_dim[2]; j++)
        max_of_window(p, x, all.h0, window_at(p, x_dim[1], x_dim[2], i, j), y + j * c,
                      p->out[POOL2D_WHICH] ? (int32_t *)p->out[POOL2D_WHICH] + y_at + j * c
                                           : spare);
    plain_done(p, POOL2D_Y, y_at, y_dim[2] * c, y_room);
}

static void max_of_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    int32_t *spare = plain_part_scratch(p, part);
    float *room = (float *)(spare + round_up_i64(p->c, 16));

    for (int64_t n = from; n < to; n++)
        for (int64_t i = 0; i < p->out_shape[POOL2D_Y].dim[1]; i++)
            max_of_row(p, n, i, room, spare);
}

static void run_max(const struct plain *p)
{
    const int *kernel = p->attr.pool.kernel;

    plain_split(p, p->out_shape[POOL2D_Y].dim[0],
                shape_elements(&p->out_shape[POOL2D_Y]) * kernel[0] * kernel[1] / 4,
                max_of_samples);
}

static int make_average(struct cpu *b, const struct graph *g, const struct node *n,
                        struct kernel **out, struct err *err)
{
    const int *kernel = n->attr.pool.kernel, *stride = n->attr.pool.stride, *pad = n->attr.pool.pad;
    const struct dn_pool pool = {.kernel = {kernel[0], kernel[1]},
                                 .stride = {stride[0], stride[1]},
                                 .pad = {pad[0], pad[1]},
                                 .count_pad = n->attr.pool.count_pad};
    struct chain *c = chain_new(b, g, n, err);
    int x = chain_tensor(c, CHAIN_IN, POOL2D_X, dn_image(cpu_in(g, n, POOL2D_X)));
    int y = chain_tensor(c, CHAIN_OUT, POOL2D_Y, dn_image(cpu_out(g, n, POOL2D_Y)));
    dnnl_primitive_desc_t pd = NULL;

    if (y != CHAIN_NONE) {
        int rc = dn_average(b->dn, &pool, chain_md(c, x), chain_md(c, y), &pd, err);

        chain_add(c, rc, pd, (struct chain_arg[]){{DNNL_ARG_SRC, x, 0}, {DNNL_ARG_DST, y, 1}}, 2);
    }
    return chain_finish(c, out);
}

/* Scratch of a part: one pixel of `which`, and rooms for a window's rows and for a row of y. */
static size_t max_part_bytes(const struct graph *g, const struct node *n)
{
    const int64_t *x = cpu_in(g, n, POOL2D_X)->dim, *y = cpu_out(g, n, POOL2D_Y)->dim;

    return (size_t)(round_up_i64(x[3], 16) + n->attr.pool.kernel[0] * x[2] * x[3] + y[2] * x[3]) *
           sizeof(float);
}

int cpu_make_pool2d(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err)
{
    if (n->attr.pool.kind == POOL_AVG)
        return make_average(b, g, n, out, err);
    return plain_new_split(b, g, n, run_max, 0, max_part_bytes(g, n), out, err);
}

/* One row of the pool's gradient is summed in the scratch, over all windows that cover the row.
 * The scratch stays in the nearest cache, and dx is written once. */
struct row {
    const struct plain *p;
    int64_t dy_at;        /* where this sample's dy begins */
    const int32_t *which; /* of this sample; NULL: an average pool */
    int64_t h;            /* the number of the image's row */
    float *sum;           /* [W,C] */
    float *y_room, *dx_room, *dy_room;
};

static inline void add_scaled(float *restrict to, const float *restrict dy, float scale, int64_t c)
{
    for (int64_t i = 0; i < c; i++)
        to[i] += dy[i] * scale;
}

static inline void add_chosen(float *restrict to, const float *restrict dy,
                              const int32_t *restrict which, int32_t tap, int64_t c)
{
    for (int64_t i = 0; i < c; i++)
        to[i] += which[i] == tap ? dy[i] : 0.0f;
}

static inline float average_scale(const struct plain *p, struct window v)
{
    if (p->attr.pool.count_pad)
        return 1.0f / (float)(p->attr.pool.kernel[0] * p->attr.pool.kernel[1]);
    return 1.0f / (float)((v.h1 - v.h0) * (v.w1 - v.w0));
}

/* Add the part of the windows of output row i, whose gradient is dy [W',C], to the image's row. */
CPU_CLONES static void add_window_row(const struct row *r, int64_t i, const float *dy)
{
    const struct plain *p = r->p;
    const int64_t *y_dim = p->in_shape[POOL2D_GRAD_DY].dim,
                  *x_dim = p->out_shape[POOL2D_GRAD_DX].dim, c = p->c;

    for (int64_t j = 0; j < y_dim[2]; j++) {
        const struct window v = window_at(p, x_dim[1], x_dim[2], i, j);
        const int64_t at = (i * y_dim[2] + j) * c;
        const float scale = average_scale(p, v);

        for (int64_t w = v.w0; w < v.w1; w++)
            if (r->which)
                add_chosen(r->sum + w * c, dy + j * c, r->which + at,
                           (int32_t)((r->h - v.top) * p->attr.pool.kernel[1] + w - v.left), c);
            else
                add_scaled(r->sum + w * c, dy + j * c, scale, c);
    }
}

/* The same where windows fill the row from its beginning: each number of dy, scaled, is the sum of
 * kernel[1] pixels, and those behind the windows have none.  It adds 0 as a sum that begins there
 * would, so that -0 becomes 0. */
CPU_CLONES static void pool_spread_row(const struct row *r, const float *restrict dy)
{
    enum { WIDE = 16 };
    const struct plain *p = r->p;
    const int64_t n = p->in_shape[POOL2D_GRAD_DY].dim[2], c = p->c, width = p->attr.pool.kernel[1];
    const float scale = 1.0f / (float)(p->attr.pool.kernel[0] * width);
    float *restrict to = r->sum;

    for (int64_t j = 0; j < n; j++, dy += c)
        for (int64_t w = 0; w < width; w++, to += c) {
            int64_t k = 0;

            for (; k + WIDE <= c; k += WIDE)
                for (int i = 0; i < WIDE; i++)
                    to[k + i] = dy[k + i] * scale + 0.0f;
            if (k < c && c >= WIDE) /* the last ones, some of them again */
                for (int i = 0; i < WIDE; i++)
                    to[c - WIDE + i] = dy[c - WIDE + i] * scale + 0.0f;
            else
                for (; k < c; k++)
                    to[k] = dy[k] * scale + 0.0f;
        }
    memset(to, 0, (size_t)((p->out_shape[POOL2D_GRAD_DX].dim[2] - n * width) * c) * sizeof *to);
}

/* 1: these are average windows, side by side from the first pixel.  None reaches out of the image,
 * as ceil_mode is of maxima alone. */
static int pool_windows_fill(const struct plain *p)
{
    const int *kernel = p->attr.pool.kernel;
    int fill = !p->in[POOL2D_GRAD_WHICH];

    for (int i = 0; i < 2; i++)
        fill &= kernel[i] == p->attr.pool.stride[i] && p->attr.pool.pad[i] == 0;
    return fill;
}

/* The sums of an image's row, which the windows of output rows [first, end) cover. */
static void pool_sum_row(const struct row *r, int64_t first, int64_t end)
{
    const struct plain *p = r->p;
    const int64_t y_row = p->in_shape[POOL2D_GRAD_DY].dim[2] * p->c;
    const int fills = pool_windows_fill(p);

    if (!fills || first == end)
        memset(r->sum, 0, (size_t)(p->out_shape[POOL2D_GRAD_DX].dim[2] * p->c) * sizeof *r->sum);
    for (int64_t i = first; i < end; i++) {
        const float *dy = plain_read(p, POOL2D_GRAD_DY, r->dy_at + i * y_row, y_row, r->dy_room);

        if (fills)
            pool_spread_row(r, dy);
        else
            add_window_row(r, i, dy);
    }
}

/* dx = sum * act'(y), where y is the output of the activation before the pool. */
CPU_CLONES static void write_row(enum activation act, const float *restrict sum,
                                 const float *restrict y, float *restrict dx, int64_t n)
{
    if (act == ACT_NONE)
        memcpy(dx, sum, (size_t)n * sizeof *dx);
    else if (act == ACT_RELU)
        for (int64_t i = 0; i < n; i++) {
            const float all = sum[i]; /* always read: a masked load waits for the one before */

            dx[i] = y[i] <= 0.0f ? 0.0f : all;
        }
    else if (act == ACT_TANH)
        for (int64_t i = 0; i < n; i++)
            dx[i] = sum[i] * (1.0f - y[i] * y[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dx[i] = sum[i] * (y[i] * (1.0f - y[i]));
}

/* The output rows whose windows cover the image's row h are [*first, *end). */
static void cpu_pool2d_covering(const struct plain *p, int64_t h, int64_t *first, int64_t *end)
{
    const int64_t kernel = p->attr.pool.kernel[0], stride = p->attr.pool.stride[0];
    const int64_t at = h + p->attr.pool.pad[0], before = at - kernel + 1;

    *first = before <= 0 ? 0 : ceil_div_i64(before, stride);
    *end = min_i64(at / stride + 1, p->in_shape[POOL2D_GRAD_DY].dim[1]);
}

/* In an average pool, rows of the image that the same windows cover have one sum, which is kept. */
static void grad_sample(const struct plain *p, int part, int64_t n)
{
    const int64_t *y_dim = p->in_shape[POOL2D_GRAD_DY].dim,
                  *x_dim = p->out_shape[POOL2D_GRAD_DX].dim;
    const int64_t y_at = n * y_dim[1] * y_dim[2] * p->c, row = x_dim[2] * p->c;
    struct row r = {.p = p, .dy_at = y_at, .sum = plain_part_scratch(p, part)};
    int64_t last_first = -1, last_end = -1;

    r.y_room = r.sum + row;
    r.dx_room = r.y_room + row;
    r.dy_room = r.dx_room + row;
    if (p->in[POOL2D_GRAD_WHICH])
        r.which = (const int32_t *)p->in[POOL2D_GRAD_WHICH] + y_at;
    for (r.h = 0; r.h < x_dim[1]; r.h++) {
        const int64_t x_at = (n * x_dim[1] + r.h) * row;
        int64_t first, end;

        cpu_pool2d_covering(p, r.h, &first, &end);
        if (r.which || first != last_first || end != last_end)
            pool_sum_row(&r, first, end);
        last_first = first;
        last_end = end;
        write_row(p->attr.pool.act, r.sum,
                  p->in[POOL2D_GRAD_Y_ACT] ? plain_read(p, POOL2D_GRAD_Y_ACT, x_at, row, r.y_room)
                                           : NULL,
                  plain_dest(p, POOL2D_GRAD_DX, x_at, r.dx_room), row);
        plain_done(p, POOL2D_GRAD_DX, x_at, row, r.dx_room);
    }
}

static void grad_samples(const struct plain *p, int part, int64_t from, int64_t to)
{
    for (int64_t n = from; n < to; n++)
        grad_sample(p, part, n);
}

static void cpu_pool2d_run_grad(const struct plain *p)
{
    plain_split(p, p->out_shape[POOL2D_GRAD_DX].dim[0],
                shape_elements(&p->out_shape[POOL2D_GRAD_DX]) / 4, grad_samples);
}

int cpu_make_pool2d_grad(struct cpu *b, const struct graph *g, const struct node *n,
                         struct kernel **out, struct err *err)
{
    const int64_t *x = cpu_out(g, n, POOL2D_GRAD_DX)->dim, *y = cpu_in(g, n, POOL2D_GRAD_DY)->dim;

    /* the sum, and rooms for rows of y_act, dx and dy */
    return plain_new_split(b, g, n, cpu_pool2d_run_grad, 0,
                           (size_t)((3 * x[2] + y[2]) * x[3]) * sizeof(float), out, err);
}
