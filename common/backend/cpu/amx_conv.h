/* amx_conv - convolutions of BF16, forward and their grad_x, by the processor's tiles (amx.h).
 *
 * oneDNN 2.6's convolutions by AMX reach a third of what the tiles can do where images are small.
 * amx_conv_fits says for which convolutions this is taken instead; amx_conv.c has the timings.
 *
 * Threads: the engine's; a kernel that runs cuts its work by plain_split.  A result's bits do not
 *          depend on the number of threads. */
#ifndef BACKEND_CPU_AMX_CONV_H
#define BACKEND_CPU_AMX_CONV_H

#include "backend/cpu/cpu.h"

/* n is a conv2d, conv2d_grad_x or conv2d_grad_w; the last one never fits.  amx_conv_can is what
 * amx_conv_make takes on any processor. */
int amx_conv_fits(const struct cpu *b, const struct graph *g, const struct node *n);
int amx_conv_can(const struct graph *g, const struct node *n);
int amx_conv_make(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err);

#endif
