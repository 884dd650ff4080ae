/* strided - where the elements of one dense tensor lie in another: the common part of views,
 * broadcasts and reductions, for the kernels of every backend.
 *
 * A struct strided takes the number i of an element of the smaller tensor, or of a part of it, to
 * the number of an element of the other tensor.  Dimensions that lie one behind the other without
 * a gap are merged, so that loops are long: a view that moves nothing has one dimension, of step 1.
 *
 * Threads: pure. */
#ifndef OP_STRIDED_H
#define OP_STRIDED_H

#include "tensor/shape.h"

struct strided {
    int n;                                             /* dimensions, at least 1 */
    int64_t base;                                      /* the place of element 0 */
    int64_t dim[SHAPE_MAX_DIMS], step[SHAPE_MAX_DIMS]; /* extents; steps in elements */
};

/* The place of element i. */
static inline int64_t strided_at(const struct strided *s, int64_t i)
{
    int64_t at = s->base;

    for (int d = s->n - 1; d > 0; d--) {
        at += i % s->dim[d] * s->step[d];
        i /= s->dim[d];
    }
    return at + i * s->step[0];
}

static inline int64_t strided_elements(const struct strided *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->n; d++)
        n *= s->dim[d];
    return n;
}

/* 1 if element i lies at place i. */
static inline int strided_is_dense(const struct strided *s)
{
    return s->n == 1 && s->step[0] == 1 && s->base == 0;
}

/* y in x, where dimension d of y is dimension order[d] of x. */
struct strided strided_permute(const struct shape *x, const int order[SHAPE_MAX_DIMS]);

/* `part` in `whole`: along dim, its element j is element start + j*step of whole. */
struct strided strided_slice(const struct shape *whole, const struct shape *part, int dim,
                             int64_t start, int64_t step);

/* y in x, where x is broadcast to y: dimensions are aligned at the last one, and an extent of 1, or
 * a missing one, is repeated. */
struct strided strided_broadcast(const struct shape *x, const struct shape *y);

/* The dimensions of x in `axes` (bit d: dimension d), the other dimensions being at 0. */
struct strided strided_axes(const struct shape *x, unsigned axes);

#endif
