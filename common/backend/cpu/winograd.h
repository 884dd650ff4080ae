/* winograd - convolutions by 3 x 3 filters with many channels, with 4 products where the sum over
 * the filter takes 9.  Operands are float32 or bfloat16, and sums are float32.  Of bfloat16
 * operands the products are float32's where these are widened (dn_widens_bf16); where the processor
 * multiplies pairs of bfloat16 and has no AMX (outer_has_pairs), they are such pairs.
 *
 * F(2x2, 3x3) of A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR
 * 2016.  It adds before it multiplies, so its rounding errors are some two times those of the plain
 * sum.
 *
 * Pairs round each factor, a sum of pixels or of taps, to bfloat16.  Its relative error is some
 * r = 2^-9.3 in the root mean square, and a product's 2^0.5 r.  Where pixels and taps are
 * independent of each other, those of y and dx become 5/3 of a product's, and those of dw up to 2:
 * A^T's and G^T's rows add the points' variances, (1 + 3/4 + 3/4)^2 * 4 = 25 in place of the plain
 * sum's 9, and at most 2 * 2 * 4 = 16 in place of 4.  So the added errors are 2^-8.1 and 2^-7.8 of
 * the results' own root mean square.  Rounding a result to bfloat16 makes r.
 *
 * winograd_fits says for which convolutions it is taken instead of oneDNN.
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
