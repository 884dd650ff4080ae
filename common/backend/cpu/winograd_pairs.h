/* winograd_pairs - the points of winograd_transform.h as pairs of BF16, of pixels and filters of
 * BF16: operands of outer_run_pairs.
 *
 * The maps are computed in F32, and a point is rounded once, to the nearest number of BF16.  A pair
 * takes the place of a float, and its two numbers are neighbours of the sum: two channels forward
 * and for grad_x, two tiles for grad_w.
 *
 *   channels   [16 points][panels of channels][96 tiles][32 pairs of channels]
 *   tiles      [16 points][panels of channels][48 pairs of tiles][64 channels]
 *   filter     [16 points][panels of columns][pairs of rows][64 columns]
 *
 * The gap between points is as wide as in winograd_transform.h.  Where outer_has_pairs is 0 these
 * functions are not called.
 *
 * For winograd.c.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_WINOGRAD_PAIRS_H
#define BACKEND_CPU_WINOGRAD_PAIRS_H

#include "backend/cpu/winograd_transform.h"

/* As transform_x, with the layout `channels`. */
void pair_x_channels(const void *const *pixel, int64_t c, float *to);

/* As transform_x and transform_dy of two tiles, with the layout `tiles`.  The pixels of the second
 * tile are behind those of the first one. */
void pair_x_tiles(const void *const *pixel, int64_t c, float *to);
void pair_dy_tiles(const void *const *pixel, int64_t c, float *to, float *sum);

/* As transform_w, of pair `number` of the rows; f->rows is even. */
void pair_w_rows(const struct filter *f, const void *w, int64_t number, float *to);

#endif
