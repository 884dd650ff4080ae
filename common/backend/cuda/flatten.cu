/* flatten - turns images into rows of features in PyTorch's order (C,H,W); unflatten does the
 * reverse.  Both transpose each sample's matrix.
 *
 * The twin is cpu/flatten.c. */
#include "backend/cuda/transpose.cuh"

template <typename T>
static void cuda_flatten_run(const struct own *p, const void *from, void *to,
                             const struct shape *image, int to_rows)
{
    const int64_t samples = image->dim[0], pixels = image->dim[1] * image->dim[2];
    const int64_t rows = to_rows ? pixels : image->dim[3], cols = to_rows ? image->dim[3] : pixels;

    transpose_all(p, (const T *)from, (T *)to, samples, rows, cols, 0);
}

template <typename T> static void run_flatten(const struct own *p)
{
    cuda_flatten_run<T>(p, p->in[FLATTEN_X], p->out[FLATTEN_Y], &p->in_shape[FLATTEN_X], 1);
}

template <typename T> static void run_unflatten(const struct own *p)
{
    cuda_flatten_run<T>(p, p->in[UNFLATTEN_Y], p->out[UNFLATTEN_X], &p->out_shape[UNFLATTEN_X], 0);
}

extern "C" int cuda_make_flatten(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, run_flatten<float>, run_flatten<bf16_t>, run_flatten<f16_t>), 0, out,
                   err);
}

extern "C" int cuda_make_unflatten(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, run_unflatten<float>, run_unflatten<bf16_t>, run_unflatten<f16_t>),
                   0, out, err);
}
