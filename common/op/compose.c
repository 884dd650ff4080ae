/* compose - each function appends one general node, or none where a view changes nothing.  A
 * negative dimension is counted from the end here; nodes have no negative ones. */
#include "op/compose.h"

#include <string.h>

#include "base/util.h"

static const struct shape *compose_shape_of(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

int compose_append(struct compose *c, enum op op, const union node_attr *attr, const int *in, int n)
{
    if (c->rc < 0)
        return NO_VALUE;
    c->rc = graph_node(c->g, op, attr, in, n, NULL,
                       arena_printf(&c->g->arena, "%s.%s", c->name, op_get(op)->name), c->err);
    return c->rc < 0 ? NO_VALUE : c->g->node[c->g->n_nodes - 1].out[0];
}

static int compose_dimension(const struct compose *c, int x, int dim)
{
    return dim < 0 ? dim + compose_shape_of(c, x)->n : dim;
}

int compose_elementwise(struct compose *c, enum elementwise kind, int a, int b)
{
    const union node_attr attr = {.elementwise.kind = kind};
    int y = NO_VALUE;

    if (c->rc < 0)
        return NO_VALUE;
    for (int i = 0; i < 2 && y == NO_VALUE && c->rc == 0; i++)
        y = kind == EW_ADD   ? compose_turn(c, i ? b : a, i ? a : b)
            : kind == EW_MUL ? compose_gate(c, i ? b : a, i ? a : b)
                             : NO_VALUE;
    if (y != NO_VALUE || c->rc < 0)
        return y;
    if (kind == EW_ADD && shape_equal(compose_shape_of(c, a), compose_shape_of(c, b)))
        return compose_append(c, OP_add, NULL, (int[]){a, b}, 2);
    return compose_append(c, OP_elementwise, &attr, (int[]){a, b}, 2);
}

int compose_constants(struct compose *c, enum elementwise kind, int a, float p, float q)
{
    const union node_attr attr = {.elementwise = {kind, p, q}};

    return compose_append(c, OP_elementwise, &attr, &a, 1);
}

int compose_where(struct compose *c, int condition, int a, int b)
{
    const union node_attr attr = {.elementwise.kind = EW_WHERE};

    return compose_append(c, OP_elementwise, &attr, (int[]){a, b, condition}, 3);
}

int compose_activation(struct compose *c, enum activation kind, int x)
{
    const union node_attr attr = {.act.kind = kind};

    return compose_append(c, OP_activation, &attr, &x, 1);
}

int compose_power(struct compose *c, int x, double p)
{
    static const struct {
        double p;
        enum elementwise kind;
    } cheap[] = {{2, EW_SQUARE}, {0.5, EW_SQRT}, {-0.5, EW_RSQRT}, {-1, EW_RECIPROCAL}};

    if (p == 1)
        return x;
    for (size_t i = 0; i < ARRAY_LEN(cheap); i++)
        if (p == cheap[i].p)
            return compose_constants(c, cheap[i].kind, x, 0, 0);
    return compose_constants(c, EW_POWER, x, (float)p, 0);
}

int compose_cast(struct compose *c, int x, enum dtype to)
{
    const union node_attr attr = {.cast.to = to};

    if (c->rc < 0 || c->g->value[x].dtype == to)
        return c->rc < 0 ? NO_VALUE : x;
    return compose_append(c, OP_cast, &attr, &x, 1);
}

int compose_compare(struct compose *c, enum elementwise kind, int x, int32_t number)
{
    const union node_attr attr = {.cast = {.to = DTYPE_F32, .minus = number}};

    return compose_elementwise(c, kind, compose_append(c, OP_cast, &attr, &x, 1),
                               compose_scalar(c, 0));
}

int compose_integers(struct compose *c, enum integers kind, int a, int b, int32_t number)
{
    const union node_attr attr = {.integers = {kind, number}};

    return compose_append(c, OP_integers, &attr, (int[]){a, b}, 2);
}

int compose_has_room(struct compose *c, int64_t a, int64_t b)
{
    const int64_t most = INT64_C(2) << 30, of_element = sizeof(float);
    int64_t n;

    if (c->rc < 0)
        return 0;
    if (a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &n) &&
        n <= most / of_element - c->constants) {
        c->constants += n;
        return 1;
    }
    c->rc = err_set(c->err, ERR_UNSUPPORTED,
                    "%s: a constant of %lld * %lld elements beside %lld others, want %lld MiB for "
                    "all constants at most",
                    c->name, (long long)a, (long long)b, (long long)c->constants,
                    (long long)(most >> 20));
    return 0;
}

int compose_const(struct compose *c, struct shape shape, const float *content)
{
    return c->rc < 0 ? NO_VALUE
                     : graph_const(c->g, DTYPE_F32, shape, content,
                                   arena_printf(&c->g->arena, "%s.const", c->name));
}

int compose_scalar(struct compose *c, double v)
{
    const float content = (float)v;

    return compose_const(c, SHAPE(1), &content);
}

int compose_softmax(struct compose *c, int x, int dim, int log)
{
    union node_attr attr = {0};

    if (c->rc < 0)
        return NO_VALUE;
    attr.softmax.dim = compose_dimension(c, x, dim);
    attr.softmax.log = log;
    return compose_append(c, OP_softmax, &attr, &x, 1);
}

int compose_matmul(struct compose *c, int a, int b, int transpose_a, int transpose_b)
{
    const union node_attr attr = {.matmul = {transpose_a, transpose_b}};

    return compose_append(c, OP_matmul, &attr, (int[]){a, b}, 2);
}

int compose_reduce(struct compose *c, enum reduction kind, int x, unsigned axes, int keep)
{
    const union node_attr attr = {.reduce = {.kind = kind, .axes = axes, .keep = keep}};

    return compose_append(c, OP_reduce, &attr, &x, 1);
}

int compose_expand(struct compose *c, int x, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};

    if (c->rc < 0 || shape_equal(compose_shape_of(c, x), &shape))
        return c->rc < 0 ? NO_VALUE : x;
    return compose_append(c, OP_expand, &attr, &x, 1);
}

int compose_slice(struct compose *c, int x, int dim, int64_t start, int64_t stop, int64_t step)
{
    union node_attr attr = {.slice = {.start = start, .stop = stop, .step = step}};
    int64_t extent;

    if (c->rc < 0)
        return NO_VALUE;
    attr.slice.dim = dim = compose_dimension(c, x, dim);
    if (dim >= 0 && dim < compose_shape_of(c, x)->n) {
        extent = compose_shape_of(c, x)->dim[dim];
        attr.slice.start = start < 0 ? start + extent : start;
        attr.slice.stop = min_i64(stop < 0 ? stop + extent : stop, extent);
        if (attr.slice.start == 0 && attr.slice.stop == extent && step == 1)
            return x;
    }
    return compose_append(c, OP_slice, &attr, &x, 1);
}

int compose_select(struct compose *c, int x, int dim, int64_t at)
{
    const int y = compose_slice(c, x, dim, at, at == -1 ? INT64_MAX : at + 1, 1);
    struct shape s = {0};

    if (c->rc < 0)
        return NO_VALUE;
    dim = compose_dimension(c, x, dim);
    for (int d = 0; d < compose_shape_of(c, y)->n; d++)
        if (d != dim)
            s.dim[s.n++] = compose_shape_of(c, y)->dim[d];
    return compose_reshape(c, y, s);
}

int compose_concat(struct compose *c, const int *x, int n, int dim)
{
    union node_attr attr = {0};

    if (c->rc < 0)
        return NO_VALUE;
    ASSERT(n >= 1 && n <= NODE_MAX_IN);
    attr.concat.dim = compose_dimension(c, x[0], dim);
    return compose_append(c, OP_concat, &attr, x, n);
}

void compose_split(struct compose *c, int x, int dim, const int64_t *size, int n, int *part)
{
    int64_t at = 0;

    for (int i = 0; i < n; at += size[i++])
        part[i] = compose_slice(c, x, dim, at, at + size[i], 1);
}

int compose_sum_to(struct compose *c, int x, struct shape shape)
{
    const struct shape *s;
    unsigned axes = 0;
    int missing;

    if (c->rc < 0)
        return NO_VALUE;
    s = compose_shape_of(c, x);
    missing = s->n - shape.n;
    for (int d = 0; d < s->n; d++)
        if (d < missing || (shape.dim[d - missing] == 1 && s->dim[d] != 1))
            axes |= 1u << d;
    if (axes)
        x = compose_reduce(c, REDUCE_SUM, x, axes, 1);
    return compose_reshape(c, x, shape);
}

int compose_restore(struct compose *c, int x, const struct shape *before, unsigned axes)
{
    struct shape s = *before;

    for (int d = 0; d < s.n; d++)
        if (axes >> d & 1)
            s.dim[d] = 1;
    return compose_reshape(c, x, s);
}
