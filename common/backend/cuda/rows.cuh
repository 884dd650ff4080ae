/* rows - the threads that compute a row of a norm: a warp for a row of usual length, a block for a
 * longer one.
 *
 * Kernels of layer_norm and rms_norm share it. */
#ifndef BACKEND_CUDA_ROWS_CUH
#define BACKEND_CUDA_ROWS_CUH

#include "backend/cuda/device.cuh"

enum { LONG_ROW = 4096 };

/* The threads that compute a row: a warp, or the block.  Each does N neighbouring elements at a
 * time. */
template <bool BY_WARP, int N> struct team {
    int64_t row, step;  /* the first row, and the distance to the next one */
    int64_t from, each; /* the thread's first element, and the distance to the next ones */

    __device__ team()
    {
        row = BY_WARP ? grid_first() / WARP : blockIdx.x;
        step = BY_WARP ? grid_stride() / WARP : gridDim.x;
        from = (int64_t)(BY_WARP ? (int)threadIdx.x % WARP : (int)threadIdx.x) * N;
        each = (int64_t)(BY_WARP ? (int)WARP : (int)blockDim.x) * N;
    }

    static __device__ double sum(double v) { return BY_WARP ? warp_sum(v) : block_sum(v); }
};

/* Launch kernel<BY_WARP, T, N>(rows), as the rows' length wants it. */
#define LAUNCH_ROWS(kernel, T, p, rows)                                                          \
    do {                                                                                         \
        enum { W = wide<T>::N };                                                                 \
        const int64_t blocks = blocks_for(p, (p)->rows, (p)->c < LONG_ROW ? THREADS / WARP : 1); \
                                                                                                 \
        if ((p)->c < LONG_ROW && (p)->c % W == 0)                                                \
            LAUNCH((kernel<true, T, W>), blocks, THREADS, p, rows);                              \
        else if ((p)->c < LONG_ROW)                                                              \
            LAUNCH((kernel<true, T, 1>), blocks, THREADS, p, rows);                              \
        else if ((p)->c % W == 0)                                                                \
            LAUNCH((kernel<false, T, W>), blocks, THREADS, p, rows);                             \
        else                                                                                     \
            LAUNCH((kernel<false, T, 1>), blocks, THREADS, p, rows);                             \
    } while (0)

#endif
