/* view - permute, slice, expand and concat: elements are moved as numbers of their size.
 *
 * op/view.c has the formulas; the twin is cpu/view.c. */
#include "backend/cuda/strided.cuh"

/* y[i] = the element of x that s names for i. */
template <typename T>
static __global__ void cuda_view_gather(const T *x, struct strided s, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = x[place_of(s, i)];
}

/* The element of y that s names for i = x[i]. */
template <typename T>
static __global__ void cuda_view_scatter(const T *x, struct strided s, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[place_of(s, i)] = x[i];
}

template <typename T> static void gather_all(const struct own *p, const struct strided &s)
{
    const int64_t n = shape_elements(&p->out_shape[0]);

    if (n > 0)
        LAUNCH((cuda_view_gather<T>), blocks_for(p, n, THREADS), THREADS, p, (const T *)p->in[0], s,
               (T *)p->out[0], n);
}

template <typename T> static void scatter_all(const struct own *p, int in, const struct strided &s)
{
    const int64_t n = shape_elements(&p->in_shape[in]);

    if (n > 0)
        LAUNCH((cuda_view_scatter<T>), blocks_for(p, n, THREADS), THREADS, p, (const T *)p->in[in],
               s, (T *)p->out[0], n);
}

template <typename T> static void cuda_view_run_permute(const struct own *p)
{
    gather_all<T>(p, strided_permute(&p->in_shape[PERMUTE_X], p->attr.permute.order));
}

template <typename T> static void cuda_view_run_slice(const struct own *p)
{
    gather_all<T>(p, strided_slice(&p->in_shape[SLICE_X], &p->out_shape[SLICE_Y], p->attr.slice.dim,
                                   p->attr.slice.start, p->attr.slice.step));
}

template <typename T> static void cuda_view_run_expand(const struct own *p)
{
    gather_all<T>(p, strided_broadcast(&p->in_shape[EXPAND_X], &p->out_shape[EXPAND_Y]));
}

template <typename T> static void cuda_view_run_slice_grad(const struct own *p)
{
    (void)cudaMemsetAsync(p->out[SLICE_GRAD_DX], 0, p->out_bytes[SLICE_GRAD_DX], p->cuda->stream);
    scatter_all<T>(p, SLICE_GRAD_DY,
                   strided_slice(&p->out_shape[SLICE_GRAD_DX], &p->in_shape[SLICE_GRAD_DY],
                                 p->attr.slice.dim, p->attr.slice.start, p->attr.slice.step));
}

template <typename T> static void cuda_view_run_concat(const struct own *p)
{
    const int dim = p->attr.concat.dim;
    int64_t at = 0;

    for (int i = 0; i < NODE_MAX_IN; i++)
        if (p->in_shape[i].n >= 0) {
            scatter_all<T>(p, i,
                           strided_slice(&p->out_shape[CONCAT_Y], &p->in_shape[i], dim, at, 1));
            at += p->in_shape[i].dim[dim];
        }
}

/* The function for the size of the node's elements. */
static run_fn *cuda_view_sized(const struct graph *g, const struct node *n, run_fn *bytes2,
                               run_fn *bytes4, run_fn *bytes8)
{
    const size_t size = dtype_size(g->value[n->in[0]].dtype);

    return size == 2 ? bytes2 : size == 4 ? bytes4 : bytes8;
}

extern "C" int cuda_make_permute(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   cuda_view_sized(g, n, cuda_view_run_permute<uint16_t>,
                                   cuda_view_run_permute<uint32_t>,
                                   cuda_view_run_permute<uint64_t>),
                   0, out, err);
}

extern "C" int cuda_make_slice(struct cuda *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   cuda_view_sized(g, n, cuda_view_run_slice<uint16_t>,
                                   cuda_view_run_slice<uint32_t>, cuda_view_run_slice<uint64_t>),
                   0, out, err);
}

extern "C" int cuda_make_slice_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   cuda_view_sized(g, n, cuda_view_run_slice_grad<uint16_t>,
                                   cuda_view_run_slice_grad<uint32_t>,
                                   cuda_view_run_slice_grad<uint64_t>),
                   0, out, err);
}

extern "C" int cuda_make_expand(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   cuda_view_sized(g, n, cuda_view_run_expand<uint16_t>,
                                   cuda_view_run_expand<uint32_t>, cuda_view_run_expand<uint64_t>),
                   0, out, err);
}

extern "C" int cuda_make_concat(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   cuda_view_sized(g, n, cuda_view_run_concat<uint16_t>,
                                   cuda_view_run_concat<uint32_t>, cuda_view_run_concat<uint64_t>),
                   0, out, err);
}
