/* bias - y = x + b along the last dimension, and the gradient of b, which is a sum over rows.
 *
 * op/bias.c has the formulas; the twin is cpu/bias.c. */
#include "backend/cuda/columns.cuh"

/* x is [rows,C]; y may be x. */
template <typename T>
static __global__ void cuda_bias_add(const T *x, const T *bias, T *y, int64_t n, int64_t c)
{
    for (struct walk w(c); w.i < n; w.next())
        y[w.i] = (T)((float)x[w.i] + (float)bias[w.col]);
}

template <typename T> static void cuda_bias_run(const struct own *p)
{
    LAUNCH((cuda_bias_add<T>), blocks_for(p, p->n, THREADS), THREADS, p, (const T *)p->in[BIAS_X],
           (const T *)p->in[BIAS_B], (T *)p->out[BIAS_Y], p->n, p->c);
}

extern "C" int cuda_make_bias(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_bias_run<float>, cuda_bias_run<bf16_t>, cuda_bias_run<f16_t>),
                   0, out, err);
}

template <typename T, int V> static void sum_grad(const struct own *p)
{
    const struct element_term<T, V> term = {
        (const T *)p->in[BIAS_GRAD_DY], p->c, 0
    };

    columns_sum<1>(p, term, grad_of(p, BIAS_GRAD_DB), p->rows, p->c);
}

template <typename T> static void cuda_bias_run_grad(const struct own *p)
{
    if (columns_are_wide(p->rows, p->c))
        sum_grad<T, COLUMNS_WIDE>(p);
    else
        sum_grad<T, 1>(p);
}

extern "C" int cuda_make_bias_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    const struct shape *dy = cuda_in(g, n, BIAS_GRAD_DY);
    const int64_t c = dy->dim[dy->n - 1];

    return own_new(b, g, n,
                   typed(g, n, cuda_bias_run_grad<float>, cuda_bias_run_grad<bf16_t>,
                         cuda_bias_run_grad<f16_t>),
                   columns_scratch(1, shape_elements(dy) / c, c), out, err);
}
