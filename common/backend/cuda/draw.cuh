/* draw - Philox4x32-10 on a device, with the bits of base/rng.c.
 *
 * Kernels that drop at random share it; op/dropout.c says which word belongs to an element. */
#ifndef BACKEND_CUDA_DRAW_CUH
#define BACKEND_CUDA_DRAW_CUH

#include "backend/cuda/device.cuh"

extern "C" {
#include "base/rng.h"
}

/* rng_draw of base/rng.c. */
static __device__ inline struct rng_block draw(uint64_t seed, uint32_t purpose, uint64_t step,
                                               uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct rng_block v = {{(uint32_t)index, (uint32_t)(index >> 32) | purpose << 24, (uint32_t)step,
                           (uint32_t)(step >> 32)}};

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53 * v.v[0], p1 = (uint64_t)0xCD9E8D57 * v.v[2];

        v = {{(uint32_t)(p1 >> 32) ^ v.v[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ v.v[3] ^ k1,
              (uint32_t)p0}};
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    return v;
}

/* rng_to_unit of base/rng.h. */
static __device__ inline float draw_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

#endif
