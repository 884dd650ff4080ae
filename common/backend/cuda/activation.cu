/* relu, tanh, sigmoid, gelu and their gradients, element by element; formulas in op/activation.c,
 * twin cpu/activation.c. */
#include "backend/cuda/apply.cuh"

/* y may be x. */
template <typename T, int ACT> static __global__ void forward(const T *x, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)apply<ACT>((float)x[i]);
}

/* dx may be dy. */
template <typename T, int ACT>
static __global__ void backward(const T *saved, const T *dy, T *dx, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const float s = (float)saved[i], d = (float)dy[i];

        if (ACT == ACT_RELU)
            dx[i] = (T)(s > 0.0f ? d : 0.0f); /* not d * 0, which an infinite d would make NaN */
        else
            dx[i] = (T)(d * slope<ACT>(s));
    }
}

template <int ACT> static void run(const struct own *p)
{
    LAUNCH((forward<float, ACT>), blocks_for(p, p->n, THREADS), THREADS, p, (const float *)p->in[0],
           (float *)p->out[0], p->n);
}

template <int ACT> static void run_grad(const struct own *p)
{
    const int64_t n = shape_elements(&p->in_shape[2]);

    LAUNCH((backward<float, ACT>), blocks_for(p, n, THREADS), THREADS, p,
           (const float *)p->in[ACT == ACT_GELU ? 0 : 1], (const float *)p->in[2],
           (float *)p->out[0], n);
}

typedef void run_fn(const struct own *p);

extern "C" int cuda_make_activation(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    static run_fn *const by_kind[] = {NULL, run<ACT_RELU>, run<ACT_TANH>, run<ACT_SIGMOID>,
                                      run<ACT_GELU>};

    return own_new(b, g, n, by_kind[n->attr.act.kind], 0, out, err);
}

extern "C" int cuda_make_activation_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    static run_fn *const by_kind[] = {NULL, run_grad<ACT_RELU>, run_grad<ACT_TANH>,
                                      run_grad<ACT_SIGMOID>, run_grad<ACT_GELU>};

    return own_new(b, g, n, by_kind[n->attr.act.kind], 0, out, err);
}
