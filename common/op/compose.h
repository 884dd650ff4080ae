/* compose - general nodes in one call each, of which gradients are made.
 *
 * Every function appends the nodes that it needs and returns the value that they compute.  After
 * the first failure it returns NO_VALUE and appends nothing, so that only c->rc at the end must be
 * checked:
 *
 *     struct compose c = {.g = g, .name = "mean", .err = err};
 *     int y = compose_reduce(&c, REDUCE_MEAN, x, 1u << 0, 1);
 *     y = compose_elementwise(&c, EW_SUB, x, y);
 *     if (c.rc < 0) ...
 *
 * A view that changes nothing appends no node.
 *
 * Threads: as the graph. */
#ifndef OP_COMPOSE_H
#define OP_COMPOSE_H

#include "op/op.h"

struct compose {
    struct graph *g;
    const char *name; /* of all nodes */
    struct err *err;
    int rc; /* 0, or the first failure */
};

/* y = kind(a, b), with broadcasting; b is ignored by kinds of one operand.  Operands of equal
 * shape are added by the operator add. */
int compose_elementwise(struct compose *c, enum elementwise kind, int a, int b);
int compose_constants(struct compose *c, enum elementwise kind, int a, float p, float q);

int compose_matmul(struct compose *c, int a, int b, int transpose_a, int transpose_b);
int compose_reduce(struct compose *c, enum reduction kind, int x, unsigned axes, int keep);

int compose_expand(struct compose *c, int x, struct shape shape);
int compose_permute(struct compose *c, int x, const int *order); /* as many as x has dimensions */

/* The elements from start on, before stop, along dim. */
int compose_slice(struct compose *c, int x, int dim, int64_t start, int64_t stop);

/* The sum of x over all that a value of this shape was broadcast along: its gradient from x. */
int compose_sum_to(struct compose *c, int x, struct shape shape);

/* x of its present shape without the dimensions `axes`, which were reduced: with those again, as
 * extents of 1. */
int compose_restore(struct compose *c, int x, const struct shape *before, unsigned axes);

#endif
