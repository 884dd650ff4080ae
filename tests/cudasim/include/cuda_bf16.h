/* cuda_bf16 - the simulator's bfloat16: the part of the real header that our kernels use.
 *
 * tensor/half.h does the conversions. */
#ifndef TESTS_CUDASIM_INCLUDE_CUDA_BF16_H
#define TESTS_CUDASIM_INCLUDE_CUDA_BF16_H

extern "C" {
#include "tensor/half.h"
}

struct __nv_bfloat16 {
    uint16_t bits;

    __nv_bfloat16() = default; /* undefined, as in shared memory */
    explicit __nv_bfloat16(float v) : bits(bf16_from_float(v)) {}
    explicit operator float() const { return bf16_to_float(bits); }
};

#endif
