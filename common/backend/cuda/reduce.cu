/* reduce - sums, means, extremes and variances over any dimensions: one block for each element of
 * y, whose threads share the elements of x that belong to it.
 *
 * op/reduce.c has the formulas; the twin is cpu/reduce.c. */
#include "backend/cuda/largest.cuh"
#include "backend/cuda/strided.cuh"

/* The elements of x at `at` + reduced(0 .. n). */
template <typename T> struct group {
    const T *x;
    int64_t at, n;
    struct strided reduced;

    __device__ float get(int64_t r) const { return (float)x[at + place_of(reduced, r)]; }
};

template <typename T> static __device__ double cuda_reduce_sum_of(const struct group<T> &v)
{
    double sum = 0;

    for (int64_t r = threadIdx.x; r < v.n; r += blockDim.x)
        sum += (double)v.get(r);
    return block_sum(sum);
}

template <typename T> static __device__ double squares_of(const struct group<T> &v, double mean)
{
    double sum = 0;

    for (int64_t r = threadIdx.x; r < v.n; r += blockDim.x) {
        const double d = (double)v.get(r) - mean;

        sum += d * d;
    }
    return block_sum(sum);
}

/* sign -1: the smallest. */
template <typename T>
static __device__ float cuda_reduce_largest_of(const struct group<T> &v, float sign)
{
    float most = -INFINITY;

    for (int64_t r = threadIdx.x; r < v.n; r += blockDim.x)
        most = larger(sign * v.get(r), most);
    return sign * block_largest(most);
}

template <typename T>
static __global__ void cuda_reduce(struct group<T> v, struct strided kept, int kind, double divisor,
                                   T *y, int64_t n_y)
{
    for (int64_t o = blockIdx.x; o < n_y; o += gridDim.x) {
        float result;

        v.at = place_of(kept, o);
        if (kind == REDUCE_MAX || kind == REDUCE_MIN)
            result = cuda_reduce_largest_of(v, kind == REDUCE_MAX ? 1.0f : -1.0f);
        else if (kind == REDUCE_VAR)
            result = (float)(squares_of(v, cuda_reduce_sum_of(v) / (double)v.n) / divisor);
        else
            result = (float)(cuda_reduce_sum_of(v) / divisor);
        if (threadIdx.x == 0)
            y[o] = (T)result;
    }
}

template <typename T> static void cuda_reduce_run(const struct own *p)
{
    const struct shape *x = &p->in_shape[REDUCE_X];
    const int64_t n_y = shape_elements(&p->out_shape[REDUCE_Y]);
    struct group<T> v = {
        (const T *)p->in[REDUCE_X], 0, 0, strided_axes(x, p->attr.reduce.axes)
    };
    double divisor = 1;

    v.n = strided_elements(&v.reduced);
    if (p->attr.reduce.kind == REDUCE_MEAN)
        divisor = (double)v.n;
    if (p->attr.reduce.kind == REDUCE_VAR)
        divisor = (double)(v.n - p->attr.reduce.correction);
    LAUNCH((cuda_reduce<T>), blocks_for(p, n_y, 1), row_threads(v.n), p, v,
           strided_axes(x, ~p->attr.reduce.axes), (int)p->attr.reduce.kind, divisor,
           (T *)p->out[REDUCE_Y], n_y);
}

extern "C" int cuda_make_reduce(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_reduce_run<float>, cuda_reduce_run<bf16_t>, cuda_reduce_run<f16_t>), 0,
        out, err);
}
