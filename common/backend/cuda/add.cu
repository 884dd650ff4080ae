/* add - y = a + b, element by element.
 *
 * The twin is cpu/add.c. */
#include "backend/cuda/pieces.cuh"

/* y may be a. */
template <typename T> struct adding {
    const T *a, *b;
    T *y;

    template <int N> __device__ void piece(int64_t i) const
    {
        vec<T, N> v = ((const vec<T, N> *)a)[i];
        const vec<T, N> other = ((const vec<T, N> *)b)[i];

        for (int k = 0; k < N; k++)
            v.v[k] = (T)((float)v.v[k] + (float)other.v[k]);
        ((vec<T, N> *)y)[i] = v;
    }
};

template <typename T> static void cuda_add_run(const struct own *p)
{
    const struct adding<T> work = {
        (const T *)p->in[ADD_A], (const T *)p->in[ADD_B], (T *)p->out[ADD_Y]
    };

    pieces_run<T>(p, work, p->n,
                  pieces_are_whole(work.a) && pieces_are_whole(work.b) && pieces_are_whole(work.y));
}

extern "C" int cuda_make_add(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_add_run<float>, cuda_add_run<bf16_t>, cuda_add_run<f16_t>), 0,
                   out, err);
}
