/* amx_conv - products of columns (amx_columns.h) and the filter, in panels of 32 channels.
 *
 * The filter is put in order in each run: [classes][panels][taps][32 terms][16 pairs of terms]
 * [32 outputs][2], where terms are channels of a tap.  Its panels pass over a block's columns one
 * by one.  The sums of two tiles of pixels are rounded and written while the next two are
 * multiplied (amx.beside).
 *
 * Milliseconds of one core (Emerald Rapids, while its neighbours were quiet; with busy ones both
 * take three times as long):
 *
 *                                             forward        grad_x
 *                                           ours oneDNN    ours oneDNN (2.6)
 *   128 samples, 4x4, 512 -> 512, 3x3       11.3   28.4    12.0   36.0
 *     8x8, 256 -> 256                        9.2    8.0     9.5   11.5
 *     16x16, 128 -> 128                      7.5    6.9     7.9    8.7
 *     32x32, 64 -> 64                       10.2    8.7     9.6    9.2
 *     8x8, 256 -> 512, stride 2              5.9   12.6     7.2   24.3
 *     16x16, 128 -> 256, stride 2            6.2    6.7     8.0   16.0
 *     32x32, 64 -> 128, stride 2             9.2    6.2    10.2   15.3
 *     32x32, 64 -> 128, 1x1, stride 2        2.7    1.3     4.3    5.2
 *   16 samples, 7x7, 512 -> 512, 3x3         5.7    6.2     6.4    7.7
 *     14x14, 256 -> 256                      3.6    2.8     3.8    2.9
 *     56x56, 64 -> 256, 1x1                  8.0    4.8     4.4    4.5
 *     14x14, 512 -> 512, 3x3, stride 2       6.1    8.8     6.8   13.9
 *
 * oneDNN is slow where the filter is larger than the nearest large cache, and for the grad_x of
 * strides. */
#include "backend/cpu/amx_conv.h"

#include <string.h>

#include "backend/cpu/amx.h"
#include "backend/cpu/amx_columns.h"
#include "backend/cpu/plain.h"
#include "backend/cpu/vector.h"
#include "base/util.h"
#include "op/op.h"

/* ---- the filter ---- */

/* How the pairs of 32 terms and a panel's outputs lie in the room, before a tap is taken. */
static void read_filter(const struct amx_pass *s, const uint16_t *w, int64_t panel, int64_t block,
                        uint16_t *room)
{
    const uint16_t *row[AMX_TERMS];

    for (int64_t i = 0; i < AMX_PANEL; i++)
        row[i] = panel * AMX_PANEL + i < s->K
                     ? w + ((panel * AMX_PANEL + i) * s->C + block * AMX_TERMS) * s->R * s->S
                     : NULL;
    for (int64_t i = 0; i < AMX_TERMS * s->R * s->S; i += AMX_TILE)
        amx_turn(row, i, room + i * AMX_PANEL);
}

/* room [terms][taps][outputs] */
static void take_tap(const struct amx_pass *s, const uint16_t *room, int64_t tap, uint16_t *to)
{
    for (int64_t i = 0; i < AMX_TERMS; i += 2)
        amx_pair(room + (i * s->R * s->S + tap) * AMX_PANEL,
                 room + ((i + 1) * s->R * s->S + tap) * AMX_PANEL, AMX_PANEL, to + i * AMX_PANEL);
}

/* room [pairs of terms][outputs][taps][2] */
static void read_filter_grad_x(const struct amx_pass *s, const uint16_t *w, int64_t panel,
                               int64_t block, uint16_t *room)
{
    const int64_t n = min_i64(AMX_PANEL, s->K - panel * AMX_PANEL) * s->R * s->S;

    for (int64_t i = 0; i < AMX_TERMS; i += 2) {
        const uint16_t *low =
            w + ((block * AMX_TERMS + i) * s->K + panel * AMX_PANEL) * s->R * s->S;

        amx_pair(low, low + s->K * s->R * s->S, n, room + i * AMX_PANEL * s->R * s->S);
    }
}

static void take_tap_grad_x(const struct amx_pass *s, const uint16_t *room, int64_t tap,
                            uint16_t *to)
{
    for (int64_t i = 0; i < AMX_TERMS / 2 * AMX_PANEL; i++)
        memcpy(to + 2 * i, room + 2 * (i * s->R * s->S + tap), 2 * sizeof *to);
}

/* The numbers of 32 terms, from `block` on, of a panel, for each tap of each class. */
static void pack_filter(const struct amx_pass *s, const uint16_t *w, int64_t panel, int64_t block,
                        uint16_t *room, uint16_t *to)
{
    const int64_t blocks = s->C / AMX_TERMS;

    (s->is_grad_x ? read_filter_grad_x : read_filter)(s, w, panel, block, room);
    for (const struct amx_class *c = s->classes; c < s->classes + s->n_classes; c++) {
        uint16_t *at =
            to + c->filter + (panel * c->down.taps * c->across.taps * blocks + block) * AMX_STEP;

        for (int64_t i = 0; i < c->down.taps; i++)
            for (int64_t j = 0; j < c->across.taps; j++, at += blocks * AMX_STEP) {
                const int64_t r = c->down.tap0 + i * c->down.tap_step;
                const int64_t t = c->across.tap0 + j * c->across.tap_step;

                (s->is_grad_x ? take_tap_grad_x : take_tap)(s, room, r * s->S + t, at);
            }
    }
}

/* ---- products ---- */

enum { ROWS = 4 /* pixels that are ended at once */ };

struct ends {
    const uint16_t *from, *bias, *add; /* bias, add: or NULL; add may be `to` */
    uint16_t *to;
    int is_relu;
};

/* The sums of two tiles of pixels or one, which become numbers of `to` while the next ones are
 * multiplied: products take the tiles' unit alone. */
struct ending {
    const struct ends *e;
    float sum[2][AMX_PANEL * AMX_PANEL]; /* the present ones, and those before */
    int turn;                            /* which of the two is the present one */
    int64_t each;                        /* pixels that a step ends, a multiple of ROWS */
    const struct amx_pixels *tile;       /* those before; NULL: none */
    int64_t n_tiles, k, n_k;             /* k: the first channel; n_k: channels */
};

/* n channels of a pixel: `bias` and `to` are those of the first one, and `add` as well. */
static inline __attribute__((always_inline)) void end_pixel(const float *sum, const uint16_t *bias,
                                                            const uint16_t *add, int is_relu,
                                                            int64_t n, uint16_t *to)
{
    for (int64_t j = 0; j < n; j += LANES) {
        lanes y = *(const lanes *)(sum + j), more;

        if (bias) {
            lanes_from_bf16(&more, bias + j);
            y += more;
        }
        if (add) {
            lanes_from_bf16(&more, add + j);
            y += more;
        }
        if (is_relu) /* NaN stays */
            y = (lanes)((lane_bits)y & ~(lane_bits)(y < 0));
        lanes_to_bf16(to + j, &y);
    }
}

CPU_CLONES static void end_rows(const struct ending *x, const float *sum, const int64_t *place)
{
    const struct ends *e = x->e;

    for (int64_t i = 0; i < ROWS; i++)
        if (place[i] >= 0)
            end_pixel(sum + i * AMX_PANEL, e->bias ? e->bias + x->k : NULL,
                      e->add ? e->add + place[i] + x->k : NULL, e->is_relu, x->n_k,
                      e->to + place[i] + x->k);
}

static void end_pixels(void *task, int64_t step)
{
    const struct ending *x = task;
    const int64_t from = step * x->each, to = min_i64(from + x->each, x->n_tiles * AMX_TILE);
    const int is_whole = !x->e->bias && !x->e->add && !x->e->is_relu && x->n_k == AMX_PANEL;

    for (int64_t i = from; i < to; i += ROWS) {
        const float *sum = x->sum[!x->turn] + i * AMX_PANEL;
        const int64_t *place = x->tile[i / AMX_TILE].place + i % AMX_TILE;

        if (is_whole)
            amx_write(sum, place, ROWS, x->e->to + x->k);
        else
            end_rows(x, sum, place);
    }
}

static void end_all(struct ending *x)
{
    x->each = AMX_PANEL;
    end_pixels(x, 0);
}

/* The panel from channel k on, of all tiles. */
static void amx_conv_panel(struct amx *m, const uint16_t *a, const uint16_t *b,
                           const struct amx_pixels *tile, int64_t n_tiles, int64_t k,
                           struct ending *end)
{
    const int64_t steps = m->n1 * m->n2;

    for (int64_t i = 0; i < n_tiles; i += 2) {
        const int64_t n = min_i64(2, n_tiles - i);

        m->n_i = n == 2 ? AMX_BLOCK : AMX_TILE;
        m->a_low = n == 2 ? tile[i + 1].column - tile[i].column : 0;
        end->each = steps * ROWS < AMX_PANEL ? AMX_PANEL : ROWS;
        amx_run(m, a + tile[i].column, b, end->sum[end->turn]);
        end->turn ^= 1;
        end->tile = tile + i;
        end->n_tiles = n;
        end->k = k;
        end->n_k = m->n_j;
    }
}

/* The pixels of a class of grad_x to which no tap comes. */
static void zero_pixels(const struct amx_pass *s, const struct amx_pixels *tile, int64_t n_tiles,
                        uint16_t *to)
{
    for (int64_t i = 0; i < n_tiles * AMX_TILE; i++) {
        const int64_t place = tile[i / AMX_TILE].place[i % AMX_TILE];

        if (place >= 0)
            memset(to + place, 0, (size_t)s->K * sizeof *to);
    }
}

static void amx_conv_block(const struct amx_pass *s, const struct amx_class *c,
                           const struct ends *e, const uint16_t *filter, int64_t block,
                           uint16_t *columns, struct amx_pixels *tiles)
{
    const struct amx_columns x = amx_columns_at(s, c, block);
    const int64_t row = c->across.taps * s->C;
    _Alignas(64) struct ending end = {.e = e};
    int64_t n_tiles;
    struct amx m = {.n1 = c->down.taps,
                    .n2 = row / AMX_TERMS,
                    .a1 = x.plane,
                    .a2 = AMX_TERMS,
                    .b1 = row * AMX_PANEL,
                    .b2 = AMX_STEP,
                    .a_row = x.pixel,
                    .b_row = 2 * AMX_PANEL,
                    .c_row = AMX_PANEL,
                    .beside = end_pixels,
                    .task = &end};

    n_tiles = amx_columns_tiles(s, c, &x, tiles);
    if (m.n1 * m.n2 == 0) {
        zero_pixels(s, tiles, n_tiles, e->to);
        return;
    }
    amx_columns_fill(s, c, &x, e->from, columns);
    for (int64_t k = 0; k < s->K; k += AMX_PANEL) {
        m.n_j = s->K - k < AMX_PANEL ? AMX_TILE : AMX_PANEL;
        amx_conv_panel(&m, columns, filter + c->filter + k * c->down.taps * row, tiles, n_tiles, k,
                       &end);
    }
    end_all(&end);
}

/* ---- kernels ---- */

static struct amx_pass amx_conv_pass(const struct plain *p, int is_grad_x)
{
    return is_grad_x
               ? amx_pass_grad_x(&p->in_shape[CONV2D_GRAD_X_DY], &p->in_shape[CONV2D_GRAD_X_W],
                                 &p->out_shape[CONV2D_GRAD_X_DX], &p->attr, p->n_threads)
               : amx_pass_forward(&p->in_shape[CONV2D_X], &p->in_shape[CONV2D_W],
                                  &p->out_shape[CONV2D_Y], &p->attr, p->n_threads);
}

/* A part's scratch has columns, or the filter's numbers, and then tiles. */
static size_t tiles_at(const struct amx_pass *s)
{
    return (size_t)round_up_i64(s->room.numbers * (int64_t)sizeof(uint16_t), 64);
}

static size_t amx_conv_part_bytes(const struct amx_pass *s)
{
    return tiles_at(s) + (size_t)s->room.tiles * sizeof(struct amx_pixels);
}

static size_t filter_bytes(const struct amx_pass *s)
{
    return (size_t)(s->R * s->S * s->C * amx_pass_panels(s) * AMX_PANEL) * sizeof(uint16_t);
}

/* Vector instructions that take as long, roughly. */
static int64_t amx_conv_work(const struct amx_pass *s)
{
    int64_t terms = 0;

    for (const struct amx_class *c = s->classes; c < s->classes + s->n_classes; c++)
        terms += c->down.n * c->across.n * (c->down.taps * c->across.taps * s->C + AMX_TERMS);
    return s->N * terms * s->K / (AMX_TILE * AMX_TILE);
}

static void run_filter(const struct plain *p, const struct amx_pass *s, const void *w, int part,
                       int64_t from, int64_t to)
{
    const int64_t blocks = s->C / AMX_TERMS;

    for (int64_t i = from; i < to; i++)
        pack_filter(s, w, i / blocks, i % blocks, plain_part_scratch(p, part), p->scratch);
}

static void amx_conv_run_blocks(const struct plain *p, const struct amx_pass *s,
                                const struct ends *e, int part, int64_t from, int64_t to)
{
    uint16_t *columns = plain_part_scratch(p, part);
    struct amx_pixels *tiles = (struct amx_pixels *)((char *)columns + tiles_at(s));

    amx_begin();
    for (int64_t i = from; i < to; i++)
        for (int j = 0; j < s->n_classes; j++)
            amx_conv_block(s, &s->classes[j], e, p->scratch, i, columns, tiles);
    amx_end();
}

static void amx_conv_run(const struct plain *p, int is_grad_x, plain_part *filter,
                         plain_part *blocks)
{
    const struct amx_pass s = amx_conv_pass(p, is_grad_x);
    const int64_t steps = amx_pass_panels(&s) * (s.C / AMX_TERMS);

    plain_split(p, steps, steps * s.R * s.S * AMX_TERMS, filter);
    plain_split(p, amx_pass_blocks(&s), amx_conv_work(&s), blocks);
}

static void amx_forward_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct amx_pass s = amx_conv_pass(p, 0);

    run_filter(p, &s, p->in[CONV2D_W], part, from, to);
}

static void amx_forward_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct amx_pass s = amx_conv_pass(p, 0);
    const struct ends e = {p->in[CONV2D_X], p->in[CONV2D_B], p->in[CONV2D_ADD], p->out[CONV2D_Y],
                           p->attr.conv.act == ACT_RELU};

    amx_conv_run_blocks(p, &s, &e, part, from, to);
}

static void amx_conv_run_forward(const struct plain *p)
{
    amx_conv_run(p, 0, amx_forward_filter, amx_forward_blocks);
}

static void amx_grad_x_filter(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct amx_pass s = amx_conv_pass(p, 1);

    run_filter(p, &s, p->in[CONV2D_GRAD_X_W], part, from, to);
}

static void amx_grad_x_blocks(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct amx_pass s = amx_conv_pass(p, 1);
    const struct ends e = {.from = p->in[CONV2D_GRAD_X_DY], .to = p->out[CONV2D_GRAD_X_DX]};

    amx_conv_run_blocks(p, &s, &e, part, from, to);
}

static void amx_conv_run_grad_x(const struct plain *p)
{
    amx_conv_run(p, 1, amx_grad_x_filter, amx_grad_x_blocks);
}

/* ---- making ---- */

int amx_conv_can(const struct graph *g, const struct node *n)
{
    const struct shape *w = cpu_conv_filter(g, n);
    const int is_grad_x = n->op == OP_conv2d_grad_x;

    if (n->op == OP_conv2d_grad_w || op_type(g, n) != DTYPE_BF16 || n->attr.conv.groups != 1)
        return 0;
    for (int i = 0; i < 2; i++)
        if (n->attr.conv.dilation[i] != 1 ||
            (is_grad_x && n->attr.conv.stride[i] > AMX_MOST_STRIDE))
            return 0;
    if (n->op == OP_conv2d && n->attr.conv.act != ACT_NONE && n->attr.conv.act != ACT_RELU)
        return 0;
    return w->dim[is_grad_x ? 0 : 1] % AMX_TERMS == 0 && w->dim[is_grad_x ? 1 : 0] % AMX_TILE == 0;
}

/* The least filter, in numbers, with which small images are computed here. */
static int64_t least_filter(const struct node *n)
{
    const int has_stride = n->attr.conv.stride[0] > 1 || n->attr.conv.stride[1] > 1;

    if (n->op == OP_conv2d_grad_x)
        return has_stride ? 0 : 1 << 19;
    return has_stride ? 1 << 18 : 1 << 20;
}

/* Where this is faster than oneDNN 2.6: grad_x with strides, and images of up to 8 x 8 pixels with
 * many channels. */
int amx_conv_fits(const struct cpu *b, const struct graph *g, const struct node *n)
{
    const int64_t least = least_filter(n);
    const struct shape *y;

    if (!amx_available() || b->widens_bf16 || !amx_conv_can(g, n))
        return 0;
    y = n->op == OP_conv2d ? cpu_out(g, n, CONV2D_Y) : cpu_in(g, n, CONV2D_GRAD_X_DY);
    return least == 0 ||
           (y->dim[1] * y->dim[2] <= 64 && shape_elements(cpu_conv_filter(g, n)) >= least);
}

int amx_conv_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    const int is_grad_x = n->op == OP_conv2d_grad_x;
    const struct amx_pass s =
        is_grad_x ? amx_pass_grad_x(cpu_in(g, n, CONV2D_GRAD_X_DY), cpu_conv_filter(g, n),
                                    cpu_out(g, n, CONV2D_GRAD_X_DX), &n->attr, b->n_threads)
                  : amx_pass_forward(cpu_in(g, n, CONV2D_X), cpu_conv_filter(g, n),
                                     cpu_out(g, n, CONV2D_Y), &n->attr, b->n_threads);

    return plain_new_split(b, g, n, is_grad_x ? amx_conv_run_grad_x : amx_conv_run_forward,
                           filter_bytes(&s), amx_conv_part_bytes(&s), out, err);
}
