/* Sum of squares in double, by chunks that n alone decides: a block to a chunk, then one block adds
 * the chunks.  The sum is finite exactly when every element is (twin cpu/grad_check.c). */
#include "backend/cuda/device.cuh"

enum { CHUNK = 8192 };

static inline int64_t chunks(int64_t n) { return (n + CHUNK - 1) / CHUNK; }

template <typename T> static __global__ void square_chunks(const T *x, int64_t n, double *part)
{
    for (int64_t from = (int64_t)blockIdx.x * CHUNK; from < n; from += (int64_t)gridDim.x * CHUNK) {
        const int64_t to = from + CHUNK < n ? from + CHUNK : n;
        double sum = 0;

        for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x)
            sum += (double)(float)x[i] * (double)(float)x[i];
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            part[from / CHUNK] = sum;
    }
}

static __global__ void add_chunks(const double *part, int64_t n_chunks, double *check)
{
    double sum = 0;

    for (int64_t i = threadIdx.x; i < n_chunks; i += blockDim.x)
        sum += part[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        check[0] = sum;
        check[1] = fabs(sum) <= 1.7976931348623157e308 ? 0.0 : 1.0;
    }
}

template <typename T> static void run(const struct own *p)
{
    double *part = (double *)p->scratch;

    if (p->n > 0)
        LAUNCH((square_chunks<T>), blocks_for(p, chunks(p->n), 1), THREADS, p, (const T *)p->in[0],
               p->n, part);
    LAUNCH(add_chunks, 1, THREADS, p, (const double *)part, chunks(p->n), (double *)p->out[0]);
}

extern "C" int cuda_make_grad_check(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    const size_t scratch = (size_t)chunks(shape_elements(cuda_in(g, n, 0))) * sizeof(double);

    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>), scratch, out, err);
}
