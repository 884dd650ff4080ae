/* cuda_runtime - the simulator's header: the part of CUDA C++ that our kernels use, for a plain C++
 * compiler. */
#ifndef TESTS_CUDASIM_INCLUDE_CUDA_RUNTIME_H
#define TESTS_CUDASIM_INCLUDE_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>

#include <cuda_runtime_api.h>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
};

/* 16 bytes of any type, which CUDA has aligned. */
struct __attribute__((may_alias, aligned(16))) uint4 {
    unsigned x, y, z, w;
};

inline void __stwb(uint4 *to, uint4 v) { *to = v; }

/* The indices of the thread that runs now. */
extern struct dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cudasim
{

struct site {
    const char *file;
    int line;
};

/* Queue a kernel; its threads run when the stream does its work. */
void enqueue(const char *name, int64_t blocks, int64_t threads, cudaStream_t s,
             std::function<void()> thread);

template <typename... P, typename... A>
void launch(const char *name, void (*kernel)(P...), int64_t blocks, int64_t threads, cudaStream_t s,
            A... args)
{
    enqueue(name, blocks, threads, s,
            [kernel, bound = std::tuple<P...>(args...)] { std::apply(kernel, bound); });
}

/* The block's shared array of this site, n_bytes, with undefined content (NaN) at first. */
void *shared(struct site at, size_t n_bytes);

void barrier(struct site at);

extern int64_t index_limit; /* set by sim_limit_index */

/* A clock that advances by a microsecond whenever it is read. */
int64_t now_ns();

/* All lanes of the mask must come here, each with 8 bytes; returns the values of all 32 lanes. */
const uint64_t *meet(unsigned mask, uint64_t mine, struct site at);
unsigned lane();

template <typename T> T shuffle(unsigned mask, T v, unsigned from, struct site at)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "one word a lane");
    uint64_t word = 0;

    memcpy(&word, &v, sizeof v);
    const uint64_t *all = meet(mask, word, at);
    if (from < 32 && mask >> from & 1)
        memcpy(&v, &all[from], sizeof v);
    return v;
}

inline unsigned ballot(unsigned mask, bool v, struct site at)
{
    const uint64_t *all = meet(mask, v, at);
    unsigned bits = 0;

    for (unsigned i = 0; i < 32; i++)
        bits |= mask >> i & 1 && all[i] ? 1u << i : 0;
    return bits;
}

} /* namespace cudasim */

/* clang-format off */
#define CUDASIM_HERE (cudasim::site{__FILE__, __LINE__})
#define LAUNCH(kernel, n_blocks, n_threads, p, ...) \
    cudasim::launch(#kernel, kernel, n_blocks, n_threads, (p)->cuda->stream, __VA_ARGS__)
#define SHARED(type, name, n) \
    type(&name)[n] = *static_cast<type(*)[n]>(cudasim::shared(CUDASIM_HERE, sizeof(type[n])))
#define DEVICE_NS() cudasim::now_ns()
/* So small that the small cases of the operator table take the paths of large tensors. */
#define COLUMNS_ROWS 2
#define CHUNKS_MOST  4
#define GROUP_ROWS   4
#define INDEX_LIMIT  cudasim::index_limit
#define __syncthreads() cudasim::barrier(CUDASIM_HERE)
#define __syncwarp(mask) ((void)cudasim::meet(mask, 0, CUDASIM_HERE))
#define __shfl_sync(mask, v, from) cudasim::shuffle(mask, v, (unsigned)(from), CUDASIM_HERE)
#define __shfl_xor_sync(mask, v, d) \
    cudasim::shuffle(mask, v, cudasim::lane() ^ (unsigned)(d), CUDASIM_HERE)
#define __shfl_down_sync(mask, v, d) \
    cudasim::shuffle(mask, v, cudasim::lane() + (unsigned)(d), CUDASIM_HERE)
#define __shfl_up_sync(mask, v, d) \
    cudasim::shuffle(mask, v, cudasim::lane() - (unsigned)(d), CUDASIM_HERE)
#define __ballot_sync(mask, v) cudasim::ballot(mask, v, CUDASIM_HERE)
#define __popc(v) __builtin_popcount(v)
#define __any_sync(mask, v) (__ballot_sync(mask, v) != 0)
#define __all_sync(mask, v) (__ballot_sync(mask, v) == (mask))
/* clang-format on */

/* One thread runs at a time until it meets others, so every operation is atomic. */
template <typename T> T atomicAdd(T *at, T v)
{
    const T old = *at;

    *at = old + v;
    return old;
}

template <typename T> T atomicMax(T *at, T v)
{
    const T old = *at;

    *at = old < v ? v : old;
    return old;
}

#endif
