/* compose_contrast - the loss that compares the samples of a batch with each other, and the rows of
 * all ranks that it needs.
 *
 * Legend: N rows of this rank, D their length, G rows of all ranks. */
#include <math.h>

#include "op/compose.h"

/* x [N,W] -> [G,W] */
static int contrast_gather(struct compose *c, int x, int64_t all)
{
    const union node_attr attr = {.rows.all = all};
    int v = compose_append(c, OP_rows_send, &attr, (int[]){x, c->g->scalars}, 2);

    v = compose_append(c, OP_allreduce, NULL, &v, 1);
    return compose_append(c, OP_rows_all, &attr, (int[]){x, v}, 2);
}

/* The rows of all ranks: side[0] of a, side[1] of b, and *is_there [1,G], 0 for rows that no rank
 * has, since the epoch's last batch may be shorter.  All travel together. */
static void contrast_sides(struct compose *c, const struct compose_contrast *o, int side[2],
                           int *is_there)
{
    const struct shape s = c->g->value[o->a].shape; /* a copy: values may move */
    const int one = compose_expand(c, compose_reshape(c, compose_scalar(c, 1), SHAPE(1, 1)),
                                   SHAPE(s.dim[0], 1));
    const int x = compose_concat(c, (int[]){o->a, o->b, one}, 3, 1);
    int part[3] = {NO_VALUE, NO_VALUE, NO_VALUE};

    compose_split(c, contrast_gather(c, x, o->all), 1, (int64_t[]){s.dim[1], s.dim[1], 1}, 3, part);
    side[0] = part[0];
    side[1] = part[1];
    *is_there = compose_reshape(c, part[2], SHAPE(1, o->all));
}

/* The loss of each row of `own` among the rows `all` of the other side, of which `partner` is its
 * own.  is_there: NO_VALUE: all are. */
static int contrast_side(struct compose *c, int own, int partner, int all, int is_there)
{
    const int right =
        compose_reduce(c, REDUCE_SUM, compose_elementwise(c, EW_MUL, own, partner), 1u << 1, 1);
    int scores = compose_matmul(c, own, all, 0, 1);

    if (is_there != NO_VALUE)
        scores = compose_where(c, is_there, scores, compose_scalar(c, -INFINITY));
    return compose_elementwise(c, EW_SUB, compose_logsumexp(c, scores, 1u << 1, 1), right);
}

/* scale: [1,1] */
static int contrast_scaled(struct compose *c, const struct compose_contrast *o, int scale, int x)
{
    if (scale != NO_VALUE)
        x = compose_elementwise(c, EW_MUL, x, scale);
    return o->factor != 1 ? compose_constants(c, EW_AFFINE, x, (float)o->factor, 0) : x;
}

int compose_contrast(struct compose *c, const struct compose_contrast *o)
{
    int side[2] = {o->a, o->b}, is_there = NO_VALUE, scale = NO_VALUE, sum;

    if (c->rc < 0)
        return NO_VALUE;
    if (o->all > 0)
        contrast_sides(c, o, side, &is_there);
    if (o->scale != NO_VALUE)
        scale = compose_reshape(c, o->scale, SHAPE(1, 1));
    sum = compose_elementwise(
        c, EW_ADD, contrast_side(c, contrast_scaled(c, o, scale, o->a), o->b, side[1], is_there),
        contrast_side(c, contrast_scaled(c, o, scale, o->b), o->a, side[0], is_there));
    return compose_constants(c, EW_AFFINE, sum, 0.5F, 0);
}
