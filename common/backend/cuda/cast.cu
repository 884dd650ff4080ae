/* cast - converts numbers to another type, and rounds if that type is narrower.
 *
 * op/cast.c has the formula; the twin is cpu/cast.c. */
#include "backend/cuda/device.cuh"

/* adds: y += x */
template <typename T, typename U> static __global__ void cast(const T *x, U *y, int64_t n, int adds)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (U)(adds ? (float)y[i] + (float)x[i] : (float)x[i]);
}

template <typename T, typename U> static void run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cast<T, U>), blocks_for(p, p->n, THREADS), THREADS, p, (const T *)p->in[CAST_X],
               (U *)p->out[CAST_Y], p->n, p->adds != 0);
}

template <typename T> static run_fn *from(enum dtype to)
{
    return to == DTYPE_F32 ? run<T, float> : to == DTYPE_BF16 ? run<T, bf16_t> : run<T, f16_t>;
}

extern "C" int cuda_make_cast(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const enum dtype t = g->value[n->in[CAST_X]].dtype, to = n->attr.cast.to;

    return own_new(b, g, n,
                   t == DTYPE_F32    ? from<float>(to)
                   : t == DTYPE_BF16 ? from<bf16_t>(to)
                                     : from<f16_t>(to),
                   0, out, err);
}
