/* reshape - a value in another shape, with the batch found again in it.
 *
 * The dimensions before and after fall into groups, the smallest ones of equal products at export.
 * The batch of a group is that of its dimension before, and it lies in the dimension after which
 * spans its place.  A group whose dimensions lie side by side in the graph value is reshaped where
 * it lies, in whatever order the groups lie; else the value is permuted first. */
#include <string.h>

#include "base/util.h"
#include "import/lower_impl.h"

struct group {
    int from, n_from; /* dimensions before */
    int to, n_to;     /* dimensions after */
};

/* Returns the number of groups, 0 if the products differ. */
static int reshape_groups(const int64_t *a, int n_a, const int64_t *b, int n_b, struct group *g)
{
    int i = 0, j = 0, n = 0;

    while (i < n_a || j < n_b) {
        struct group *now = &g[n++];
        int64_t pa = i < n_a ? a[i] : 1, pb = j < n_b ? b[j] : 1;

        *now = (struct group){i, i < n_a, j, j < n_b};
        i += i < n_a;
        j += j < n_b;
        while (pa != pb) {
            if (pa < pb && i < n_a) {
                pa *= a[i++];
                now->n_from++;
            } else if (pb < pa && j < n_b) {
                pb *= b[j++];
                now->n_to++;
            } else {
                return 0;
            }
        }
    }
    return n;
}

/* The extents after of one group. */
static void group_extents(struct lower *l, const struct lowered *x, const struct group *g,
                          const int64_t *to, struct extent *dim)
{
    int64_t outer = 1, before = 1;
    int seen = 0, placed = 0;

    for (int d = g->from; d < g->from + g->n_from; d++) {
        if (x->dim[d].is_batch) {
            outer *= x->dim[d].outer;
            seen++;
        } else if (!seen) {
            outer *= x->dim[d].outer * x->dim[d].inner;
        }
    }
    for (int d = g->to; d < g->to + g->n_to; d++) {
        const int64_t next = before * to[d];

        dim[d] = extent_of(to[d]);
        if (seen == 1 && !placed && outer % before == 0 && next % (outer * l->batch) == 0) {
            dim[d] = (struct extent){outer / before, next / (outer * l->batch), 1};
            placed = 1;
        }
        before = next;
    }
    if (seen > 1 || seen != placed)
        lower_fail(l, ERR_UNSUPPORTED,
                   "a dimension after the reshape holds a part of the batch: the network depends "
                   "on the batch of its export, %lld",
                   (long long)l->batch);
}

/* 1: the dimensions of the group lie side by side and in order. */
static int group_is_together(const struct lower *l, const struct lowered *x, const struct group *g)
{
    const struct shape *s = &l->m->g->value[x->value].shape;
    int last = -1;

    for (int d = g->from; d < g->from + g->n_from; d++) {
        if (extent_is_one(x->dim[d]))
            continue;
        if (x->repeats >> d & 1 && g->n_from > 1)
            return 0;
        for (int e = last + 1; last >= 0 && e < x->at[d]; e++)
            if (s->dim[e] != 1)
                return 0;
        if (x->at[d] < last)
            return 0;
        last = x->at[d];
    }
    return 1;
}

/* The place of the group in the graph value: that of its first dimension which is not 1. */
static int group_place(const struct lowered *x, const struct group *g)
{
    for (int d = g->from; d < g->from + g->n_from; d++)
        if (!extent_is_one(x->dim[d]))
            return x->at[d];
    return g->n_from ? x->at[g->from] : x->n;
}

/* Reshape the groups where they lie. */
static struct lowered reshape_in_place(struct lower *l, const struct lowered *x,
                                       const struct group *g, int n_groups,
                                       const struct extent *dim)
{
    struct lowered y = {.kind = LOWERED_VALUE};
    struct shape s = {0};
    char done[2 * SHAPE_MAX_DIMS] = {0};

    for (int k = 0; k < n_groups; k++) {
        int next = -1;

        for (int i = 0; i < n_groups; i++)
            if (!done[i] && (next < 0 || group_place(x, &g[i]) < group_place(x, &g[next])))
                next = i;
        done[next] = 1;
        for (int d = g[next].to; d < g[next].to + g[next].n_to; d++) {
            const int repeats = g[next].n_from == 1 && (x->repeats >> g[next].from & 1);

            y.dim[d] = dim[d];
            y.at[d] = s.n;
            y.repeats |= (unsigned)repeats << d;
            s.dim[s.n++] = repeats ? 1 : extent_size(l, dim[d]);
        }
    }
    y.n = s.n;
    y.value = compose_reshape(&l->c, x->value, s);
    return lower_unturned(l, y);
}

/* The groups of an image [N,C,H,W] -> [N,C*H*W], or NULL: the operator flatten does it. */
static int is_flatten(const struct lowered *x, const struct group *g, int n_groups)
{
    static const int image[4] = {0, 3, 1, 2};

    return x->n == 4 && n_groups == 2 && g[1].from == 1 && g[1].n_from == 3 && g[0].n_to == 1 &&
           g[1].n_to == 1 && !memcmp(x->at, image, sizeof image) && !x->repeats;
}

static struct lowered reshape_flatten(struct lower *l, const struct lowered *x,
                                      const struct extent *dim)
{
    const int in[] = {x->value};
    int out[NODE_MAX_OUT] = {NODE_NEW_OUT};

    l->c.rc = graph_node(l->m->g, OP_flatten, NULL, in, 1, out, l->c.name, l->c.err);
    return lower_plain_value(l, out[0], 2, dim);
}

/* A group that repeats elements and is more than one dimension must hold them first. */
static int must_spread(const struct lowered *x, const struct group *g, int n_groups)
{
    for (int k = 0; k < n_groups; k++)
        for (int d = g[k].from; d < g[k].from + g[k].n_from; d++)
            if ((x->repeats >> d & 1) && (g[k].n_from != 1 || g[k].n_to != 1))
                return 1;
    return 0;
}

struct lowered lower_reshape(struct lower *l, struct lowered x, const int64_t *to, int n)
{
    struct group g[2 * SHAPE_MAX_DIMS];
    struct extent dim[SHAPE_MAX_DIMS];
    int64_t from[SHAPE_MAX_DIMS];
    int n_groups, together = 1;

    x = lower_real_value(l, x);
    if (lower_failed(l))
        return x;
    for (int d = 0; d < x.n; d++)
        from[d] = extent_exported(l, x.dim[d]);
    n_groups = reshape_groups(from, x.n, to, n, g);
    if (n_groups == 0 && x.n + n > 0) {
        lower_fail(l, ERR_CONFIG, "its input and its output have different numbers of elements");
        return x;
    }
    for (int k = 0; k < n_groups; k++)
        group_extents(l, &x, &g[k], to, dim);
    if (lower_failed(l))
        return x;
    if (must_spread(&x, g, n_groups))
        x = lower_spread(l, x);
    for (int k = 0; k < n_groups && !lower_failed(l); k++)
        together &= group_is_together(l, &x, &g[k]);
    if (lower_failed(l))
        return x;
    if (!together && is_flatten(&x, g, n_groups))
        return reshape_flatten(l, &x, dim);
    if (!together)
        x = lower_plain(l, x);
    return lower_failed(l) ? x : reshape_in_place(l, &x, g, n_groups, dim);
}
