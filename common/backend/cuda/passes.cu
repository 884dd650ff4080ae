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

extern "C" void passes_transpose(struct cuda *b, const float *from, float *to, int64_t samples,
                                 int64_t rows, int64_t cols)
{
    const struct own p = launcher(b, NULL);

    transpose_all(&p, from, to, samples, rows, cols);
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

template <typename F>
static void run_bias_act(const struct own *p, float *y, const float *bias, int64_t n, int64_t c)
{
    LAUNCH((bias_act<float, F>), blocks_for(p, n, THREADS), THREADS, p, y, bias, n, c);
}

typedef void bias_act_fn(const struct own *p, float *y, const float *bias, int64_t n, int64_t c);

extern "C" void passes_bias_act(struct cuda *b, float *y, const float *bias, enum activation act,
                                int64_t rows, int64_t c)
{
    static bias_act_fn *const by_kind[] = {
        run_bias_act<no_change>, run_bias_act<activated<ACT_RELU>>,
        run_bias_act<activated<ACT_TANH>>, run_bias_act<activated<ACT_SIGMOID>>,
        run_bias_act<activated<ACT_GELU>>};
    const struct own p = launcher(b, NULL);

    by_kind[act](&p, y, bias, rows * c, c);
}

struct element { /* a term of a column's sum */
    const float *x;
    int64_t c, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double *sum, int64_t row) const { *sum += (double)x[row * c + col]; }
};

struct as_float {
    float *to;

    __device__ void put(int64_t i, double sum) const { to[i] = (float)sum; }
};

extern "C" void passes_column_sums(struct cuda *b, const float *x, float *sum, int64_t rows,
                                   int64_t c, void *scratch)
{
    const struct own p = launcher(b, scratch);
    const struct element term = {x, c, 0};
    const struct as_float end = {sum};

    columns_sum<1>(&p, term, end, rows, c);
}

extern "C" size_t passes_column_sums_scratch(int64_t rows, int64_t c)
{
    return columns_scratch(1, rows, c);
}

extern "C" int passes_check(const char *what, struct err *err)
{
    return cuda_check((int)cudaGetLastError(), what, err);
}
