/* strided - the maps of the views, broadcasts and reductions.  Each is first written down dimension
 * by dimension, and then simplified: extents of 1 go, and neighbours without a gap are merged. */
#include "op/strided.h"

#include <string.h>

static void dense_steps(const struct shape *x, int64_t step[SHAPE_MAX_DIMS])
{
    int64_t n = 1;

    memset(step, 0, SHAPE_MAX_DIMS * sizeof *step);
    for (int d = x->n - 1; d >= 0; d--) {
        step[d] = n;
        n *= x->dim[d];
    }
}

/* Append a dimension inside those that s has. */
static void strided_append(struct strided *s, int64_t dim, int64_t step)
{
    const int last = s->n - 1;

    if (dim == 1)
        return;
    if (s->n > 0 && s->step[last] == dim * step) {
        s->dim[last] *= dim;
        s->step[last] = step;
        return;
    }
    s->dim[s->n] = dim;
    s->step[s->n++] = step;
}

/* A map has at least one dimension. */
static struct strided strided_finished(struct strided s)
{
    if (s.n == 0) {
        s.dim[0] = 1;
        s.step[0] = 1;
        s.n = 1;
    }
    return s;
}

struct strided strided_permute(const struct shape *x, const int order[SHAPE_MAX_DIMS])
{
    struct strided s = {0};
    int64_t step[SHAPE_MAX_DIMS];

    dense_steps(x, step);
    for (int d = 0; d < x->n; d++)
        strided_append(&s, x->dim[order[d]], step[order[d]]);
    return strided_finished(s);
}

struct strided strided_slice(const struct shape *whole, const struct shape *part, int dim,
                             int64_t start, int64_t step)
{
    struct strided s = {0};
    int64_t steps[SHAPE_MAX_DIMS];

    dense_steps(whole, steps);
    s.base = start * steps[dim];
    for (int d = 0; d < whole->n; d++)
        strided_append(&s, part->dim[d], d == dim ? step * steps[d] : steps[d]);
    return strided_finished(s);
}

struct strided strided_broadcast(const struct shape *x, const struct shape *y)
{
    const int missing = y->n - x->n;
    struct strided s = {0};
    int64_t step[SHAPE_MAX_DIMS];

    dense_steps(x, step);
    for (int d = 0; d < y->n; d++)
        strided_append(&s, y->dim[d],
                       d < missing || x->dim[d - missing] == 1 ? 0 : step[d - missing]);
    return strided_finished(s);
}

struct strided strided_axes(const struct shape *x, unsigned axes)
{
    struct strided s = {0};
    int64_t step[SHAPE_MAX_DIMS];

    dense_steps(x, step);
    for (int d = 0; d < x->n; d++)
        if (axes >> d & 1)
            strided_append(&s, x->dim[d], step[d]);
    return strided_finished(s);
}
