/* compose_views - reshapes and permutations.  One that follows others is joined with them, so that
 * what a foreign network turns there and back again costs nothing. */
#include <string.h>

#include "op/compose.h"

static const struct shape *views_shape(const struct compose *c, int v)
{
    return &c->g->value[v].shape;
}

/* The node of this operator that made v; NULL: v was made otherwise, or no gradient goes back. */
static const struct node *views_maker(const struct compose *c, int v, enum op op)
{
    const int k = c->g->value[v].is_detached ? -1 : c->g->value[v].producer;

    return k >= 0 && c->g->node[k].op == (int)op ? &c->g->node[k] : NULL;
}

int compose_reshape(struct compose *c, int x, struct shape shape)
{
    const union node_attr attr = {.reshape.shape = shape};
    const struct node *before;

    if (c->rc < 0)
        return NO_VALUE;
    while ((before = views_maker(c, x, OP_reshape)))
        x = before->in[RESHAPE_X];
    return shape_equal(views_shape(c, x), &shape) ? x : compose_append(c, OP_reshape, &attr, &x, 1);
}

/* A reshape that cuts each dimension of `from` into dimensions of `to`, one after another: those of
 * d are n[d] dimensions from first[d] on.  0: it is none. */
static int views_cut(const struct shape *from, const struct shape *to, int *first, int *n)
{
    int at = 0;

    for (int d = 0; d < from->n; d++) {
        int64_t extent = 1;

        first[d] = at;
        while (at < to->n && (extent != from->dim[d] || (d == from->n - 1)))
            extent *= to->dim[at++];
        n[d] = at - first[d];
        if (extent != from->dim[d])
            return 0;
    }
    return at == to->n;
}

/* x is a permutation whose dimensions were then cut: make it one of dimensions that were cut
 * before.  order: of x's dimensions, then of those of the new x. */
static int views_cut_first(struct compose *c, int *x, int *order)
{
    const struct node *cut = views_maker(c, *x, OP_reshape);
    const struct node *turn = cut ? views_maker(c, cut->in[RESHAPE_X], OP_permute) : NULL;
    const struct shape to = *views_shape(c, *x);
    int first[SHAPE_MAX_DIMS], n[SHAPE_MAX_DIMS], where[SHAPE_MAX_DIMS];
    struct shape s = {0};

    if (!turn || !views_cut(views_shape(c, cut->in[RESHAPE_X]), &to, first, n))
        return 0;
    for (int d = 0; d < views_shape(c, turn->in[PERMUTE_X])->n; d++) { /* of what was turned */
        int i = 0;

        while (turn->attr.permute.order[i] != d)
            i++;
        for (int k = first[i]; k < first[i] + n[i]; k++) {
            where[k] = s.n;
            s.dim[s.n++] = to.dim[k];
        }
    }
    for (int d = 0; d < to.n; d++)
        order[d] = where[order[d]];
    *x = compose_reshape(c, turn->in[PERMUTE_X], s);
    return c->rc == 0;
}

/* Let order be that of the dimensions from which x's are made. */
static int views_unturn(struct compose *c, int x, int *order)
{
    const struct node *turn;

    do {
        while ((turn = views_maker(c, x, OP_permute))) {
            x = turn->in[PERMUTE_X];
            for (int d = 0; d < views_shape(c, x)->n; d++)
                order[d] = turn->attr.permute.order[order[d]];
        }
    } while (views_cut_first(c, &x, order));
    return x;
}

int compose_permute(struct compose *c, int x, const int *order)
{
    union node_attr attr = {0};
    int n, is_legal = 1, moves = 0;

    if (c->rc < 0)
        return NO_VALUE;
    n = views_shape(c, x)->n;
    memcpy(attr.permute.order, order, (size_t)n * sizeof *order);
    for (int d = 0; d < n; d++)
        is_legal &= order[d] >= 0 && order[d] < n;
    if (is_legal)
        x = views_unturn(c, x, attr.permute.order);
    for (int d = 0; d < n; d++)
        moves |= attr.permute.order[d] != d;
    return moves || c->rc < 0 ? compose_append(c, OP_permute, &attr, &x, 1) : x;
}

int compose_transpose(struct compose *c, int x, int d0, int d1)
{
    int order[SHAPE_MAX_DIMS], n;

    if (c->rc < 0)
        return NO_VALUE;
    n = views_shape(c, x)->n;
    d0 += d0 < 0 ? n : 0;
    d1 += d1 < 0 ? n : 0;
    for (int d = 0; d < n; d++)
        order[d] = d == d0 ? d1 : d == d1 ? d0 : d;
    return d0 == d1 ? x : compose_permute(c, x, order);
}
