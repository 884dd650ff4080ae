/* all_rows - brings a rank's rows to their place among those of all ranks, and takes them from
 * there.
 *
 * op/all_rows.c has the formulas; the twin, cpu/all_rows.c, gives the same bits. */
#include "backend/cuda/device.cuh"

/* x has n elements, `length` in a row. */
template <typename T>
static __global__ void cuda_rows_send(const T *x, int64_t n, int64_t length, double *v,
                                      int64_t n_all, const struct step_scalars *s)
{
    const int64_t start = s ? s->first_position * length : 0;

    for (int64_t i = grid_first(); i < n_all; i += grid_stride())
        v[i] = i >= start && i < start + n ? (double)(float)x[i - start] : 0;
}

/* y = v from this rank's rows on, or without scalars from the first one on. */
template <typename T>
static __global__ void cuda_rows_take(const double *v, T *y, int64_t n, int64_t length,
                                      const struct step_scalars *s)
{
    const int64_t start = s ? s->first_position * length : 0;

    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)(float)v[start + i];
}

static int64_t cuda_rows_length(const struct shape *s)
{
    int64_t length = 1;

    for (int d = 1; d < s->n; d++)
        length *= s->dim[d];
    return length;
}

template <typename T> static void cuda_rows_send_run(const struct own *p)
{
    const int64_t n_all = shape_elements(&p->out_shape[ROWS_SEND_V]);

    if (n_all > 0)
        LAUNCH((cuda_rows_send<T>), blocks_for(p, n_all, THREADS), THREADS, p,
               (const T *)p->in[ROWS_SEND_X], p->n, cuda_rows_length(&p->in_shape[ROWS_SEND_X]),
               (double *)p->out[ROWS_SEND_V], n_all,
               (const struct step_scalars *)p->in[ROWS_SEND_SCALARS]);
}

template <typename T>
static void cuda_rows_take_run(const struct own *p, const void *v, const void *scalars)
{
    const struct shape *y = &p->out_shape[0];
    const int64_t n = shape_elements(y);

    if (n > 0)
        LAUNCH((cuda_rows_take<T>), blocks_for(p, n, THREADS), THREADS, p, (const double *)v,
               (T *)p->out[0], n, cuda_rows_length(y), (const struct step_scalars *)scalars);
}

template <typename T> static void cuda_rows_all_run(const struct own *p)
{
    cuda_rows_take_run<T>(p, p->in[ROWS_ALL_V], NULL);
}

template <typename T> static void cuda_rows_own_run(const struct own *p)
{
    cuda_rows_take_run<T>(p, p->in[ROWS_OWN_V], p->in[ROWS_OWN_SCALARS]);
}

extern "C" int cuda_make_rows_send(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_rows_send_run<float>, cuda_rows_send_run<bf16_t>,
                         cuda_rows_send_run<f16_t>),
                   0, out, err);
}

extern "C" int cuda_make_rows_all(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_rows_all_run<float>, cuda_rows_all_run<bf16_t>, cuda_rows_all_run<f16_t>),
        0, out, err);
}

extern "C" int cuda_make_rows_own(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_rows_own_run<float>, cuda_rows_own_run<bf16_t>, cuda_rows_own_run<f16_t>),
        0, out, err);
}
