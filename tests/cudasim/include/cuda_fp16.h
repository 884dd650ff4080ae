/* cuda_fp16 - the simulator's float16: what our kernels use of the real one, by tensor/half.h. */
#ifndef TESTS_CUDASIM_INCLUDE_CUDA_FP16_H
#define TESTS_CUDASIM_INCLUDE_CUDA_FP16_H

extern "C" {
#include "tensor/half.h"
}

struct __half {
    uint16_t bits;

    __half() = default; /* shared memory: undefined */
    explicit __half(float v) : bits(f16_from_float(v)) {}
    explicit operator float() const { return f16_to_float(bits); }
};

#endif
