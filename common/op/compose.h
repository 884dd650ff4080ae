/* compose - general nodes in one call each: what gradients, and models beyond layers, are made of.
 *
 * Every function appends the nodes that it needs and returns the value that they compute.  After
 * the first failure it returns NO_VALUE and appends nothing, so that only c->rc at the end must be
 * checked:
 *
 *     struct compose c = {.g = g, .name = "embed", .err = err};
 *     int x = compose_concat(&c, (int[]){token, patches}, 2, 1);
 *     x = compose_elementwise(&c, EW_ADD, x, position);
 *     if (c.rc < 0) ...
 *
 * A view that changes nothing appends no node.  Dimensions count from 0; a negative one counts
 * from the end, -1 being the last.
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
int compose_where(struct compose *c, int condition, int a, int b); /* condition != 0 ? a : b */

int compose_matmul(struct compose *c, int a, int b, int transpose_a, int transpose_b);
int compose_reduce(struct compose *c, enum reduction kind, int x, unsigned axes, int keep);

int compose_reshape(struct compose *c, int x, struct shape shape); /* one extent may be -1 */
int compose_expand(struct compose *c, int x, struct shape shape);
int compose_permute(struct compose *c, int x, const int *order); /* as many as x has dimensions */

/* The elements start, start + step ... before stop.  start and stop may be negative: they count
 * from the end.  INT64_MAX as stop means the end. */
int compose_slice(struct compose *c, int x, int dim, int64_t start, int64_t stop, int64_t step);
int compose_select(struct compose *c, int x, int dim, int64_t at);   /* a slice of 1, without dim */
int compose_concat(struct compose *c, const int *x, int n, int dim); /* n <= NODE_MAX_IN */

/* part[i] gets size[i] elements along dim, one behind the other. */
void compose_split(struct compose *c, int x, int dim, const int64_t *size, int n, int *part);

/* The sum of x over all that a value of this shape was broadcast along: its gradient from x. */
int compose_sum_to(struct compose *c, int x, struct shape shape);

/* x of its present shape without the dimensions `axes`, which were reduced: with those again, as
 * extents of 1. */
int compose_restore(struct compose *c, int x, const struct shape *before, unsigned axes);

#endif
