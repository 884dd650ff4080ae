/* conv2d - tells which kernels of convolutions add to their output, for cpu.c, which tells the
 * program.
 *
 * Threads: the engine's. */
#ifndef BACKEND_CPU_CONV2D_H
#define BACKEND_CPU_CONV2D_H

#include "backend/cpu/cpu.h"

/* 1: the kernel of this conv2d_grad_w adds to dw and db by itself, as all do that write float32. */
int conv2d_adds(const struct cpu *b, const struct graph *g, const struct node *n);

#endif
