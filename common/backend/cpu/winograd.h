/* winograd - convolutions by 3 x 3 filters with many channels, with 4 products where the sum over
 * the filter takes 9.  The products are float32; operands are float32, or bfloat16 where products
 * of these are widened (dn_widens_bf16).
 *
 * F(2x2, 3x3) of A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR
 * 2016.  It adds before it multiplies, so its rounding errors are some two times those of the plain
 * sum.  winograd_fits says for which convolutions it is taken instead of oneDNN.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split. */
#ifndef BACKEND_CPU_WINOGRAD_H
#define BACKEND_CPU_WINOGRAD_H

#include "backend/cpu/cpu.h"

/* n is a conv2d, conv2d_grad_x or conv2d_grad_w. */
int winograd_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int winograd_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err);

#endif
