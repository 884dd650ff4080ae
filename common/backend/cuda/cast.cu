/* cast - converts numbers to another type, and rounds if that type is narrower.
 *
 * op/cast.c has the formula; the twin is cpu/cast.c. */
#include "backend/cuda/device.cuh"

/* adds: y += x */
template <typename T, typename U>
static __global__ void cuda_cast(const T *x, U *y, int64_t n, int adds)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (U)(adds ? (float)y[i] + (float)x[i] : (float)x[i]);
}

template <typename T, typename U> static void cuda_cast_run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_cast<T, U>), blocks_for(p, p->n, THREADS), THREADS, p,
               (const T *)p->in[CAST_X], (U *)p->out[CAST_Y], p->n, p->adds != 0);
}

template <typename T> static run_fn *cuda_cast_from(enum dtype to)
{
    return to == DTYPE_F32    ? cuda_cast_run<T, float>
           : to == DTYPE_BF16 ? cuda_cast_run<T, bf16_t>
                              : cuda_cast_run<T, f16_t>;
}

extern "C" int cuda_make_cast(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const enum dtype t = g->value[n->in[CAST_X]].dtype, to = n->attr.cast.to;

    return own_new(b, g, n,
                   t == DTYPE_F32    ? cuda_cast_from<float>(to)
                   : t == DTYPE_BF16 ? cuda_cast_from<bf16_t>(to)
                                     : cuda_cast_from<f16_t>(to),
                   0, out, err);
}
