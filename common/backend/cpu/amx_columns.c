/* amx_columns - classes of pixels, blocks that stay in the cache, and the lines of their columns.
 * No number is computed here. */
#include "backend/cpu/amx_columns.h"

#include <string.h>

#include "base/util.h"

enum { N, H, W, C };

/* Numbers of a block's columns, roughly: 1 MiB, or more where the filter is larger than the cache,
 * through which it passes once for each block. */
enum { ROOM = 1 << 19, LARGE_FILTER = 1 << 20, LARGE_ROOM = 3 << 18 };

/* ---- classes ---- */

static struct amx_axis axis_forward(const struct shape *w, const struct shape *y,
                                    const union node_attr *attr, int i)
{
    return (struct amx_axis){.n = y->dim[H + i],
                             .taps = w->dim[2 + i],
                             .stride = attr->conv.stride[i],
                             .begin = -attr->conv.pad[i],
                             .tap_step = 1,
                             .to_step = 1};
}

/* Pixels `first`, first + stride .. of dx, to which taps r0, r0 + stride .. come.  Of these the
 * last one meets the first pixel of dy. */
static struct amx_axis axis_grad_x(const struct shape *w, const struct shape *dx,
                                   const union node_attr *attr, int i, int64_t first)
{
    const int64_t stride = attr->conv.stride[i], r0 = (first + attr->conv.pad[i]) % stride;
    const int64_t taps = max_i64(0, ceil_div_i64(w->dim[2 + i] - r0, stride));

    return (struct amx_axis){.n = max_i64(0, ceil_div_i64(dx->dim[H + i] - first, stride)),
                             .taps = taps,
                             .stride = 1,
                             .begin = (first + attr->conv.pad[i] - r0) / stride - taps + 1,
                             .tap0 = r0 + stride * (taps - 1),
                             .tap_step = -stride,
                             .to0 = first,
                             .to_step = stride};
}

int64_t amx_pass_panels(const struct amx_pass *s) { return ceil_div_i64(s->K, AMX_PANEL); }

static void add_class(struct amx_pass *s, struct amx_axis down, struct amx_axis across)
{
    struct amx_class *c = &s->classes[s->n_classes++];

    *c = (struct amx_class){down, across, 0};
    if (c > s->classes)
        c->filter = c[-1].filter +
                    c[-1].down.taps * c[-1].across.taps * amx_pass_panels(s) * s->C * AMX_PANEL;
}

static struct amx_pass pass_of_shapes(const struct shape *from, const struct shape *w,
                                      const struct shape *to)
{
    return (struct amx_pass){.N = from->dim[N],
                             .C = from->dim[C],
                             .K = to->dim[C],
                             .from = {from->dim[H], from->dim[W]},
                             .to = {to->dim[H], to->dim[W]},
                             .R = w->dim[2],
                             .S = w->dim[3]};
}

/* ---- blocks ---- */

/* Tiles cut off little of a run of n pixels. */
static int fills_tiles(int64_t n) { return round_up_i64(n, AMX_TILE) * 7 <= n * 8; }

/* A long line of whole tiles has no wasted pixels: it is a run by itself. */
static struct amx_columns amx_columns_of(const struct amx_pass *s, const struct amx_class *c,
                                         int64_t samples, int64_t rows)
{
    const struct amx_axis *down = &c->down, *across = &c->across;
    struct amx_columns x = {.samples = samples, .rows = rows};

    x.is_whole = across->stride == 1 && across->taps > 1 && across->n >= AMX_TILE;
    x.width = x.is_whole ? across->n + across->taps - 1 : across->n;
    x.pixel = x.is_whole ? s->C : across->taps * s->C;
    x.line = x.width * x.pixel;
    x.is_one = down->stride == 1 && down->taps > 1 && fills_tiles(rows * x.width);
    x.plane = x.is_one ? x.line : samples * rows * x.line;
    x.n_lines = x.is_one ? samples * (rows + down->taps - 1) : down->taps * samples * rows;
    x.run_lines = x.is_one ? rows : samples * rows;
    x.run = x.run_lines * x.width;
    if (x.is_whole && across->n % AMX_TILE == 0) {
        x.run_lines = 1;
        x.run = across->n;
    }
    return x;
}

/* The room for a block of so many samples, or of a sample's piece.  The last rows of tiles reach
 * beyond the lines. */
static struct amx_room room_of(const struct amx_pass *s, int64_t samples, int64_t pieces)
{
    struct amx_room room = {s->R * s->S * AMX_STEP, 0};

    for (const struct amx_class *c = s->classes; c < s->classes + s->n_classes; c++) {
        const struct amx_columns x = amx_columns_of(s, c, samples, ceil_div_i64(c->down.n, pieces));

        room.numbers =
            max_i64(room.numbers, x.n_lines * x.line + AMX_BLOCK * x.pixel + c->across.taps * s->C);
        room.tiles = max_i64(room.tiles, samples * x.rows * ceil_div_i64(x.width, AMX_TILE));
    }
    return room;
}

/* Blocks: enough for all threads. */
static void cut_blocks(struct amx_pass *s, int n_threads)
{
    const int64_t sample = room_of(s, 1, 1).numbers;
    const int64_t room = s->R * s->S * s->C * s->K > LARGE_FILTER ? LARGE_ROOM : ROOM;

    s->samples = max_i64(1, min_i64(room / sample, s->N / n_threads));
    s->pieces = max_i64(ceil_div_i64(sample, room), ceil_div_i64(n_threads, max_i64(1, s->N)));
    s->pieces = min_i64(s->pieces, s->classes[0].down.n);
    s->room = room_of(s, s->samples, s->pieces);
}

struct amx_pass amx_pass_forward(const struct shape *x, const struct shape *w,
                                 const struct shape *y, const union node_attr *attr, int n_threads)
{
    struct amx_pass s = pass_of_shapes(x, w, y);

    add_class(&s, axis_forward(w, y, attr, 0), axis_forward(w, y, attr, 1));
    cut_blocks(&s, n_threads);
    return s;
}

struct amx_pass amx_pass_grad_x(const struct shape *dy, const struct shape *w,
                                const struct shape *dx, const union node_attr *attr, int n_threads)
{
    struct amx_pass s = pass_of_shapes(dy, w, dx);

    s.is_grad_x = 1;
    for (int i = 0; i < attr->conv.stride[0]; i++)
        for (int j = 0; j < attr->conv.stride[1]; j++)
            add_class(&s, axis_grad_x(w, dx, attr, 0, i), axis_grad_x(w, dx, attr, 1, j));
    cut_blocks(&s, n_threads);
    return s;
}

int64_t amx_pass_blocks(const struct amx_pass *s)
{
    return ceil_div_i64(s->N, s->samples) * s->pieces;
}

struct amx_columns amx_columns_at(const struct amx_pass *s, const struct amx_class *c,
                                  int64_t block)
{
    const int64_t sample = block / s->pieces * s->samples, piece = block % s->pieces;
    const int64_t row = c->down.n * piece / s->pieces;
    struct amx_columns x = amx_columns_of(s, c, min_i64(s->samples, s->N - sample),
                                          c->down.n * (piece + 1) / s->pieces - row);

    x.sample = sample;
    x.row = row;
    return x;
}

/* ---- columns ---- */

/* n pixels of a row, from number `at` on; outside of the row, and where it is NULL, zeros. */
static void copy_pixels(const struct amx_pass *s, const uint16_t *row, int64_t at, int64_t n,
                        uint16_t *to)
{
    const int64_t before = row ? min_i64(n, max_i64(0, -at)) : n;
    const int64_t end = min_i64(n, max_i64(before, s->from[1] - at));
    const size_t each = (size_t)s->C * sizeof *to;

    memset(to, 0, (size_t)before * each);
    if (end > before)
        memcpy(to + before * s->C, row + (at + before) * s->C, (size_t)(end - before) * each);
    memset(to + end * s->C, 0, (size_t)(n - end) * each);
}

/* The row of `from` that line `l` is of; NULL outside of the image. */
static const uint16_t *row_of_line(const struct amx_pass *s, const struct amx_class *c,
                                   const struct amx_columns *x, const uint16_t *from, int64_t l)
{
    const int64_t lines = x->is_one ? x->rows + c->down.taps - 1 : x->rows; /* of a sample */
    const int64_t sample = x->sample + l / lines % x->samples, tap = l / lines / x->samples;
    const int64_t row = c->down.begin + (x->row + l % lines) * c->down.stride + tap;

    if (row < 0 || row >= s->from[0])
        return NULL;
    return from + (sample * s->from[0] + row) * s->from[1] * s->C;
}

void amx_columns_fill(const struct amx_pass *s, const struct amx_class *c,
                      const struct amx_columns *x, const uint16_t *from, uint16_t *to)
{
    const struct amx_axis *a = &c->across;

    for (int64_t l = 0; l < x->n_lines; l++, to += x->line) {
        const uint16_t *row = row_of_line(s, c, x, from, l);

        if (x->is_whole)
            copy_pixels(s, row, a->begin, x->width, to);
        else
            for (int64_t q = 0; q < x->width; q++)
                copy_pixels(s, row, a->begin + q * a->stride, a->taps, to + q * x->pixel);
    }
}

/* Pixel q of a line, which is row `line` of the block's samples; `first` is the number of the first
 * one of `to`. */
struct cursor {
    int64_t line, q, first;
};

static struct cursor cursor_at(const struct amx_pass *s, const struct amx_class *c,
                               const struct amx_columns *x, int64_t line)
{
    const int64_t row = (x->row + line % x->rows) * c->down.to_step + c->down.to0;
    const int64_t in_image = row * s->to[1] + c->across.to0;

    return (struct cursor){line, 0,
                           ((x->sample + line / x->rows) * s->to[0] * s->to[1] + in_image) * s->K};
}

static int64_t next_place(const struct amx_pass *s, const struct amx_class *c,
                          const struct amx_columns *x, struct cursor *at)
{
    const int64_t q = at->q++, place = at->first + q * c->across.to_step * s->K;

    if (at->q == x->width)
        *at = cursor_at(s, c, x, at->line + 1);
    return q < c->across.n ? place : -1;
}

int64_t amx_columns_tiles(const struct amx_pass *s, const struct amx_class *c,
                          const struct amx_columns *x, struct amx_pixels *to)
{
    const int64_t more = x->is_one ? c->down.taps - 1 : 0; /* a sample's lines beyond its rows */
    const struct amx_pixels *first = to;

    for (int64_t l = 0; l < x->samples * x->rows; l += x->run_lines) {
        struct cursor at = cursor_at(s, c, x, l);

        for (int64_t i = 0; i < x->run; i += AMX_TILE, to++) {
            to->column = (l + l / x->rows * more) * x->line + i * x->pixel;
            for (int64_t j = 0; j < AMX_TILE; j++)
                to->place[j] = i + j < x->run ? next_place(s, c, x, &at) : -1;
        }
    }
    return to - first;
}
