/* matmul - products of matrices in square tiles: a block computes a tile of y, for which tiles of a
 * and b go through shared memory.
 *
 * op/matmul.c has the formula; the twin is cpu/matmul.c. */
#include "backend/cuda/strided.cuh"

enum { TILE = 16 };

/* An operand: op(x) of each matrix is seen by row and column. */
template <typename T> struct matrices {
    const T *x;
    struct strided index; /* of the operand's matrix for each one of y */
    int64_t n, cols;      /* elements of a matrix, and its columns in memory */
    bool transposed;

    __device__ float get(int64_t matrix, int64_t row, int64_t col) const
    {
        return (float)x[matrix * n + (transposed ? col * cols + row : row * cols + col)];
    }
};

struct extents {
    int64_t n, m, k, n_products;
};

template <typename T>
static __global__ void cuda_matmul_multiply(struct matrices<T> a, struct matrices<T> b,
                                            struct extents e, T *y)
{
    SHARED(float, tile_a, TILE *TILE);
    SHARED(float, tile_b, TILE *TILE);
    const int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    const int64_t across = (e.n + TILE - 1) / TILE, down = (e.m + TILE - 1) / TILE;

    for (int64_t t = blockIdx.x; t < across * down * e.n_products; t += gridDim.x) {
        const int64_t product = t / across / down;
        const int64_t i = t / across % down * TILE + row, j = t % across * TILE + col;
        const int64_t in_a = place_of(a.index, product), in_b = place_of(b.index, product);
        float sum = 0.0f;

        for (int64_t k = 0; k < e.k; k += TILE) {
            __syncthreads(); /* the tiles before may still be read */
            tile_a[threadIdx.x] = i < e.m && k + col < e.k ? a.get(in_a, i, k + col) : 0.0f;
            tile_b[threadIdx.x] = k + row < e.k && j < e.n ? b.get(in_b, k + row, j) : 0.0f;
            __syncthreads();
            for (int l = 0; l < TILE; l++)
                sum += tile_a[row * TILE + l] * tile_b[l * TILE + col];
        }
        if (i < e.m && j < e.n)
            y[(product * e.m + i) * e.n + j] = (T)sum;
    }
}

static struct shape cuda_matmul_batch_of(const struct shape *s)
{
    struct shape batch = *s;

    batch.n -= 2;
    return batch;
}

template <typename T>
static struct matrices<T> cuda_matmul_matrices_of(const struct own *p, int in, int transposed) {
    const struct shape *s = &p->in_shape[in];
    const struct shape batch = cuda_matmul_batch_of(s),
                       all = cuda_matmul_batch_of(&p->out_shape[MATMUL_Y]);

    return {(const T *)p->in[in], strided_broadcast(&batch, &all),
            s->dim[s->n - 2] * s->dim[s->n - 1], s->dim[s->n - 1], transposed != 0};
}

template <typename T>
static void cuda_matmul_run(const struct own *p)
{
    const struct shape *y = &p->out_shape[MATMUL_Y], *a = &p->in_shape[MATMUL_A];
    const int64_t m = y->dim[y->n - 2], n = y->dim[y->n - 1];
    const int64_t k = a->dim[a->n - (p->attr.matmul.transpose_a ? 2 : 1)];
    const struct extents e = {n, m, k, shape_elements(y) / (m * n)};

    LAUNCH((cuda_matmul_multiply<T>),
           blocks_for(p, ((m + TILE - 1) / TILE) * ((n + TILE - 1) / TILE) * e.n_products, 1),
           TILE * TILE, p, cuda_matmul_matrices_of<T>(p, MATMUL_A, p->attr.matmul.transpose_a),
           cuda_matmul_matrices_of<T>(p, MATMUL_B, p->attr.matmul.transpose_b), e,
           (T *)p->out[MATMUL_Y]);
}

extern "C" int cuda_make_matmul(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_matmul_run<float>, cuda_matmul_run<bf16_t>, cuda_matmul_run<f16_t>), 0,
        out, err);
}
