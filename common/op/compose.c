/* compose - each function appends one general node, or none where a view changes nothing.  A
 * negative dimension is counted from the end here; nodes have no negative ones. */
#include "op/compose.h"

#include <string.h>

#include "base/util.h"

static const struct shape *compose_shape_of(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

/* Append a node with the inputs in[0 .. n).  Its first output is the result. */
static int compose_node(struct compose *c, enum op op, const union node_attr *attr, const int *in,
                        int n)
{
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT, NODE_NO_OUT, NODE_NO_OUT,
                             NODE_NO_OUT,  NODE_NO_OUT, NODE_NO_OUT};

    if (c->rc < 0)
        return NO_VALUE;
    c->rc = graph_node(c->g, op, attr, in, n, out,
                       arena_printf(&c->g->arena, "%s.%s", c->name, op_get(op)->name), c->err);
    return c->rc < 0 ? NO_VALUE : out[0];
}

static int compose_dimension(const struct compose *c, int x, int dim)
{
    return dim < 0 ? dim + compose_shape_of(c, x)->n : dim;
}

int compose_elementwise(struct compose *c, enum elementwise kind, int a, int b)
{
    const union node_attr attr = {.elementwise.kind = kind};

    if (c->rc < 0)
        return NO_VALUE;
    if (kind == EW_ADD && shape_equal(compose_shape_of(c, a), compose_shape_of(c, b)))
        return compose_node(c, OP_add, NULL, (int[]){a, b}, 2);
    return compose_node(c, OP_elementwise, &attr, (int[]){a, b}, 2);
}

int compose_constants(struct compose *c, enum elementwise kind, int a, float p, float q)
{
    const union node_attr attr = {.elementwise = {kind, p, q}};

    return compose_node(c, OP_elementwise, &attr, &a, 1);
}

int compose_where(struct compose *c, int condition, int a, int b)
{
    const union node_attr attr = {.elementwise.kind = EW_WHERE};

    return compose_node(c, OP_elementwise, &attr, (int[]){a, b, condition}, 3);
}

int compose_matmul(struct compose *c, int a, int b, int transpose_a, int transpose_b)
{
    const union node_attr attr = {.matmul = {transpose_a, transpose_b}};

    return compose_node(c, OP_matmul, &attr, (int[]){a, b}, 2);
}

int compose_reduce(struct compose *c, enum reduction kind, int x, unsigned axes, int keep)
{
    const union node_attr attr = {.reduce = {.kind = kind, .axes = axes, .keep = keep}};

    return compose_node(c, OP_reduce, &attr, &x, 1);
}

int compose_reshape(struct compose *c, int x, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};

    if (c->rc < 0 || shape_equal(compose_shape_of(c, x), &shape))
        return c->rc < 0 ? NO_VALUE : x;
    return compose_node(c, OP_reshape, &attr, &x, 1);
}

int compose_expand(struct compose *c, int x, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};

    if (c->rc < 0 || shape_equal(compose_shape_of(c, x), &shape))
        return c->rc < 0 ? NO_VALUE : x;
    return compose_node(c, OP_expand, &attr, &x, 1);
}

int compose_permute(struct compose *c, int x, const int *order)
{
    union node_attr attr = {0};

    if (c->rc < 0)
        return NO_VALUE;
    memcpy(attr.permute.order, order, (size_t)compose_shape_of(c, x)->n * sizeof *order);
    return compose_node(c, OP_permute, &attr, &x, 1);
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
    return compose_node(c, OP_slice, &attr, &x, 1);
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
    return compose_node(c, OP_concat, &attr, x, n);
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
