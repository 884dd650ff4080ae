/* amx_columns - how the pixels of a convolution become operands of amx.h's products.
 *
 * A pass of a convolution is y[p,q,k] = sum over taps r,s and channels c of x[p*stride+r,
 * q*stride+s, c] * w[k,c,r,s], where `from` is x and `to` is y.  grad_x is the same of dy and the
 * turned filter.  With a stride, the pixels of dx whose rows and columns leave the same remainders
 * make a class: only some taps come to each, by which it is a dense convolution of dy.  So every
 * pass is one or more classes, and no product is wasted.
 *
 * Work goes by blocks of pixels of `to`.  A pixel's column is the numbers of `from` by which it is
 * a sum.  A block's columns are a copy of `from` in lines of pixels, with zeros around the image,
 * and few enough that they stay in the nearest large cache.  The pixels of a line are
 *
 *   apart      S*C numbers for each, so that all taps of a filter's row are neighbours; or
 *   whole      C numbers for each, so that a pixel's taps overlap those of the next one.  The line
 *              has S-1 pixels more, whose sums are wasted: for long lines.
 *
 * The lines of the R taps of a filter's column are R planes or, with stride 1 in images that are
 * not tiny, one: the lines of tap r+1 are those of tap r without the first one.
 *
 * For amx_conv.c.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_AMX_COLUMNS_H
#define BACKEND_CPU_AMX_COLUMNS_H

#include "backend/cpu/amx.h"
#include "ir/graph.h"

enum {
    AMX_PANEL = AMX_BLOCK,            /* channels of `to` that are computed together */
    AMX_STEP = AMX_TERMS * AMX_PANEL, /* numbers of the filter for a panel and 32 terms */
    AMX_MOST_STRIDE = 2               /* of grad_x */
};

/* The pixels of a class along an axis: number i is pixel to0 + i*to_step of `to`, and tap t, which
 * is tap0 + t*tap_step of the filter, multiplies it by pixel begin + i*stride + t of `from`. */
struct amx_axis {
    int64_t n, taps, stride, begin, tap0, tap_step, to0, to_step;
};

struct amx_class {
    struct amx_axis down, across;
    int64_t filter; /* where its numbers of the filter begin */
};

/* A part's room for a block: numbers of columns (or of the filter's 32 terms for a panel, by all
 * taps), and tiles. */
struct amx_room {
    int64_t numbers, tiles;
};

/* from [N,h,w,C] -> to [N,h,w,K].  The filter is [K,C,R,S], or for grad_x [C,K,R,S]. */
struct amx_pass {
    int64_t N, C, K, from[2], to[2], R, S;
    int is_grad_x, n_classes;
    struct amx_class classes[AMX_MOST_STRIDE * AMX_MOST_STRIDE];
    int64_t samples, pieces; /* of a block; of a sample's rows, if a block is a part of a sample */
    struct amx_room room;
};

struct amx_pass amx_pass_forward(const struct shape *x, const struct shape *w,
                                 const struct shape *y, const union node_attr *attr, int n_threads);
struct amx_pass amx_pass_grad_x(const struct shape *dy, const struct shape *w,
                                const struct shape *dx, const union node_attr *attr, int n_threads);

int64_t amx_pass_blocks(const struct amx_pass *s);
int64_t amx_pass_panels(const struct amx_pass *s);

/* In numbers: `pixel` from a pixel of a line to the next, `line` from a line to the next, `plane`
 * from a tap's lines to those of the next one.  In pixels: `width`, of a line with wasted ones. */
struct amx_columns {
    int64_t sample, samples, row, rows; /* of the class */
    int64_t width, pixel, line, plane, n_lines;
    int is_whole, is_one;   /* the pixels of a line; one plane */
    int64_t run_lines, run; /* lines of a run, whose pixels are at even distances; its pixels */
};

/* Up to 16 pixels: where their columns begin, and the numbers of their first channels in `to`; -1:
 * the pixel's sums are wasted. */
struct amx_pixels {
    int64_t column, place[AMX_TILE];
};

struct amx_columns amx_columns_at(const struct amx_pass *s, const struct amx_class *c,
                                  int64_t block);
void amx_columns_fill(const struct amx_pass *s, const struct amx_class *c,
                      const struct amx_columns *x, const uint16_t *from, uint16_t *to);
/* Returns how many there are, no more than the room has. */
int64_t amx_columns_tiles(const struct amx_pass *s, const struct amx_class *c,
                          const struct amx_columns *x, struct amx_pixels *to);

#endif
