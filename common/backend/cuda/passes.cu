/* Twins: cpu/flatten.c, cpu/bias.c, cpu/activation.c. */
extern "C" {
#include "backend/cuda/passes.h"
}

#include "backend/cuda/apply.cuh"
#include "backend/cuda/columns.cuh"
#include "backend/cuda/transpose.cuh"

/* What a launch wants to know. */
static struct own launcher(struct cuda *b, void *scratch)
{
    struct own p = {};

    p.cuda = b;
    p.scratch = scratch;
    return p;
}

/* Instances are picked by the type of what is read. */
#define BY_TYPE(type, name) \
    ((type) == DTYPE_F32 ? name<float> : (type) == DTYPE_BF16 ? name<bf16_t> : name<f16_t>)

template <typename T>
static void run_transpose(const struct own *p, struct passes_array from, struct passes_array to,
                          int64_t samples, int64_t rows, int64_t cols)
{
    if (to.type == DTYPE_F32)
        transpose_all(p, (const T *)from.at, (float *)to.at, samples, rows, cols);
    else
        transpose_all(p, (const T *)from.at, (T *)to.at, samples, rows, cols);
}

extern "C" void passes_transpose(struct cuda *b, struct passes_array from, struct passes_array to,
                                 int64_t samples, int64_t rows, int64_t cols)
{
    const struct own p = launcher(b, NULL);

    ASSERT(to.type == DTYPE_F32 || to.type == from.type);
    BY_TYPE(from.type, run_transpose)(&p, from, to, samples, rows, cols);
}

template <typename T> static __global__ void widen(const T *from, float *to, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        to[i] = (float)from[i];
}

template <typename T>
static void run_widen(const struct own *p, struct passes_array from, struct passes_array to,
                      int64_t n)
{
    LAUNCH((widen<T>), blocks_for(p, n, THREADS), THREADS, p, (const T *)from.at, (float *)to.at,
           n);
}

extern "C" void passes_widen(struct cuda *b, struct passes_array from, struct passes_array to,
                             int64_t n)
{
    const struct own p = launcher(b, NULL);

    ASSERT(to.type == DTYPE_F32);
    BY_TYPE(from.type, run_widen)(&p, from, to, n);
}

struct no_change {
    static __device__ float of(float x) { return x; }
};

template <int ACT> struct activated {
    static __device__ float of(float x) { return apply<ACT>(x); }
};

template <typename T, typename F>
static __global__ void bias_act(T *y, const T *bias, int64_t n, int64_t c)
{
    for (struct walk w(c); w.i < n; w.next())
        y[w.i] = (T)F::of((float)y[w.i] + (bias ? (float)bias[w.col] : 0.0f));
}

template <typename T, typename F>
static void run_bias_act(const struct own *p, void *y, const void *bias, int64_t n, int64_t c)
{
    LAUNCH((bias_act<T, F>), blocks_for(p, n, THREADS), THREADS, p, (T *)y, (const T *)bias, n, c);
}

typedef void bias_act_fn(const struct own *p, void *y, const void *bias, int64_t n, int64_t c);

template <typename T> static bias_act_fn *bias_act_by(enum activation act)
{
    static bias_act_fn *const by_kind[] = {
        run_bias_act<T, no_change>, run_bias_act<T, activated<ACT_RELU>>,
        run_bias_act<T, activated<ACT_TANH>>, run_bias_act<T, activated<ACT_SIGMOID>>,
        run_bias_act<T, activated<ACT_GELU>>};

    return by_kind[act];
}

extern "C" void passes_bias_act(struct cuda *b, struct passes_array y, const void *bias,
                                enum activation act, int64_t rows, int64_t c)
{
    const struct own p = launcher(b, NULL);

    BY_TYPE(y.type, bias_act_by)(act)(&p, y.at, bias, rows * c, c);
}

template <typename T> struct element { /* a term of a column's sum */
    const T *x;
    int64_t c, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double *sum, int64_t row) const { *sum += (double)(float)x[row * c + col]; }
};

template <typename T>
static void run_column_sums(const struct own *p, struct passes_array x, struct passes_array sum,
                            int64_t rows, int64_t c)
{
    const struct element<T> term = {
        (const T *)x.at, c, 0
    };
    const struct grad_array end = {sum.at, (int)sum.type};

    columns_sum<1>(p, term, end, rows, c);
}

extern "C" void passes_column_sums(struct cuda *b, struct passes_array x, struct passes_array sum,
                                   int64_t rows, int64_t c, void *scratch)
{
    const struct own p = launcher(b, scratch);

    BY_TYPE(x.type, run_column_sums)(&p, x, sum, rows, c);
}

extern "C" size_t passes_column_sums_scratch(int64_t rows, int64_t c)
{
    return columns_scratch(1, rows, c);
}

extern "C" int passes_check(const char *what, struct err *err)
{
    return cuda_check((int)cudaGetLastError(), what, err);
}
