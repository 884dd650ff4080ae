/* winograd_transform - the linear maps of Winograd's F(2x2, 3x3): pixels and filters to points and
 * back.
 *
 * With the matrices
 *
 *          1  0 -1  0           1   0   0             1  0
 *   B^T =  0  1  1  0      G =  1/2 1/2 1/2     A  =  1  1
 *          0 -1  1  0           1/2-1/2 1/2           1 -1
 *          0  1  0 -1           0   0   1             0 -1
 *
 * the maps are B^T x B of 4 x 4 pixels, A dy A^T of 2 x 2 pixels, G w G^T of a filter, and the ways
 * back A^T m A and G^T u G.  The points are F32.  Pixels, biases and filters are of a `type`, F32
 * or BF16: BF16 is widened when it is read, and a result is rounded once, when it is written.
 * Gradients of filters are F32.
 *
 * Channels lie in panels, and a row of a panel is what outer.h reads at once: 64 channels with
 * AVX-512, 16 with AVX2 (`panel`, a multiple of 16).
 *
 *   tiles    [16 points][panels of channels][96][panel]
 *   filter   [16 points][panels of columns][rows][panel]     columns: the channels of the result
 *
 * A vector lies between one point and the next: the points of a tile would else all have the same
 * place in a cache of few ways.
 *
 * For winograd.c.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_WINOGRAD_TRANSFORM_H
#define BACKEND_CPU_WINOGRAD_TRANSFORM_H

#include <stdint.h>

#include "tensor/dtype.h"

enum { POINTS = 16, TAPS = 9, TILES = 96, MOST_PANEL = 64, POINT_GAP = 16 };

/* Channel `at` of a tile, in an array of panels. */
static inline int64_t in_panels(int64_t at, int64_t panel)
{
    return at / panel * panel * TILES + at % panel;
}

/* From a point to the next: of tiles of c channels, and of a filter of c * k numbers. */
static inline int64_t tiles_point(int64_t c) { return TILES * c + POINT_GAP; }
static inline int64_t filter_point(int64_t c, int64_t k) { return c * k + POINT_GAP; }

/* to[point] of one tile: B^T x B of its 16 pixels, each c channels long; NULL: a pixel of zeros */
void transform_x(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, float *to);

/* to[point] of one tile: A dy A^T of its 4 pixels.  sum[c] += the four pixels, unless it is NULL.
 */
void transform_dy(const void *const *pixel, int64_t c, enum dtype type, int64_t panel, float *to,
                  float *sum);

/* The operations that follow a convolution.  bias, add: or NULL. */
struct transform_end {
    enum dtype type; /* of the bias, of `add` and of the pixels */
    const void *bias;
    const void *const *add; /* four pixels, or NULL outside of the image; may be those written */
    int is_relu;
};

/* The 4 pixels of one tile: A^T m A, plus the bias, plus `add`.  Pixels that are NULL are left
 * out. */
void transform_m(const float *m, int64_t c, int64_t panel, const struct transform_end *end,
                 void *const *pixel);

/* Column j of row `row` in panel b of the filter has its taps at w[first + j * step]; taps are
 * TAPS numbers, or, turned by 180 degrees, the same from the last to the first. */
struct filter {
    int64_t panel, rows, panels;
    int64_t per_panel, per_row, per_column; /* distances in w */
    int is_turned;
};

/* Row `number`, of all panels' rows: to[point][row][panel] = G w G^T */
void transform_w(const struct filter *f, const void *w, enum dtype type, int64_t number, float *to);

/* The way back, for the gradient: dw = G^T u G, or dw += that */
void transform_u(const struct filter *f, const float *u, int64_t number, int adds, float *dw);

#endif
