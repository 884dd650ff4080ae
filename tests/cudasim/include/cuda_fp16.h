/* cuda_fp16 - the simulator's float16: the part of the real header that our kernels use.
 *
 * tensor/half.h does the conversions. */
#ifndef TESTS_CUDASIM_INCLUDE_CUDA_FP16_H
#define TESTS_CUDASIM_INCLUDE_CUDA_FP16_H

extern "C" {
#include "tensor/half.h"
}

struct __half {
    uint16_t bits;

    __half() = default; /* undefined, as in shared memory */
    explicit __half(float v) : bits(f16_from_float(v)) {}
    explicit operator float() const { return f16_to_float(bits); }
};

#endif
