/* winograd5 - the gradients of convolutions by 5 x 5 filters of float32, with 49 products where the
 * sum over the filter takes 225: F(3x3, 5x5) of A. Lavin and S. Gray, "Fast Algorithms for
 * Convolutional Neural Networks", CVPR 2016, read backwards.
 *
 * It adds before it multiplies.  So its rounding errors in the root mean square are 1e-6 of the
 * results' own for dx, some three times those of the plain sum, and some 3e-6 for dw, two to seven
 * times those of the plain sum (simulated with normal numbers, and with their positive ones).
 *
 * winograd5_fits says for which convolutions it is taken.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split. */
#ifndef BACKEND_CPU_WINOGRAD5_H
#define BACKEND_CPU_WINOGRAD5_H

#include "backend/cpu/cpu.h"

/* n is a conv2d, which never fits, a conv2d_grad_x or a conv2d_grad_w. */
int winograd5_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int winograd5_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err);

#endif
