/* add - y = a + b, element by element.
 *
 * The twin is cpu/add.c. */
#include "backend/cuda/device.cuh"

/* y may be a. */
template <typename T> static __global__ void add(const T *a, const T *b, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)((float)a[i] + (float)b[i]);
}

template <typename T> static void run(const struct own *p)
{
    LAUNCH((add<T>), blocks_for(p, p->n, THREADS), THREADS, p, (const T *)p->in[ADD_A],
           (const T *)p->in[ADD_B], (T *)p->out[ADD_Y], p->n);
}

extern "C" int cuda_make_add(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>), 0, out, err);
}
