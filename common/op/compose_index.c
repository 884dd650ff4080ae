/* compose_index - rows and elements by number, sums along a dimension, and padding.
 *
 * An index that is known now is a constant.  Rows come by OP_embedding, whose gradient is added up
 * in a fixed order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/compose.h"

enum { INDEX_MATRIX_MAX = 4096 }; /* the largest extent of a square constant */

static const struct shape *index_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

static int index_dim(const struct compose *c, int x, int dim)
{
    return dim < 0 ? dim + index_shape(c, x)->n : dim;
}

/* Notes the failure that x has no dimension dim. */
static int index_has_dim(struct compose *c, int x, int dim)
{
    if (c->rc == 0 && (dim < 0 || dim >= index_shape(c, x)->n))
        c->rc = err_set(c->err, ERR_CONFIG, "%s: x has %d dimensions, and no dimension %d", c->name,
                        index_shape(c, x)->n, dim);
    return c->rc == 0;
}

static int index_is_square(struct compose *c, const char *what, int64_t n)
{
    if (c->rc == 0 && n > INDEX_MATRIX_MAX)
        c->rc = err_set(c->err, ERR_UNSUPPORTED,
                        "%s (%s): %lld elements along the dimension, want at most %d", c->name,
                        what, (long long)n, INDEX_MATRIX_MAX);
    return c->rc == 0;
}

/* dim moved to the place `to`; the others keep their order. */
static int index_move(struct compose *c, int x, int dim, int to)
{
    int order[SHAPE_MAX_DIMS], at = 0;

    if (c->rc < 0 || dim == to)
        return c->rc < 0 ? NO_VALUE : x;
    for (int d = 0; d < index_shape(c, x)->n; d++) {
        at += at == dim;
        order[d] = d == to ? dim : at++;
    }
    return compose_permute(c, x, order);
}

/* A square constant: 1 on the diagonal and, if `above`, above it. */
static int index_square(struct compose *c, int64_t n, int above)
{
    float *m;
    int v;

    if (!compose_has_room(c, n, n))
        return NO_VALUE;
    m = xcalloc((size_t)(n * n) + 1, sizeof *m);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i; j < (above ? n : i + 1); j++)
            m[i * n + j] = 1.0f;
    v = compose_const(c, SHAPE(n, n), m);
    free(m);
    return v;
}

int compose_lookup(struct compose *c, int table, int index, int64_t padding)
{
    const union node_attr attr = {.embedding.padding = padding < 0 ? 0 : padding + 1};
    struct shape t, y;
    int64_t row = 1;

    if (!index_has_dim(c, table, 0))
        return NO_VALUE;
    t = *index_shape(c, table);
    y = *index_shape(c, index);
    if (y.n + t.n - 1 > SHAPE_MAX_DIMS) {
        c->rc = err_set(c->err, ERR_UNSUPPORTED, "%s: more than %d dimensions", c->name,
                        SHAPE_MAX_DIMS);
        return NO_VALUE;
    }
    if (y.n == 0)
        index = compose_reshape(c, index, SHAPE(1));
    for (int d = 1; d < t.n; d++) {
        y.dim[y.n++] = t.dim[d];
        row *= t.dim[d];
    }
    table = compose_reshape(c, table, SHAPE(t.dim[0], row));
    return compose_reshape(
        c, compose_append(c, OP_embedding, &attr, (int[]){table, index, NO_VALUE}, 3), y);
}

int compose_index_select(struct compose *c, int x, int dim, int index)
{
    if (c->rc < 0)
        return NO_VALUE;
    dim = index_dim(c, x, dim);
    if (!index_has_dim(c, x, dim))
        return NO_VALUE;
    x = index_move(c, x, dim, 0);
    return index_move(c, compose_lookup(c, x, index, -1), 0, dim);
}

int compose_select_many(struct compose *c, int x, int dim, const int64_t *at, int64_t n)
{
    int32_t *number;
    int index = NO_VALUE;

    if (!compose_has_room(c, n, 1))
        return NO_VALUE;
    number = xmalloc((size_t)n * sizeof *number + 1);
    for (int64_t i = 0; i < n; i++)
        number[i] = (int32_t)at[i];
    if (c->rc == 0)
        index = graph_const(c->g, DTYPE_I32, SHAPE(n), number,
                            arena_printf(&c->g->arena, "%s.index", c->name));
    free(number);
    return compose_index_select(c, x, dim, index);
}

int compose_one_hot(struct compose *c, int index, int64_t n)
{
    if (!index_is_square(c, "one_hot", n))
        return NO_VALUE;
    return compose_lookup(c, index_square(c, n, 0), index, -1);
}

/* Elements are chosen, not multiplied by 0: others may be infinite. */
int compose_gather(struct compose *c, int x, int dim, int index)
{
    struct shape s, k;
    int hot, y;

    if (c->rc < 0)
        return NO_VALUE;
    dim = index_dim(c, x, dim);
    if (!index_has_dim(c, x, dim))
        return NO_VALUE;
    x = index_move(c, x, dim, index_shape(c, x)->n - 1);
    index = index_move(c, index, dim, index_shape(c, index)->n - 1);
    s = *index_shape(c, x);
    k = *index_shape(c, index);
    if (k.n != s.n || s.n >= SHAPE_MAX_DIMS) {
        c->rc = err_set(c->err, ERR_CONFIG, "%s (gather): the index has %d dimensions, want %d",
                        c->name, k.n, s.n);
        return NO_VALUE;
    }
    for (int d = 0; d < s.n - 1; d++)
        x = compose_slice(c, x, d, 0, k.dim[d], 1);
    if (c->rc < 0)
        return NO_VALUE;
    hot = compose_one_hot(c, index, s.dim[s.n - 1]);
    s = *index_shape(c, x);
    s.dim[s.n] = s.dim[s.n - 1];
    s.dim[s.n - 1] = 1;
    s.n++;
    y = compose_where(c, hot, compose_reshape(c, x, s), compose_scalar(c, 0));
    y = compose_reduce(c, REDUCE_SUM, y, 1u << k.n, 0);
    return index_move(c, y, k.n - 1, dim);
}

int compose_roll(struct compose *c, int x, int dim, int64_t shift)
{
    int64_t n;
    int part[2];

    if (c->rc < 0)
        return NO_VALUE;
    dim = index_dim(c, x, dim);
    if (!index_has_dim(c, x, dim))
        return NO_VALUE;
    n = index_shape(c, x)->dim[dim];
    shift = n ? (shift % n + n) % n : 0;
    if (shift == 0)
        return x;
    part[0] = compose_slice(c, x, dim, n - shift, n, 1);
    part[1] = compose_slice(c, x, dim, 0, n - shift, 1);
    return compose_concat(c, part, 2, dim);
}

int compose_cumsum(struct compose *c, int x, int dim)
{
    struct shape s;
    int64_t n;

    if (c->rc < 0)
        return NO_VALUE;
    dim = index_dim(c, x, dim);
    if (!index_has_dim(c, x, dim) || !index_is_square(c, "cumsum", index_shape(c, x)->dim[dim]))
        return NO_VALUE;
    n = index_shape(c, x)->dim[dim];
    x = index_move(c, x, dim, index_shape(c, x)->n - 1);
    s = *index_shape(c, x);
    if (s.n == 1)
        x = compose_reshape(c, x, SHAPE(1, n));
    x = compose_reshape(c, compose_matmul(c, x, index_square(c, n, 1), 0, 0), s);
    return index_move(c, x, s.n - 1, dim);
}

/* Zeros around x along dim; where the value is another one, a constant says where they are. */
static int index_pad_constant(struct compose *c, int x, int dim, const int64_t by[2], double value)
{
    const int64_t n = index_shape(c, x)->dim[dim], extent = by[0] + n + by[1];
    const union node_attr attr = {
        .slice = {.dim = dim, .start = by[0], .stop = by[0] + n, .step = 1, .extent = extent}};
    struct shape s = {.n = index_shape(c, x)->n};
    float *inside;

    x = compose_append(c, OP_slice_grad, &attr, &x, 1);
    if (value == 0)
        return x;
    for (int d = 0; d < s.n; d++)
        s.dim[d] = d == dim ? extent : 1;
    if (!compose_has_room(c, extent, 1))
        return NO_VALUE;
    inside = xmalloc((size_t)extent * sizeof *inside + 1);
    for (int64_t i = 0; i < extent; i++)
        inside[i] = i >= by[0] && i < by[0] + n;
    x = compose_where(c, compose_const(c, s, inside), x, compose_scalar(c, value));
    free(inside);
    return x;
}

/* The element of n that place i, counted from the first one, repeats. */
static int64_t index_padded(enum padding kind, int64_t i, int64_t n)
{
    if (kind == PAD_REPLICATE)
        return max_i64(0, min_i64(i, n - 1));
    if (kind == PAD_CIRCULAR)
        return (i % n + n) % n;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

int compose_pad(struct compose *c, int x, int dim, const int64_t by[2], enum padding kind,
                double value)
{
    const int64_t more[2] = {max_i64(by[0], 0), max_i64(by[1], 0)};
    int64_t n, most, *at;

    if (c->rc < 0)
        return NO_VALUE;
    dim = index_dim(c, x, dim);
    if (!index_has_dim(c, x, dim))
        return NO_VALUE;
    n = index_shape(c, x)->dim[dim];
    if (by[0] + n < 0 || by[1] + n < 0 || by[0] + n + by[1] < 0) {
        c->rc = err_set(c->err, ERR_CONFIG, "%s (pad): %lld and %lld around %lld elements", c->name,
                        (long long)by[0], (long long)by[1], (long long)n);
        return NO_VALUE;
    }
    x = compose_slice(c, x, dim, more[0] - by[0], n - (more[1] - by[1]), 1);
    if (c->rc < 0 || (more[0] == 0 && more[1] == 0))
        return x;
    if (kind == PAD_CONSTANT)
        return index_pad_constant(c, x, dim, more, value);
    n = index_shape(c, x)->dim[dim];
    most = kind == PAD_REFLECT ? n - 1 : kind == PAD_CIRCULAR ? n : INT64_MAX;
    if (n < 1 || more[0] > most || more[1] > most) {
        c->rc =
            err_set(c->err, ERR_CONFIG,
                    "%s (pad): %lld and %lld repeated elements around %lld, want at most %lld",
                    c->name, (long long)more[0], (long long)more[1], (long long)n, (long long)most);
        return NO_VALUE;
    }
    if (!compose_has_room(c, more[0] + n + more[1], 1))
        return NO_VALUE;
    at = xmalloc((size_t)(more[0] + n + more[1]) * sizeof *at + 1);
    for (int64_t i = 0; i < more[0] + n + more[1]; i++)
        at[i] = index_padded(kind, i - more[0], n);
    x = compose_select_many(c, x, dim, at, more[0] + n + more[1]);
    free(at);
    return x;
}
