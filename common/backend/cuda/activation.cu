/* activation - relu, tanh, sigmoid, the gelus, silu, leaky_relu and their gradients, element by
 * element.
 *
 * op/activation.c has the formulas; the twin is cpu/activation.c. */
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
            dx[i] = (T)(s > 0.0f ? d : 0.0f); /* d * 0 would be NaN for an infinite d */
        else
            dx[i] = (T)(d * slope<ACT>(s));
    }
}

template <int ACT, typename T> static void run(const struct own *p)
{
    LAUNCH((forward<T, ACT>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const T *)p->in[ACTIVATION_X], (T *)p->out[ACTIVATION_Y], p->n);
}

template <int ACT, typename T> static void run_grad(const struct own *p)
{
    const int64_t n = shape_elements(&p->in_shape[ACTIVATION_GRAD_DY]);

    LAUNCH(
        (backward<T, ACT>), blocks_for(p, n, THREADS), THREADS, p,
        (const T *)
            p->in[activation_saves_x((enum activation)ACT) ? ACTIVATION_GRAD_X : ACTIVATION_GRAD_Y],
        (const T *)p->in[ACTIVATION_GRAD_DY], (T *)p->out[ACTIVATION_GRAD_DX], n);
}

template <int ACT>
static int make(struct cuda *b, const struct graph *g, const struct node *n, struct kernel **out,
                struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<ACT, float>, run<ACT, bf16_t>, run<ACT, f16_t>), 0, out,
                   err);
}

template <int ACT>
static int make_grad(struct cuda *b, const struct graph *g, const struct node *n,
                     struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, run_grad<ACT, float>, run_grad<ACT, bf16_t>, run_grad<ACT, f16_t>),
                   0, out, err);
}

typedef int make_fn(struct cuda *b, const struct graph *g, const struct node *n,
                    struct kernel **out, struct err *err);

extern "C" int cuda_make_activation(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    static make_fn *const by_kind[] = {
        NULL,           make<ACT_RELU>,      make<ACT_TANH>, make<ACT_SIGMOID>,
        make<ACT_GELU>, make<ACT_GELU_TANH>, make<ACT_SILU>, make<ACT_LEAKY_RELU>};

    return by_kind[n->attr.act.kind](b, g, n, out, err);
}

extern "C" int cuda_make_activation_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    static make_fn *const by_kind[] = {NULL,
                                       make_grad<ACT_RELU>,
                                       make_grad<ACT_TANH>,
                                       make_grad<ACT_SIGMOID>,
                                       make_grad<ACT_GELU>,
                                       make_grad<ACT_GELU_TANH>,
                                       make_grad<ACT_SILU>,
                                       make_grad<ACT_LEAKY_RELU>};

    return by_kind[n->attr.act.kind](b, g, n, out, err);
}
