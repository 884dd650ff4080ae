/* conv_rows - convolutions of few channels, done by rows with sums of outer products (outer.h).
 *
 * oneDNN pads channels to 16, 32 or 64: with 20 input channels a third of its products are zero.
 * In NHWC a filter's row of S pixels by C channels lies in one piece of S*C numbers, which pads far
 * less (100 to 112).  Where it serves (conv_rows_fits) it beats oneDNN; see conv_rows.c. */
#ifndef BACKEND_CPU_CONV_ROWS_H
#define BACKEND_CPU_CONV_ROWS_H

#include "backend/cpu/cpu.h"

/* n: conv2d, conv2d_grad_x or conv2d_grad_w. */
int conv_rows_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int conv_rows_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err);

#endif
