/* activation - relu, tanh, sigmoid, the gelus, silu, leaky_relu and their gradients, element by
 * element.
 *
 * op/activation.c has the formulas; the twin is cpu/activation.c. */
#include "backend/cuda/apply.cuh"
#include "backend/cuda/pieces.cuh"

/* y may be x. */
template <typename T, int ACT> struct forward {
    const T *x;
    T *y;

    template <int N> __device__ void piece(int64_t i) const
    {
        vec<T, N> v = ((const vec<T, N> *)x)[i];

        for (int k = 0; k < N; k++)
            v.v[k] = (T)apply<ACT>((float)v.v[k]);
        ((vec<T, N> *)y)[i] = v;
    }
};

/* dx may be dy. */
template <typename T, int ACT> struct backward {
    const T *saved, *dy;
    T *dx;

    template <int N> __device__ void piece(int64_t i) const
    {
        const vec<T, N> from = ((const vec<T, N> *)saved)[i];
        vec<T, N> v = ((const vec<T, N> *)dy)[i];

        for (int k = 0; k < N; k++) {
            const float s = (float)from.v[k], d = (float)v.v[k];

            if (ACT == ACT_RELU)
                v.v[k] = (T)(s <= 0.0f ? 0.0f : d); /* d * 0 would be NaN for an infinite d */
            else
                v.v[k] = (T)(d * slope<ACT>(s));
        }
        ((vec<T, N> *)dx)[i] = v;
    }
};

template <int ACT, typename T> static void cuda_activation_run(const struct own *p)
{
    const struct forward<T, ACT> work = {
        (const T *)p->in[ACTIVATION_X], (T *)p->out[ACTIVATION_Y]
    };

    pieces_run<T>(p, work, p->n, pieces_are_whole(work.x) && pieces_are_whole(work.y));
}

template <int ACT, typename T> static void cuda_activation_run_grad(const struct own *p)
{
    const int saved =
        activation_saves_x((enum activation)ACT) ? ACTIVATION_GRAD_X : ACTIVATION_GRAD_Y;
    const struct backward<T, ACT> work = {
        (const T *)p->in[saved], (const T *)p->in[ACTIVATION_GRAD_DY],
            (T *)p->out[ACTIVATION_GRAD_DX]
    };

    pieces_run<T>(p, work, shape_elements(&p->in_shape[ACTIVATION_GRAD_DY]),
                  pieces_are_whole(work.saved) && pieces_are_whole(work.dy) &&
                      pieces_are_whole(work.dx));
}

template <int ACT>
static int cuda_activation_make(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_activation_run<ACT, float>, cuda_activation_run<ACT, bf16_t>,
                         cuda_activation_run<ACT, f16_t>),
                   0, out, err);
}

template <int ACT>
static int cuda_activation_make_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_activation_run_grad<ACT, float>,
                         cuda_activation_run_grad<ACT, bf16_t>,
                         cuda_activation_run_grad<ACT, f16_t>),
                   0, out, err);
}

typedef int make_fn(struct cuda *b, const struct graph *g, const struct node *n,
                    struct kernel **out, struct err *err);

extern "C" int cuda_make_activation(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    static make_fn *const by_kind[] = {NULL,
                                       cuda_activation_make<ACT_RELU>,
                                       cuda_activation_make<ACT_TANH>,
                                       cuda_activation_make<ACT_SIGMOID>,
                                       cuda_activation_make<ACT_GELU>,
                                       cuda_activation_make<ACT_GELU_TANH>,
                                       cuda_activation_make<ACT_SILU>,
                                       cuda_activation_make<ACT_LEAKY_RELU>};

    return by_kind[n->attr.act.kind](b, g, n, out, err);
}

extern "C" int cuda_make_activation_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    static make_fn *const by_kind[] = {NULL,
                                       cuda_activation_make_grad<ACT_RELU>,
                                       cuda_activation_make_grad<ACT_TANH>,
                                       cuda_activation_make_grad<ACT_SIGMOID>,
                                       cuda_activation_make_grad<ACT_GELU>,
                                       cuda_activation_make_grad<ACT_GELU_TANH>,
                                       cuda_activation_make_grad<ACT_SILU>,
                                       cuda_activation_make_grad<ACT_LEAKY_RELU>};

    return by_kind[n->attr.act.kind](b, g, n, out, err);
}
