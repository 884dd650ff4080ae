/* relu - relu of whole arrays, which keeps NaN as PyTorch's does.  oneDNN's makes it 0.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_RELU_H
#define BACKEND_CPU_RELU_H

#include <stdint.h>

/* y = x < 0 ? 0 : x, of n elements; y may be x, and overlaps it in no other way. */
void relu_f32(const float *x, float *y, int64_t n);
void relu_bf16(const uint16_t *x, uint16_t *y, int64_t n);

/* dx = y <= 0 ? 0 : dy, as PyTorch's threshold_backward: dy where y is NaN; dx may be dy. */
void relu_grad_f32(const float *y, const float *dy, float *dx, int64_t n);

#endif
