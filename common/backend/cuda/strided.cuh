/* strided - the maps of op/strided.h on the device.
 *
 * The twins are in cpu/strided.c. */
#ifndef BACKEND_CUDA_STRIDED_CUH
#define BACKEND_CUDA_STRIDED_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "op/strided.h"
}

/* strided_at, on the device. */
static __device__ inline int64_t place_of(const struct strided &s, int64_t i)
{
    int64_t at = s.base;

    for (int d = s.n - 1; d > 0; d--) {
        at += i % s.dim[d] * s.step[d];
        i /= s.dim[d];
    }
    return at + i * s.step[0];
}

#endif
