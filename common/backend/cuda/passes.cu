/* passes - a pass over a tensor before or after a library's call: bias, activation, transposing.
 *
 * The twins are cpu/flatten.c, cpu/bias.c and cpu/activation.c. */
extern "C" {
#include "backend/cuda/passes.h"
}

#include "backend/cuda/apply.cuh"
#include "backend/cuda/columns.cuh"
#include "backend/cuda/transpose.cuh"

/* The struct own that LAUNCH and columns_sum need. */
static struct own cuda_passes_launcher(struct cuda *b, void *scratch)
{
    struct own p = {};

    p.cuda = b;
    p.scratch = scratch;
    return p;
}

/* Picks the instance for the type of the array that is read. */
#define BY_TYPE(type, name) \
    ((type) == DTYPE_F32 ? name<float> : (type) == DTYPE_BF16 ? name<bf16_t> : name<f16_t>)

template <typename T>
static void run_transpose(const struct own *p, struct passes_array from, struct passes_array to,
                          int64_t samples, int64_t rows, int64_t cols, int adds)
{
    if (to.type == DTYPE_F32)
        transpose_all(p, (const T *)from.at, (float *)to.at, samples, rows, cols, adds);
    else
        transpose_all(p, (const T *)from.at, (T *)to.at, samples, rows, cols, adds);
}

extern "C" void passes_transpose(struct cuda *b, struct passes_array from, struct passes_array to,
                                 int64_t samples, int64_t rows, int64_t cols, int adds)
{
    const struct own p = cuda_passes_launcher(b, NULL);

    ASSERT(to.type == DTYPE_F32 || to.type == from.type);
    BY_TYPE(from.type, run_transpose)(&p, from, to, samples, rows, cols, adds);
}

template <typename T, typename U>
static __global__ void cuda_passes_give(const T *from, U *to, int64_t n, int adds)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        to[i] = (U)(adds ? (float)to[i] + (float)from[i] : (float)from[i]);
}

template <typename T>
static void run_give(const struct own *p, struct passes_array from, struct passes_array to,
                     int64_t n, int adds)
{
    if (to.type == DTYPE_F32)
        LAUNCH((cuda_passes_give<T, float>), blocks_for(p, n, THREADS), THREADS, p,
               (const T *)from.at, (float *)to.at, n, adds);
    else
        LAUNCH((cuda_passes_give<T, T>), blocks_for(p, n, THREADS), THREADS, p, (const T *)from.at,
               (T *)to.at, n, adds);
}

extern "C" void passes_give(struct cuda *b, struct passes_array from, struct passes_array to,
                            int64_t n, int adds)
{
    const struct own p = cuda_passes_launcher(b, NULL);

    ASSERT(to.type == DTYPE_F32 || to.type == from.type);
    BY_TYPE(from.type, run_give)(&p, from, to, n, adds);
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
        run_bias_act<T, no_change>,           run_bias_act<T, activated<ACT_RELU>>,
        run_bias_act<T, activated<ACT_TANH>>, run_bias_act<T, activated<ACT_SIGMOID>>,
        run_bias_act<T, activated<ACT_GELU>>, run_bias_act<T, activated<ACT_GELU_TANH>>,
        run_bias_act<T, activated<ACT_SILU>>, run_bias_act<T, activated<ACT_LEAKY_RELU>>};

    return by_kind[act];
}

extern "C" void passes_bias_act(struct cuda *b, struct passes_array y, const void *bias,
                                enum activation act, int64_t rows, int64_t c)
{
    const struct own p = cuda_passes_launcher(b, NULL);

    BY_TYPE(y.type, bias_act_by)(act)(&p, y.at, bias, rows * c, c);
}

/* ---- what a fused activation saves ---- */

static int64_t mask_words(int64_t c) { return 4 * ceil_div_i64(c, 128); }

/* A thread makes a word of the mask, for 32 columns of a row. */
template <typename T>
static __global__ void relu_mask(T *y, const T *bias, uint32_t *mask, int64_t n, int64_t c,
                                 int64_t words)
{
    for (struct walk w(words); w.i < n; w.next()) {
        T *row = y + w.row * c;
        uint32_t bits = 0;

        for (int64_t k = 32 * w.col; k < c && k < 32 * (w.col + 1); k++) {
            const float v = apply<ACT_RELU>((float)row[k] + (bias ? (float)bias[k] : 0.0f));

            row[k] = (T)v;
            bits |= (uint32_t)(v > 0.0f) << k % 32;
        }
        mask[w.i] = bits;
    }
}

template <typename T>
static __global__ void gelu_pre(T *y, const T *bias, T *pre, int64_t n, int64_t c)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const T v = (T)((float)pre[w.i] + (bias ? (float)bias[w.col] : 0.0f));

        pre[w.i] = v;
        y[w.i] = (T)apply<ACT_GELU_TANH>((float)v);
    }
}

template <typename T>
static void run_saving(const struct own *p, void *y, const void *bias, int64_t rows, int64_t c,
                       struct passes_saved s)
{
    const int64_t n = rows * (s.mask ? mask_words(c) : c);

    if (s.mask)
        LAUNCH((relu_mask<T>), blocks_for(p, n, THREADS), THREADS, p, (T *)y, (const T *)bias,
               (uint32_t *)s.mask, n, c, mask_words(c));
    else
        LAUNCH((gelu_pre<T>), blocks_for(p, n, THREADS), THREADS, p, (T *)y, (const T *)bias,
               (T *)s.pre, n, c);
}

extern "C" void passes_bias_act_saving(struct cuda *b, struct passes_array y, const void *bias,
                                       enum activation act, int64_t rows, int64_t c,
                                       struct passes_saved s)
{
    const struct own p = cuda_passes_launcher(b, NULL);

    ASSERT(s.mask ? act == ACT_RELU : s.pre && act == ACT_GELU_TANH);
    BY_TYPE(y.type, run_saving)(&p, y.at, bias, rows, c, s);
}

/* Where the mask's bit is 0, the gradient becomes 0, even if it was infinite. */
template <typename T>
static __global__ void cuda_passes_masked(T *dx, const uint32_t *mask, int64_t n, int64_t c,
                                          int64_t words)
{
    for (struct walk w(c); w.i < n; w.next())
        if (!(mask[w.row * words + w.col / 32] >> w.col % 32 & 1))
            dx[w.i] = (T)0.0f;
}

template <typename T> static __global__ void times_slope(T *dx, const T *pre, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        dx[i] = (T)((float)dx[i] * slope<ACT_GELU_TANH>((float)pre[i]));
}

template <typename T>
static void run_act_grad(const struct own *p, void *dx, int64_t n, int64_t c, struct passes_saved s)
{
    if (s.mask)
        LAUNCH((cuda_passes_masked<T>), blocks_for(p, n, THREADS), THREADS, p, (T *)dx,
               (const uint32_t *)s.mask, n, c, mask_words(c));
    else
        LAUNCH((times_slope<T>), blocks_for(p, n, THREADS), THREADS, p, (T *)dx, (const T *)s.pre,
               n);
}

extern "C" void passes_act_grad(struct cuda *b, struct passes_array dx, enum activation act,
                                int64_t rows, int64_t c, struct passes_saved s)
{
    const struct own p = cuda_passes_launcher(b, NULL);

    ASSERT(s.mask ? act == ACT_RELU : s.pre && act == ACT_GELU_TANH);
    BY_TYPE(dx.type, run_act_grad)(&p, dx.at, rows * c, c, s);
}

template <typename T, int V>
static void sum_columns(const struct own *p, struct passes_array x, struct grad_array end,
                        int64_t rows, int64_t c)
{
    const struct element_term<T, V> term = {
        (const T *)x.at, c, 0
    };

    columns_sum<1>(p, term, end, rows, c);
}

template <typename T>
static void run_column_sums(const struct own *p, struct passes_array x, struct passes_array sum,
                            int64_t rows, int64_t c, int adds)
{
    const struct grad_array end = {sum.at, (int)sum.type, adds};

    if (columns_are_wide(rows, c))
        sum_columns<T, COLUMNS_WIDE>(p, x, end, rows, c);
    else
        sum_columns<T, 1>(p, x, end, rows, c);
}

extern "C" void passes_column_sums(struct cuda *b, struct passes_array x, struct passes_array sum,
                                   int64_t rows, int64_t c, int adds, void *scratch)
{
    const struct own p = cuda_passes_launcher(b, scratch);

    BY_TYPE(x.type, run_column_sums)(&p, x, sum, rows, c, adds);
}

extern "C" size_t passes_column_sums_scratch(int64_t rows, int64_t c)
{
    return columns_scratch(1, rows, c);
}

extern "C" int passes_check(const char *what, struct err *err)
{
    return cuda_check((int)cudaGetLastError(), what, err);
}
