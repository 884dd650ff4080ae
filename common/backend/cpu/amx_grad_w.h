/* amx_grad_w - the gradients of filters and of linear layers' weights in BF16, in the processor's
 * tiles (amx.h).
 *
 * A tile's 32 terms are 32 samples at one pixel.  So pixels are arranged once for all taps of a
 * filter, whatever its strides and padding, and a product of matrices is the case of one pixel.
 * amx_grad_w_fits says for which nodes this is taken instead of oneDNN; amx_grad_w.c has the
 * timings.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split.  Its bits do not depend
 * on the number of threads. */
#ifndef BACKEND_CPU_AMX_GRAD_W_H
#define BACKEND_CPU_AMX_GRAD_W_H

#include "backend/cpu/cpu.h"

/* n is any node; only a conv2d_grad_w or linear_grad_w may fit. */
int amx_grad_w_fits(const struct cpu *b, const struct graph *g, const struct node *n);

/* The conditions of amx_grad_w_fits but the processor's, so that tests run everywhere. */
int amx_grad_w_can(const struct graph *g, const struct node *n);

int amx_grad_w_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                    struct err *err);

#endif
