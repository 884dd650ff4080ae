/* device - the parts that our kernels share: launching, walking over elements, sums in a fixed
 * order.
 *
 * The sources are compiled twice: by nvcc, and as plain C++ for tests/cudasim.  cudasim's
 * <cuda_runtime.h> defines LAUNCH and SHARED and runs the threads of a block one after another in a
 * random order.
 *
 * Rules: a kernel is right for any grid, any number of elements (grid-stride loops) and any
 * addresses that are multiples of 16 bytes.  The optimizers that update spans of shards, grad_check
 * and add take any addresses.  A kernel gives the same bits in every run and for every
 * number of blocks: it uses no atomics, and only the shape decides how a sum is cut.  Element types
 * (float, bf16_t, f16_t) are template parameters; kernels compute in float: (float)x[i], (T)value.
 *
 * None of our kernels has run on a GPU yet: they have been compiled for one, and run by cudasim. */
#ifndef BACKEND_CUDA_DEVICE_CUH
#define BACKEND_CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>

extern "C" {
#include "backend/cuda/own.h"
#include "base/util.h"
#include "op/control.h"
#include "op/scaler.h"
}

typedef __nv_bfloat16 bf16_t;
typedef __half f16_t;

typedef void run_fn(const struct own *p);

/* Picks the function for the node's element type: typed(g, n, run<float>, run<bf16_t>,
 * run<f16_t>). */
static inline run_fn *typed(const struct graph *g, const struct node *n, run_fn *f32, run_fn *bf16,
                            run_fn *f16)
{
    const enum dtype t = op_type(g, n);

    return t == DTYPE_F32 ? f32 : t == DTYPE_BF16 ? bf16 : f16;
}

/* LAUNCH((kernel<float>), blocks, threads, p, arguments...) on p's stream.
 * SHARED(type, name, n): an array that the threads of a block share; undefined at first.
 * DEVICE_NS(): the device's clock, in nanoseconds. */
#ifndef LAUNCH
#define LAUNCH(kernel, n_blocks, n_threads, p, ...)                                    \
    do {                                                                               \
        kernel<<<(unsigned)(n_blocks), (unsigned)(n_threads), 0, (p)->cuda->stream>>>( \
            __VA_ARGS__);                                                              \
    } while (0)
#define SHARED(type, name, n) __shared__ type name[n]
#define DEVICE_NS()           device_ns()

static __device__ inline int64_t device_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return (int64_t)now;
}
#endif

enum { THREADS = 256, WARP = 32, WARPS_MAX = 1024 / WARP };

#define FULL_WARP 0xffffffffu

/* The number of blocks for n > 0 pieces of work, per_block in each, up to the backend's limit. */
static inline int64_t blocks_for(const struct own *p, int64_t n, int64_t per_block)
{
    const int64_t blocks = (n + per_block - 1) / per_block;

    return blocks < p->cuda->max_blocks ? blocks : p->cuda->max_blocks;
}

/* The number of threads of a block that works on a row of c elements. */
static inline int row_threads(int64_t c)
{
    const int64_t warps = (c + WARP - 1) / WARP;

    return WARP * (int)(warps < 1 ? 1 : warps < THREADS / WARP ? warps : THREADS / WARP);
}

/* The most elements of a launch that numbers them in 32 bits (a test of cudasim can lower it). */
#ifndef INDEX_LIMIT
#define INDEX_LIMIT INT32_MAX
#endif

/* Divides numbers below 2^31 by a number that all threads share.  A multiplication does it, since a
 * GPU has no instruction for division.  factor is 2^shift / by, rounded up, and less than 2^32.
 * factor * by exceeds 2^shift by less than by <= 2^(shift - 31), which is too little to reach the
 * next quotient. */
struct divisor {
    uint32_t by, factor;
    int shift;

    __device__ uint32_t quotient(uint32_t n) const
    {
        return (uint32_t)((uint64_t)n * factor >> shift);
    }
};

static inline struct divisor divisor_of(int64_t by)
{
    int shift = 31;

    ASSERT(by > 0 && by <= INT32_MAX);
    while ((int64_t)1 << (shift - 31) < by)
        shift++;
    return {(uint32_t)by, (uint32_t)((((uint64_t)1 << shift) + (uint64_t)by - 1) / (uint64_t)by),
            shift};
}

/* N neighbouring elements that are read or written at once; pointers are aligned to the whole. */
template <typename T, int N> struct alignas(sizeof(T) * N) vec {
    T v[N];
};

/* The numbers of type T that make 16 bytes, the most that a thread reads or writes at once. */
template <typename T> struct wide {
    enum { N = 16 / (int)sizeof(T) };
};

/* to[k] = from[k] for k < N; `from` is aligned to 16 bytes, or to N floats if these are fewer. */
template <int N> static __device__ inline void load_floats(const float *from, float (&to)[N])
{
    enum { M = N < wide<float>::N ? N : (int)wide<float>::N };

    for (int k = 0; k < N; k += M) {
        const vec<float, M> v = *(const vec<float, M> *)(from + k);

        for (int j = 0; j < M; j++)
            to[k + j] = v.v[j];
    }
}

/* The same from numbers of type T. */
template <int N, typename T>
static __device__ inline void load_floats(const T *from, float (&to)[N])
{
    const vec<T, N> v = *(const vec<T, N> *)from;

    for (int k = 0; k < N; k++)
        to[k] = (float)v.v[k];
}

/* to[k] = v.v[k] for k < N, in one instruction if these are 16 bytes; `to` is aligned to the whole.
 * In a loop that it unrolls, nvcc makes of an assignment a store for each number. */
template <typename T, int N> static __device__ inline void store_whole(T *to, const vec<T, N> &v)
{
    if constexpr (sizeof v == sizeof(uint4)) {
        uint4 bits;

        memcpy(&bits, &v, sizeof bits);
        __stwb((uint4 *)to, bits);
    } else {
        *(vec<T, N> *)to = v;
    }
}

static __device__ inline int64_t grid_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline int64_t grid_stride() { return (int64_t)gridDim.x * blockDim.x; }

/* Walks over the elements of [rows,c] and knows row and column, without a division at each step. */
struct walk {
    int64_t i, row, col;
    int64_t stride, row_step, col_step, c;

    __device__ explicit walk(int64_t n_cols) : i(grid_first()), stride(grid_stride()), c(n_cols)
    {
        row = i / c;
        col = i % c;
        row_step = stride / c;
        col_step = stride % c;
    }

    __device__ void next()
    {
        i += stride;
        row += row_step;
        col += col_step;
        if (col >= c) {
            col -= c;
            row++;
        }
    }
};

/* Walks over [rows,c] down the columns: what belongs to a column is read once, and then serves all
 * rows of it that the thread has.
 *
 *     for (struct columns_walk w(c); w.col < c; w.next())
 *         for (int64_t row = w.row; row < rows; row += w.down) */
struct columns_walk {
    int64_t col, row, across, down;

    __device__ explicit columns_walk(int64_t c)
    {
        const int64_t threads = grid_stride(), first = grid_first();

        across = c < threads ? c : threads;
        down = threads / across;
        row = first / across;
        col = row < down ? first % across : c; /* the last threads may have nothing to do */
    }

    __device__ void next() { col += across; }
};

/* The sum of all lanes' v, added pairwise; every lane gets the same bits. */
static __device__ inline double warp_sum(double v)
{
    for (int d = WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(FULL_WARP, v, d);
    return v;
}

/* The sum of v of all threads of the block, which has whole warps; every thread gets the same bits.
 * Every thread of the block must call this. */
static __device__ inline double block_sum(double v)
{
    SHARED(double, part, WARPS_MAX);
    const int lane = threadIdx.x % WARP, n_warps = blockDim.x / WARP;

    v = warp_sum(v);
    __syncthreads(); /* `part` of an earlier call may still be read */
    if (lane == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_sum(lane < n_warps ? part[lane] : 0.0);
}

/* The largest element of a row and its first place.  A NaN never wins, except in place 0. */
struct best {
    float value;
    int64_t at;
};

static __device__ inline struct best best_of(struct best a, struct best b)
{
    const bool take = b.value > a.value || (b.value == a.value && b.at < a.at);

    return take ? b : a;
}

static __device__ inline struct best warp_best(struct best v)
{
    for (int d = WARP / 2; d > 0; d /= 2) {
        struct best other;

        other.value = __shfl_xor_sync(FULL_WARP, v.value, d);
        other.at = __shfl_xor_sync(FULL_WARP, v.at, d);
        v = best_of(v, other);
    }
    return v;
}

/* The best of all threads' v and of `first`, the row's first element.  Every thread of the block
 * must call this, and gets the result. */
static __device__ inline struct best block_best_of(struct best v, struct best first)
{
    SHARED(struct best, part, WARPS_MAX);
    const int lane = threadIdx.x % WARP, n_warps = blockDim.x / WARP;

    v = warp_best(v);
    __syncthreads(); /* `part` of an earlier call may still be read */
    if (lane == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_best(lane < n_warps ? part[lane] : first);
}

/* As loss_first_largest of cpu/loss.h.  Every thread of the block must call this, and gets the
 * result. */
template <typename T> static __device__ struct best block_best(const T *x, int64_t c)
{
    const struct best first = {(float)x[0], 0};
    struct best v = first;

    for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
        const float value = (float)x[i];

        if (value > v.value)
            v = {value, i};
    }
    return block_best_of(v, first);
}

/* A parameter's gradient, of the type that the node wants.  It has few elements, so choosing the
 * type for each element costs nothing. */
struct grad_array {
    void *at; /* NULL: not wanted */
    int type; /* enum dtype */
    int adds; /* 1: put adds to what is there (node.adds) */

    template <typename T> __device__ void put_as(int64_t i, double v) const
    {
        T *to = (T *)at + i;

        *to = (T)(adds ? (float)*to + (float)v : (float)v);
    }

    /* Each element is put once in a run. */
    __device__ void put(int64_t i, double v) const
    {
        if (type == DTYPE_F32)
            put_as<float>(i, v);
        else if (type == DTYPE_BF16)
            put_as<bf16_t>(i, v);
        else
            put_as<f16_t>(i, v);
    }
};

static inline struct grad_array grad_of(const struct own *p, int out)
{
    return {p->out[out], (int)p->out_type[out], (int)(p->adds >> out & 1)};
}

/* The factor of a loss' gradient; with scaler NULL gradients are not scaled.  The twin is
 * plain_loss_scale. */
static __device__ inline float loss_scale_of(const struct step_scalars *s, const float *scaler)
{
    return scaler ? s->loss_scale * scaler[SCALER_SCALE] : s->loss_scale;
}

#endif
