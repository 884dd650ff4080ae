/* rotary - turns pairs of numbers; a thread has a pair.
 *
 * op/rotary.c has the formulas; the twin is cpu/rotary.c. */
#include "backend/cuda/device.cuh"

/* y may be x: a thread reads both numbers of its pair before it writes them. */
template <typename T> struct turning {
    const T *x;
    const float *cos, *sin;
    T *y;
    int64_t c, inner, places;
    int pairs, back;
};

template <typename T> static __global__ void cuda_rotary_turn(struct turning<T> p, int64_t n_pairs)
{
    const int64_t half = p.c / 2;

    for (int64_t k = grid_first(); k < n_pairs; k += grid_stride()) {
        const int64_t row = k / half, i = k % half, at = row / p.inner % p.places * p.c;
        const int64_t a = p.pairs ? 2 * i : i, b = p.pairs ? 2 * i + 1 : half + i;
        const float xa = (float)p.x[row * p.c + a], xb = (float)p.x[row * p.c + b];
        const float sa = p.back ? -p.sin[at + b] : p.sin[at + a],
                    sb = p.back ? -p.sin[at + a] : p.sin[at + b];

        p.y[row * p.c + a] = (T)(xa * p.cos[at + a] - xb * sa);
        p.y[row * p.c + b] = (T)(xb * p.cos[at + b] + xa * sb);
    }
}

template <typename T> static void cuda_rotary_run(const struct own *p)
{
    const struct turning<T> work = {
        (const T *)p->in[ROTARY_X], (const float *)p->in[ROTARY_COS],
            (const float *)p->in[ROTARY_SIN], (T *)p->out[ROTARY_Y], p->c, p->attr.rotary.inner,
            p->in_shape[ROTARY_COS].dim[0], p->attr.rotary.pairs, p->attr.rotary.back
    };

    if (p->n > 0)
        LAUNCH((cuda_rotary_turn<T>), blocks_for(p, p->n / 2, THREADS), THREADS, p, work, p->n / 2);
}

extern "C" int cuda_make_rotary(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_rotary_run<float>, cuda_rotary_run<bf16_t>, cuda_rotary_run<f16_t>), 0,
        out, err);
}
