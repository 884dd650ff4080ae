/* linear - what cpu.c asks about linear layers. */
#ifndef BACKEND_CPU_LINEAR_H
#define BACKEND_CPU_LINEAR_H

#include "ir/graph.h"

/* 1: the kernel of this linear_grad_w adds to dw by itself. */
int linear_adds(const struct graph *g, const struct node *n);

#endif
