/* mutants - the kernels of mutants.h, right ones and broken ones, as the simulator compiles them.
 * test_mutants.c expects a report for each broken one. */
#include "mutants.h"

#include <cuda_runtime.h>

namespace
{

/* LAUNCH needs a struct with a member `cuda` that has a stream. */
struct on_stream {
    struct target {
        cudaStream_t stream;
    } * cuda;
};

enum { THREADS = 256, TILE = 32 };

__global__ void twice(const float *x, float *y, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        y[i] = 2 * x[i];
}

__global__ void twice_no_tail(const float *x, float *y, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n / 4;
         i += (int)(gridDim.x * blockDim.x))
        for (int k = 0; k < 4; k++) /* no thread does the last n % 4 */
            y[4 * i + k] = 2 * x[4 * i + k];
}

__global__ void twice_no_bound(const float *x, float *y, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    y[i] = 2 * x[i < n ? i : 0];
}

__global__ void twice_no_stride(const float *x, float *y, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < n)
        y[i] = 2 * x[i]; /* right only if the grid is large enough */
}

/* Each tile goes through shared memory.  Without FIRST or SECOND a barrier is missing; SWAP takes
 * the tile's index the wrong way round. */
template <bool FIRST, bool SECOND, bool SWAP>
__global__ void transpose(const float *x, float *y, int n)
{
    SHARED(float, tile, TILE *(TILE + 1));
    const int rows = MUTANT_ROWS, cols = n / MUTANT_ROWS, across = (cols + TILE - 1) / TILE;
    const int tx = (int)threadIdx.x % TILE, ty = (int)threadIdx.x / TILE;

    for (int job = (int)blockIdx.x; job < across * ((rows + TILE - 1) / TILE);
         job += (int)gridDim.x) {
        const int top = job / across * TILE, left = job % across * TILE;

        for (int line = ty; line < TILE; line += THREADS / TILE)
            if (top + line < rows && left + tx < cols)
                tile[line * (TILE + 1) + tx] = x[(top + line) * cols + left + tx];
        if (FIRST)
            __syncthreads();
        for (int line = ty; line < TILE; line += THREADS / TILE)
            if (left + line < cols && top + tx < rows)
                y[(left + line) * rows + top + tx] =
                    tile[SWAP ? line * (TILE + 1) + tx : tx * (TILE + 1) + line];
        if (SECOND)
            __syncthreads();
    }
}

template <unsigned MASK> __device__ float warp_sum(float v)
{
    for (int d = 16; d > 0; d /= 2)
        v += __shfl_xor_sync(MASK, v, d);
    return v;
}

/* Computes y[block] by shuffles and one shared array. */
__global__ void sums(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS / 32);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), lane = (int)threadIdx.x % 32;
    float v = warp_sum<0xffffffff>(i < n ? x[i] : 0);

    if (lane == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_sum<0xffffffff>(lane < THREADS / 32 ? part[lane] : 0);
    if (threadIdx.x == 0)
        y[blockIdx.x] = v;
}

/* Reads sums that another warp may not have written yet. */
__global__ void sums_no_barrier(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS / 32);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), lane = (int)threadIdx.x % 32;
    float v = warp_sum<0xffffffff>(i < n ? x[i] : 0);

    if (lane == 0)
        part[threadIdx.x / 32] = v;
    v = warp_sum<0xffffffff>(lane < THREADS / 32 ? part[lane] : 0);
    if (threadIdx.x == 0)
        y[blockIdx.x] = v;
}

/* Threads with and without an element wait at different barriers. */
__global__ void sums_barrier_in_branch(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    part[threadIdx.x] = 0;
    if (i < n) {
        part[threadIdx.x] = x[i];
        __syncthreads();
    } else {
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        y[blockIdx.x] = 0;
        for (int k = 0; k < THREADS; k++)
            y[blockIdx.x] += part[k];
    }
}

__global__ void sums_early_return(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    part[threadIdx.x] = 0;
    if (i >= n)
        return;
    part[threadIdx.x] = x[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        y[blockIdx.x] = 0;
        for (int k = 0; k < THREADS; k++)
            y[blockIdx.x] += part[k];
    }
}

/* Lanes that have no element do not take part in the shuffle, although its mask has them. */
__global__ void sums_shuffle_in_branch(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS / 32);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (threadIdx.x < THREADS / 32)
        part[threadIdx.x] = 0;
    __syncthreads();
    if (i < n) {
        const float v = warp_sum<0xffffffff>(x[i]);

        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        y[blockIdx.x] = 0;
        for (int k = 0; k < THREADS / 32; k++)
            y[blockIdx.x] += part[k];
    }
}

/* The order of the additions depends on the order of the threads. */
__global__ void sums_atomic(const float *x, float *y, int n)
{
    SHARED(float, total, 1);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (threadIdx.x == 0)
        total[0] = 0;
    __syncthreads();
    if (i < n)
        atomicAdd(&total[0], x[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        y[blockIdx.x] = total[0];
}

__global__ void sums_not_cleared(const float *x, float *y, int n)
{
    SHARED(float, total, 1);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (i < n)
        atomicAdd(&total[0], x[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        y[blockIdx.x] = total[0];
}

/* A right kernel that finds the lanes with an element by a vote, and sums through shared memory. */
__global__ void sums_by_votes(const float *x, float *y, int n)
{
    SHARED(float, part, THREADS);
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const unsigned have = __ballot_sync(0xffffffff, i < n);
    const int lane = (int)threadIdx.x % 32;

    part[threadIdx.x] = have >> lane & 1 ? x[i] : 0;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if ((int)threadIdx.x < half)
            part[threadIdx.x] += part[(int)threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        y[blockIdx.x] = part[0];
}

template <void (*KERNEL)(const float *, float *, int), int BLOCKS, int N_THREADS>
void launch(cudaStream_t s, const float *x, float *y, int n)
{
    struct on_stream::target target = {s};
    struct on_stream p = {&target};

    LAUNCH(KERNEL, BLOCKS ? BLOCKS : (n + N_THREADS - 1) / N_THREADS, N_THREADS, &p, x, y, n);
}

} /* namespace */

const struct mutant mutants[] = {
    {"twice", TASK_DOUBLE, 0, launch<twice, 0, THREADS>},
    {"twice, few blocks", TASK_DOUBLE, 0, launch<twice, 2, 96>},
    {"a forgotten tail", TASK_DOUBLE, CAUGHT_RESULT, launch<twice_no_tail, 2, THREADS>},
    {"no bound", TASK_DOUBLE, CAUGHT_GUARD, launch<twice_no_bound, 0, THREADS>},
    {"no stride", TASK_DOUBLE, CAUGHT_RESULT, launch<twice_no_stride, 2, THREADS>},
    {"too many threads", TASK_DOUBLE, CAUGHT_LAUNCH, launch<twice, 0, 2048>},
    {"transpose", TASK_TRANSPOSE, 0, launch<transpose<true, true, false>, 1, THREADS>},
    {"a wrong index", TASK_TRANSPOSE, CAUGHT_RESULT,
     launch<transpose<true, true, true>, 1, THREADS>},
    {"no barrier before reading", TASK_TRANSPOSE, CAUGHT_RESULT | CAUGHT_BYTES,
     launch<transpose<false, true, false>, 1, THREADS>},
    {"no barrier before writing again", TASK_TRANSPOSE, CAUGHT_RESULT | CAUGHT_BYTES,
     launch<transpose<true, false, false>, 1, THREADS>},
    {"sums", TASK_SUMS, 0, launch<sums, 0, THREADS>},
    {"sums by votes", TASK_SUMS, 0, launch<sums_by_votes, 0, THREADS>},
    {"no barrier between warps", TASK_SUMS, CAUGHT_RESULT | CAUGHT_BYTES,
     launch<sums_no_barrier, 0, THREADS>},
    {"a barrier in a branch", TASK_SUMS, CAUGHT_LAUNCH, launch<sums_barrier_in_branch, 0, THREADS>},
    {"a return before a barrier", TASK_SUMS, CAUGHT_LAUNCH, launch<sums_early_return, 0, THREADS>},
    {"a shuffle in a branch", TASK_SUMS, CAUGHT_LAUNCH, launch<sums_shuffle_in_branch, 0, THREADS>},
    {"atomics on floats", TASK_SUMS, CAUGHT_BYTES, launch<sums_atomic, 0, THREADS>},
    {"shared memory not cleared", TASK_SUMS, CAUGHT_RESULT, launch<sums_not_cleared, 0, THREADS>},
};

const int n_mutants = sizeof mutants / sizeof mutants[0];
