/* largest - the largest number of a block's threads, where a NaN is larger than all.
 *
 * device.cuh has the sums. */
#ifndef BACKEND_CUDA_LARGEST_CUH
#define BACKEND_CUDA_LARGEST_CUH

#include "backend/cuda/device.cuh"

/* The larger of two numbers; a NaN is larger than all. */
static __device__ inline float larger(float a, float b) { return a > b || a != a ? a : b; }

/* The largest of all threads' v.  Every thread of the block must call this, and gets the result. */
static __device__ inline float block_largest(float v)
{
    SHARED(float, part, WARPS_MAX);
    const int lane = threadIdx.x % WARP, n_warps = blockDim.x / WARP;

    for (int d = WARP / 2; d > 0; d /= 2)
        v = larger(v, __shfl_xor_sync(FULL_WARP, v, d));
    __syncthreads(); /* `part` of an earlier call may still be read */
    if (lane == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < n_warps; i++)
        v = larger(v, part[i]);
    return v;
}

#endif
