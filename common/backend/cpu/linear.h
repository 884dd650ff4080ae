/* linear - tells which kernels of linear layers add to their output, for cpu.c, which tells the
 * program.
 *
 * Threads: the engine's. */
#ifndef BACKEND_CPU_LINEAR_H
#define BACKEND_CPU_LINEAR_H

#include "backend/cpu/cpu.h"

/* 1: the kernel of this linear_grad_w adds to dw by itself; the node has no db. */
int linear_adds(const struct cpu *b, const struct graph *g, const struct node *n);

#endif
