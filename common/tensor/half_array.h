/* half_array - arrays of float16 numbers: widened, rounded and summed, eight at a time where the
 * processor has instructions for them (F16C).
 *
 * Every element gets the bits that tensor/half.h's functions give it, whatever the processor; of
 * NaNs only that they are NaNs is promised for a sum.
 *
 * Threads: pure. */
#ifndef TENSOR_HALF_ARRAY_H
#define TENSOR_HALF_ARRAY_H

#include <stdint.h>

/* The two arrays must not overlap. */
void f16_array_widen(float *to, const uint16_t *from, int64_t n);
void f16_array_round(uint16_t *to, const float *from, int64_t n);

/* to[i] = a[i] + b[i], computed in float32 and then rounded.  `to` may be a or b. */
void f16_array_sum(uint16_t *to, const uint16_t *a, const uint16_t *b, int64_t n);

#endif
