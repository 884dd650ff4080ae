/* y = a + b; twin cpu/add.c. */
#include "backend/cuda/device.cuh"

/* y may be a. */
template <typename T> static __global__ void add(const T *a, const T *b, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)((float)a[i] + (float)b[i]);
}

static void run(const struct own *p)
{
    LAUNCH((add<float>), blocks_for(p, p->n, THREADS), THREADS, p, (const float *)p->in[0],
           (const float *)p->in[1], (float *)p->out[0], p->n);
}

extern "C" int cuda_make_add(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, 0, out, err);
}
