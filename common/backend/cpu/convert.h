/* convert - whole arrays from one floating-point type to another, by the processor's vectors.
 *
 * Numbers are rounded as tensor/half.h rounds them.
 *
 * Threads: pure. */
#ifndef BACKEND_CPU_CONVERT_H
#define BACKEND_CPU_CONVERT_H

#include <stdint.h>

#include "tensor/dtype.h"

/* `type` is F32, BF16 or F16.  The two arrays must not overlap. */
void convert_to_f32(float *to, const void *from, enum dtype type, int64_t n);
void convert_from_f32(void *to, const float *from, enum dtype type, int64_t n);

#endif
