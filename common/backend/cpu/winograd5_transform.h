/* winograd5_transform - the linear maps of Winograd's F(3x3, 5x5): pixels and filters to points and
 * back.
 *
 * A tile has 7 x 7 pixels of x and 3 x 3 of y, and 7 x 7 points.  The points are the values of
 * polynomials at +a and -a for a = 1/4, 7/8 and 7/4, and the highest coefficient.  With f, s and t
 * of each a, where b and c are the other two, and s', t', u' of all three,
 *
 *   f = 1 / (2a (a^2 - b^2) (a^2 - c^2))      s = b^2 + c^2      t = b^2 c^2
 *
 *   G    rows of +a, -a    f * (1, a, a^2, a^3, a^4) and -f * (1, -a, a^2, -a^3, a^4)
 *        last row          (0, 0, 0, 0, 1)
 *   A^T  row i             the i-th powers of the six values; 0, 0 and 1 of the last
 *   B^T  rows of +a, -a    (a t, t, -a s, -s, a, 1, 0) and (-a t, t, a s, -s, -a, 1, 0)
 *        last row          (-u', 0, t', 0, -s', 0, 1), the coefficients of the product of x^2 - a^2
 *
 * the maps are B^T x B of 7 x 7 pixels, A dy A^T of 3 x 3 pixels, G w G^T of a filter, and the ways
 * back B m B^T and G^T u G.  The values were chosen among all eighths up to 2: with these the
 * rounding errors of the forward pass's y = A^T [ (G w G^T) o (B^T x B) ] A are least.
 *
 * Channels go in vectors of LANES, at least that many (`c`).  The last vector may overlap the one
 * before.  Number `at` of point i lies at [i * step + at].
 *
 * For winograd5.c.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_WINOGRAD5_TRANSFORM_H
#define BACKEND_CPU_WINOGRAD5_TRANSFORM_H

#include <stdint.h>

enum {
    W5_TILE = 3,
    W5_TILE_PIXELS = 9,
    W5_FILTER = 5,
    W5_TAPS = 25,
    W5_EDGE = 7, /* of the pixels of x, and of the points */
    W5_POINTS = 49
};

/* to = B^T x B of 49 pixels */
void winograd5_of_x(float *const *pixel, int64_t c, int64_t step, float *to);

/* to = A dy A^T of 9 pixels.  sum[c] += the 9 pixels, unless it is NULL. */
void winograd5_of_dy(float *const *pixel, int64_t c, int64_t step, float *to, float *sum);

/* The 49 pixels of a tile of dx += B m B^T */
void winograd5_to_dx(const float *m, int64_t c, int64_t step, float *const *pixel);

/* For LANES filters, the first of which is at w and the next `each` numbers further: to[lane] of
 * point i lies at to[i * step]; G w G^T, and the way back, dw = G^T u G, or += that if it adds. */
void winograd5_of_w(const float *w, int64_t each, int n_lanes, int64_t step, float *to);
void winograd5_to_dw(const float *u, int64_t step, int n_lanes, int64_t each, int adds, float *dw);

#endif
