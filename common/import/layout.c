/* layout - lowered values: their extents, and the order in which the graph value holds their
 * dimensions.  Permuting costs nothing, until an operator wants one order. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

struct extent extent_of(int64_t n) { return (struct extent){n, 1, 0}; }

int64_t extent_size(const struct lower *l, struct extent e)
{
    return e.outer * e.inner * (e.is_batch ? l->m->g->batch : 1);
}

int64_t extent_exported(const struct lower *l, struct extent e)
{
    return e.outer * e.inner * (e.is_batch ? l->batch : 1);
}

int extent_equal(struct extent a, struct extent b)
{
    return a.is_batch == b.is_batch && (a.is_batch ? a.outer == b.outer && a.inner == b.inner
                                                   : a.outer * a.inner == b.outer * b.inner);
}

int extent_is_one(struct extent e) { return !e.is_batch && e.outer * e.inner == 1; }

struct lowered lower_with(struct lowered x, int value)
{
    x.kind = LOWERED_VALUE;
    x.value = value;
    return x;
}

static const struct node *layout_producer(const struct lower *l, int value)
{
    const int k = l->m->g->value[value].producer;

    return k < 0 ? NULL : &l->m->g->node[k];
}

struct lowered lower_unturned(const struct lower *l, struct lowered x)
{
    const struct node *made =
        lower_failed(l) || l->m->g->value[x.value].is_detached ? NULL : layout_producer(l, x.value);

    if (!made || made->op != OP_permute)
        return x;
    x.value = made->in[PERMUTE_X];
    for (int d = 0; d < x.n; d++)
        x.at[d] = made->attr.permute.order[x.at[d]];
    return x;
}

struct lowered lower_plain_value(const struct lower *l, int value, int n, const struct extent *dim)
{
    struct lowered y = {.kind = LOWERED_VALUE, .value = value, .n = n};

    for (int d = 0; d < n; d++) {
        y.dim[d] = dim[d];
        y.at[d] = d;
    }
    return lower_unturned(l, y);
}

struct lowered lower_image_value(const struct lower *l, int value, struct extent n)
{
    struct lowered y = {.kind = LOWERED_VALUE, .value = value, .n = 4, .at = {0, 3, 1, 2}};
    const struct shape *s;

    if (lower_failed(l))
        return y;
    s = &l->m->g->value[value].shape;
    y.dim[0] = n;
    for (int d = 1; d < 4; d++)
        y.dim[d] = extent_of(s->dim[y.at[d]]);
    return y;
}

/* A permutation that moves extents of 1 alone is a reshape. */
static int moves_elements(const struct shape *s, const int *order)
{
    int last = -1;

    for (int d = 0; d < s->n; d++) {
        if (s->dim[order[d]] == 1)
            continue;
        if (order[d] < last)
            return 1;
        last = order[d];
    }
    return 0;
}

static int layout_permute(struct lower *l, int value, const int *order)
{
    const struct shape s = l->m->g->value[value].shape;
    struct shape to = s;

    if (moves_elements(&s, order))
        return compose_permute(&l->c, value, order);
    for (int d = 0; d < s.n; d++)
        to.dim[d] = s.dim[order[d]];
    return compose_reshape(&l->c, value, to);
}

struct lowered lower_arrange(struct lower *l, struct lowered x, const int *at)
{
    int order[SHAPE_MAX_DIMS], same = 1;

    x = lower_real_value(l, x);
    if (lower_failed(l))
        return x;
    for (int d = 0; d < x.n; d++) {
        order[at[d]] = x.at[d];
        same &= at[d] == x.at[d];
    }
    if (!same)
        x.value = layout_permute(l, x.value, order);
    memcpy(x.at, at, (size_t)x.n * sizeof *at);
    return x;
}

struct lowered lower_spread(struct lower *l, struct lowered x)
{
    struct shape s;

    x = lower_real_value(l, x);
    if (lower_failed(l) || !x.repeats)
        return x;
    s = l->m->g->value[x.value].shape;
    for (int d = 0; d < x.n; d++)
        s.dim[x.at[d]] = extent_size(l, x.dim[d]);
    x.value = compose_expand(&l->c, x.value, s);
    x.repeats = 0;
    return x;
}

struct lowered lower_plain(struct lower *l, struct lowered x)
{
    static const int plain[SHAPE_MAX_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};

    return lower_spread(l, lower_arrange(l, x, plain));
}

struct lowered lower_channels_last(struct lower *l, struct lowered x)
{
    int at[SHAPE_MAX_DIMS] = {0, x.n - 1};

    for (int d = 2; d < x.n; d++)
        at[d] = d - 1;
    return lower_spread(l, lower_arrange(l, x, at));
}

struct lowered lower_last(struct lower *l, struct lowered x, int dim)
{
    int at[SHAPE_MAX_DIMS];

    x = lower_real_value(l, x);
    for (int d = 0; d < x.n; d++)
        at[d] = d == dim ? x.n - 1 : x.at[d] - (x.at[d] > x.at[dim]);
    return lower_spread(l, lower_arrange(l, x, at));
}

unsigned lower_axes(const struct lowered *x, unsigned dims)
{
    unsigned axes = 0;

    for (int d = 0; d < x->n; d++)
        if (dims >> d & 1)
            axes |= 1u << x->at[d];
    return axes;
}

struct lowered lower_unsqueeze(struct lower *l, struct lowered x, int dim)
{
    struct lowered y;
    struct shape s = {0};
    int where;

    x = lower_real_value(l, x);
    y = x;
    if (lower_failed(l))
        return y;
    if (x.n == SHAPE_MAX_DIMS) {
        lower_fail(l, ERR_UNSUPPORTED,
                   "it makes more than %d dimensions: join some of them by a reshape before",
                   SHAPE_MAX_DIMS);
        return y;
    }
    where = dim < x.n ? x.at[dim] : x.n;
    y.n = x.n + 1;
    y.repeats = (x.repeats & ((1u << dim) - 1)) | (x.repeats >> dim << (dim + 1));
    for (int d = 0; d < y.n; d++) {
        const int from = d < dim ? d : d - 1;

        y.dim[d] = d == dim ? extent_of(1) : x.dim[from];
        y.at[d] = d == dim ? where : x.at[from] + (x.at[from] >= where);
    }
    for (int d = 0; d < y.n; d++)
        s.dim[d] = d == where ? 1 : l->m->g->value[x.value].shape.dim[d - (d > where)];
    s.n = y.n;
    y.value = compose_reshape(&l->c, x.value, s);
    return y;
}

struct lowered lower_without(struct lowered x, unsigned dims, int value)
{
    struct lowered y = lower_with(x, value);

    y.n = 0;
    y.repeats = 0;
    for (int d = 0; d < x.n; d++) {
        int lower = 0;

        if (dims >> d & 1)
            continue;
        for (int e = 0; e < x.n; e++)
            lower += (dims >> e & 1) && x.at[e] < x.at[d];
        y.dim[y.n] = x.dim[d];
        y.repeats |= (x.repeats >> d & 1) << y.n;
        y.at[y.n++] = x.at[d] - lower;
    }
    return y;
}

struct lowered lower_squeeze(struct lower *l, struct lowered x, unsigned dims)
{
    const struct shape *s;
    struct shape to = {0};
    unsigned gone = 0, axes;

    x = lower_real_value(l, x);
    if (lower_failed(l))
        return x;
    for (int d = 0; d < x.n; d++)
        if ((dims >> d & 1) && extent_is_one(x.dim[d]))
            gone |= 1u << d;
    s = &l->m->g->value[x.value].shape;
    axes = lower_axes(&x, gone);
    for (int d = 0; d < s->n; d++)
        if (!(axes >> d & 1))
            to.dim[to.n++] = s->dim[d];
    return lower_without(x, gone, compose_reshape(&l->c, x.value, to));
}

struct lowered lower_permute(struct lowered x, const int *order)
{
    struct lowered y = x;

    y.repeats = 0;
    for (int d = 0; d < x.n; d++) {
        y.dim[d] = x.dim[order[d]];
        y.at[d] = x.at[order[d]];
        y.repeats |= (x.repeats >> order[d] & 1) << d;
    }
    return y;
}

struct lowered lower_rank(struct lower *l, struct lowered x, int n)
{
    while (!lower_failed(l) && x.n < n)
        x = lower_unsqueeze(l, x, 0);
    return x;
}

/* ---- broadcasting ---- */

/* 1: dimension d of x is 1 in the graph value. */
static int is_thin(const struct lowered *x, int d)
{
    return (x->repeats >> d & 1) || extent_is_one(x->dim[d]);
}

/* The extent d of the result: a real one if there is one, else one that repeats. */
static void meet_extent(struct lower *l, struct lowered *const *x, int n, int d, struct lowered *y)
{
    int real = -1, repeated = -1;

    for (int i = 0; i < n; i++) {
        if (x[i]->kind != LOWERED_VALUE)
            continue;
        if (!is_thin(x[i], d)) {
            if (real >= 0 && !extent_equal(x[real]->dim[d], x[i]->dim[d]))
                lower_fail(l, ERR_UNSUPPORTED,
                           "dimension %d is %lld in one input and %lld in another at batch %lld: "
                           "the network depends on the batch of its export, %lld",
                           d, (long long)extent_size(l, x[real]->dim[d]),
                           (long long)extent_size(l, x[i]->dim[d]), (long long)l->m->g->batch,
                           (long long)l->batch);
            if (real < 0)
                real = i;
        } else if (x[i]->repeats >> d & 1) {
            repeated = i;
        }
    }
    y->dim[d] = real >= 0 ? x[real]->dim[d] : repeated >= 0 ? x[repeated]->dim[d] : extent_of(1);
    if (real < 0 && repeated >= 0)
        y->repeats |= 1u << d;
}

/* The input whose layout the others take: that with the most elements. */
static const struct lowered *meet_leader(struct lowered *const *x, int n)
{
    const struct lowered *leader = NULL;
    int most = -1;

    for (int i = 0; i < n; i++) {
        int real = 0;

        if (x[i]->kind != LOWERED_VALUE)
            continue;
        for (int d = 0; d < x[i]->n; d++)
            real += !is_thin(x[i], d);
        if (real > most) {
            most = real;
            leader = x[i];
        }
    }
    return leader;
}

struct lowered lower_meet(struct lower *l, struct lowered *const *x, int n)
{
    struct lowered y = {.kind = LOWERED_VALUE};
    const struct lowered *leader;

    for (int i = 0; i < n; i++) {
        if (x[i]->kind == LOWERED_NONE)
            lower_fail(l, ERR_CONFIG, "it lacks an operand");
        *x[i] = lower_real_value(l, *x[i]);
        if (lower_failed(l))
            return y;
        y.n = x[i]->n > y.n ? x[i]->n : y.n;
    }
    for (int i = 0; i < n; i++)
        if (x[i]->kind == LOWERED_VALUE)
            *x[i] = lower_rank(l, *x[i], y.n);
    if (lower_failed(l))
        return y;
    leader = meet_leader(x, n);
    if (!leader) {
        lower_fail(l, ERR_UNSUPPORTED, "it has no tensor among its inputs");
        return y;
    }
    memcpy(y.at, leader->at, sizeof y.at);
    for (int i = 0; i < n; i++)
        if (x[i]->kind == LOWERED_VALUE)
            *x[i] = lower_arrange(l, *x[i], y.at);
    for (int d = 0; d < y.n && !lower_failed(l); d++)
        meet_extent(l, x, n, d, &y);
    return y;
}

struct lowered lower_binary(struct lower *l, enum elementwise kind, struct lowered a,
                            struct lowered b)
{
    const struct lowered y = lower_meet(l, (struct lowered *[]){&a, &b}, 2);

    if (lower_failed(l))
        return y;
    return lower_with(y, compose_elementwise(&l->c, kind, a.value, b.value));
}
