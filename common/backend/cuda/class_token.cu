/* class_token - puts the class token's row before the rows of each sample and adds the positions.
 *
 * An element of the gradients of token and position is one thread's sum over the samples.
 * op/class_token.c has the formulas; the twin is cpu/class_token.c. */
#include "backend/cuda/device.cuh"

template <typename T>
static __global__ void cuda_class_token_prepend(const T *x, const T *token, const T *position, T *y,
                                                int64_t n, int64_t c, int64_t length)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const int64_t sample = w.row / length, t = w.row % length;
        const T v = t ? x[(sample * (length - 1) + t - 1) * c + w.col] : token[w.col];

        y[w.i] = (T)((float)v + (float)position[t * c + w.col]);
    }
}

template <typename T> static void cuda_class_token_run(const struct own *p)
{
    const int64_t n = shape_elements(&p->out_shape[CLASS_TOKEN_Y]);

    LAUNCH((cuda_class_token_prepend<T>), blocks_for(p, n, THREADS), THREADS, p,
           (const T *)p->in[CLASS_TOKEN_X], (const T *)p->in[CLASS_TOKEN_TOKEN],
           (const T *)p->in[CLASS_TOKEN_POSITION], (T *)p->out[CLASS_TOKEN_Y], n, p->c,
           p->attr.class_token.length);
}

extern "C" int cuda_make_class_token(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_class_token_run<float>, cuda_class_token_run<bf16_t>,
                         cuda_class_token_run<f16_t>),
                   0, out, err);
}

/* dx has n elements. */
template <typename T>
static __global__ void cuda_class_token_copy_rows(const T *dy, T *dx, int64_t n, int64_t c,
                                                  int64_t length)
{
    for (struct walk w(c); w.i < n; w.next())
        dx[w.i] = dy[(w.row + w.row / (length - 1) + 1) * c + w.col];
}

/* The first n elements of dposition, which are also those of dtoken. */
template <typename T>
static __global__ void cuda_class_token_sum_samples(const T *dy, struct grad_array to, int64_t n,
                                                    int64_t n_dy, int64_t sample_elements)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        float sum = 0;

        for (int64_t at = i; at < n_dy; at += sample_elements)
            sum += (float)dy[at];
        to.put(i, (double)sum);
    }
}

template <typename T> static void cuda_class_token_run_grad(const struct own *p)
{
    const T *dy = (const T *)p->in[CLASS_TOKEN_GRAD_DY];
    const int64_t length = p->attr.class_token.length, n_dx = p->n / length * (length - 1);

    if (p->out[CLASS_TOKEN_GRAD_DX])
        LAUNCH((cuda_class_token_copy_rows<T>), blocks_for(p, n_dx, THREADS), THREADS, p, dy,
               (T *)p->out[CLASS_TOKEN_GRAD_DX], n_dx, p->c, length);
    if (p->out[CLASS_TOKEN_GRAD_DTOKEN])
        LAUNCH((cuda_class_token_sum_samples<T>), blocks_for(p, p->c, THREADS), THREADS, p, dy,
               grad_of(p, CLASS_TOKEN_GRAD_DTOKEN), p->c, p->n, length * p->c);
    if (p->out[CLASS_TOKEN_GRAD_DPOSITION])
        LAUNCH((cuda_class_token_sum_samples<T>), blocks_for(p, length * p->c, THREADS), THREADS, p,
               dy, grad_of(p, CLASS_TOKEN_GRAD_DPOSITION), length * p->c, p->n, length * p->c);
}

extern "C" int cuda_make_class_token_grad(struct cuda *b, const struct graph *g,
                                          const struct node *n, struct kernel **out,
                                          struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_class_token_run_grad<float>, cuda_class_token_run_grad<bf16_t>,
                         cuda_class_token_run_grad<f16_t>),
                   0, out, err);
}
