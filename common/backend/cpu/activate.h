/* activate - activations of whole arrays that keep NaN, as PyTorch's do, where oneDNN's make it 0
 * (dn_loses_nan).
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_ACTIVATE_H
#define BACKEND_CPU_ACTIVATE_H

#include <stdint.h>

#include "ir/graph.h"

/* y = act(x), of n elements; y may be x, and overlaps it in no other way.  act is relu, leaky_relu
 * or sigmoid; op/activation.c has the formulas. */
void activate_f32(enum activation act, const float *x, float *y, int64_t n);
void activate_relu_bf16(const uint16_t *x, uint16_t *y, int64_t n);

/* dx = y <= 0 ? 0 : dy, as PyTorch's threshold_backward: dy where y is NaN; dx may be dy. */
void activate_relu_grad_f32(const float *y, const float *dy, float *dx, int64_t n);

#endif
