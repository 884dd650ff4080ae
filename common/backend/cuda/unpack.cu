/* unpack - multiplies codes by the scales of their blocks, or widens BF16.  Products with a packed
 * weight are no kernels here (FUSE_UNPACK): cuBLASLt reads what cuda_unpack made.
 *
 * op/unpack.c has the formulas; the twin is cpu/unpack.c. */
#include "backend/cuda/device.cuh"
#include "tensor/blocks.h"

template <typename C>
static __device__ inline float unpack_number(const C *codes, const float *scales, int64_t i)
{
    return scales ? (float)codes[i] * scales[i / BLOCKS_LEN] : (float)codes[i];
}

template <typename C, typename T>
static __global__ void cuda_unpack(const C *codes, const float *scales, T *y, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        y[i] = (T)unpack_number(codes, scales, i);
}

template <typename C, typename T>
static __global__ void cuda_unpack_rows(const C *codes, const float *scales, const int32_t *tokens,
                                        const T *position, T *y, int64_t n, int64_t c,
                                        int64_t n_rows, int64_t length)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const int32_t token = tokens[w.row];
        const int64_t row = token < 0 ? 0 : token < n_rows ? token : n_rows - 1;
        const float v = unpack_number(codes, scales, row * c + w.col);

        y[w.i] = (T)(position ? v + (float)position[w.row % length * c + w.col] : v);
    }
}

template <typename C, typename T> static void cuda_unpack_run(const struct own *p)
{
    if (p->n > 0)
        LAUNCH((cuda_unpack<C, T>), blocks_for(p, p->n, THREADS), THREADS, p,
               (const C *)p->in[UNPACK_CODES], (const float *)p->in[UNPACK_SCALES],
               (T *)p->out[UNPACK_Y], p->n);
}

template <typename C, typename T> static void cuda_unpack_run_rows(const struct own *p)
{
    const struct shape *tokens = &p->in_shape[UNPACK_ROWS_TOKENS];
    const int64_t n = shape_elements(&p->out_shape[UNPACK_ROWS_Y]);

    LAUNCH((cuda_unpack_rows<C, T>), blocks_for(p, n, THREADS), THREADS, p,
           (const C *)p->in[UNPACK_ROWS_CODES], (const float *)p->in[UNPACK_ROWS_SCALES],
           (const int32_t *)p->in[UNPACK_ROWS_TOKENS], (const T *)p->in[UNPACK_ROWS_POSITION],
           (T *)p->out[UNPACK_ROWS_Y], n, p->c, p->rows, tokens->dim[tokens->n - 1]);
}

/* The function for y's type. */
template <typename C> static run_fn *unpack_fn(const struct graph *g, const struct node *n)
{
    return n->op == OP_unpack
               ? typed(g, n, cuda_unpack_run<C, float>, cuda_unpack_run<C, bf16_t>,
                       cuda_unpack_run<C, f16_t>)
               : typed(g, n, cuda_unpack_run_rows<C, float>, cuda_unpack_run_rows<C, bf16_t>,
                       cuda_unpack_run_rows<C, f16_t>);
}

static int unpack_new(struct cuda *b, const struct graph *g, const struct node *n,
                      struct kernel **out, struct err *err)
{
    const int is_block = g->value[n->in[UNPACK_CODES]].dtype == DTYPE_I8;

    return own_new(b, g, n, is_block ? unpack_fn<int8_t>(g, n) : unpack_fn<bf16_t>(g, n), 0, out,
                   err);
}

extern "C" int cuda_make_unpack(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return unpack_new(b, g, n, out, err);
}

extern "C" int cuda_make_unpack_rows(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    return unpack_new(b, g, n, out, err);
}

static int unpack_no_kernel(const struct node *n, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s has no kernel", op_get(n->op)->name);
}

extern "C" int cuda_make_unpack_linear(struct cuda *b, const struct graph *g, const struct node *n,
                                       struct kernel **out, struct err *err)
{
    (void)b, (void)g, (void)out;
    return unpack_no_kernel(n, err);
}

extern "C" int cuda_make_unpack_linear_grad_x(struct cuda *b, const struct graph *g,
                                              const struct node *n, struct kernel **out,
                                              struct err *err)
{
    (void)b, (void)g, (void)out;
    return unpack_no_kernel(n, err);
}
