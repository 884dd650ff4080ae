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

/* adds: y += x - minus; a difference of integers is made before it is rounded. */
template <typename U>
static __global__ void cuda_cast_from_int(const int32_t *x, U *y, int64_t n, int64_t minus,
                                          int adds)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const float v = (float)((int64_t)x[i] - minus);

        y[i] = (U)(adds ? (float)y[i] + v : v);
    }
}

template <typename T> static __global__ void cuda_cast_to_int(const T *x, int32_t *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const float v = (float)x[i];

        y[i] = v != v ? 0 : v >= 0x1p31f ? INT32_MAX : v < -0x1p31f ? INT32_MIN : (int32_t)v;
    }
}

template <typename U> static void cuda_cast_run_from_int(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_cast_from_int<U>), blocks_for(p, p->n, THREADS), THREADS, p,
               (const int32_t *)p->in[CAST_X], (U *)p->out[CAST_Y], p->n,
               (int64_t)p->attr.cast.minus, p->adds != 0);
}

template <typename T> static void cuda_cast_run_to_int(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_cast_to_int<T>), blocks_for(p, p->n, THREADS), THREADS, p,
               (const T *)p->in[CAST_X], (int32_t *)p->out[CAST_Y], p->n);
}

template <typename T, typename U> static void cuda_cast_run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_cast<T, U>), blocks_for(p, p->n, THREADS), THREADS, p,
               (const T *)p->in[CAST_X], (U *)p->out[CAST_Y], p->n, p->adds != 0);
}

template <typename T> static run_fn *cuda_cast_from(enum dtype to)
{
    return to == DTYPE_I32    ? cuda_cast_run_to_int<T>
           : to == DTYPE_F32  ? cuda_cast_run<T, float>
           : to == DTYPE_BF16 ? cuda_cast_run<T, bf16_t>
                              : cuda_cast_run<T, f16_t>;
}

static run_fn *cuda_cast_integers(enum dtype to)
{
    return to == DTYPE_F32    ? cuda_cast_run_from_int<float>
           : to == DTYPE_BF16 ? cuda_cast_run_from_int<bf16_t>
                              : cuda_cast_run_from_int<f16_t>;
}

extern "C" int cuda_make_cast(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const enum dtype t = g->value[n->in[CAST_X]].dtype, to = n->attr.cast.to;

    return own_new(b, g, n,
                   t == DTYPE_I32    ? cuda_cast_integers(to)
                   : t == DTYPE_F32  ? cuda_cast_from<float>(to)
                   : t == DTYPE_BF16 ? cuda_cast_from<bf16_t>(to)
                                     : cuda_cast_from<f16_t>(to),
                   0, out, err);
}
