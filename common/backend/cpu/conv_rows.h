/* conv_rows - convolutions with few channels, by rows of the filter, as sums of outer products
 * (outer.h).
 *
 * oneDNN pads channels to 16, 32 or 64: with 20 input channels a third of its products are zero.
 * In NHWC a filter's row of S pixels by C channels is one piece of S*C numbers, which needs far
 * less padding (100 to 112).  conv_rows_fits says where this is faster than oneDNN; conv_rows.c has
 * the timings.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split. */
#ifndef BACKEND_CPU_CONV_ROWS_H
#define BACKEND_CPU_CONV_ROWS_H

#include "backend/cpu/cpu.h"

/* n is a conv2d, conv2d_grad_x or conv2d_grad_w. */
int conv_rows_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int conv_rows_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err);

#endif
