/* grad_check - the sum of squares of all gradients in double, and whether one of them is not
 * finite.
 *
 * A block adds up a chunk, then one block adds the chunks' sums.  Only n decides the chunks.  The
 * sum is finite exactly if every element is.
 * op/grad_check.c has the formula; the twin is cpu/grad_check.c. */
#include "backend/cuda/device.cuh"

enum { CHUNK = 4 * THREADS };

#ifndef CHUNKS_MOST /* cudasim sets it low */
#define CHUNKS_MOST 1024
#endif

/* The elements of a chunk: a few for each thread, and more if there would be too many chunks. */
static inline int64_t chunk_of(int64_t n)
{
    return max_i64(CHUNK, round_up_i64(ceil_div_i64(n, CHUNKS_MOST), THREADS));
}

static inline int64_t cuda_grad_check_chunks(int64_t n) { return ceil_div_i64(n, chunk_of(n)); }

template <typename T>
static __global__ void square_chunks(const T *x, int64_t n, int64_t chunk, double *part)
{
    for (int64_t from = blockIdx.x * chunk; from < n; from += gridDim.x * chunk) {
        const int64_t to = from + chunk < n ? from + chunk : n;
        double sum = 0;

        for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x)
            sum += (double)(float)x[i] * (double)(float)x[i];
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            part[from / chunk] = sum;
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

template <typename T> static void cuda_grad_check_run(const struct own *p)
{
    double *part = (double *)p->scratch;

    if (p->n > 0)
        LAUNCH((square_chunks<T>), blocks_for(p, cuda_grad_check_chunks(p->n), 1), THREADS, p,
               (const T *)p->in[GRAD_CHECK_GRAD], p->n, chunk_of(p->n), part);
    LAUNCH(add_chunks, 1, THREADS, p, (const double *)part, cuda_grad_check_chunks(p->n),
           (double *)p->out[GRAD_CHECK_CHECK]);
}

extern "C" int cuda_make_grad_check(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    const size_t scratch =
        (size_t)cuda_grad_check_chunks(shape_elements(cuda_in(g, n, GRAD_CHECK_GRAD))) *
        sizeof(double);

    return own_new(b, g, n,
                   typed(g, n, cuda_grad_check_run<float>, cuda_grad_check_run<bf16_t>,
                         cuda_grad_check_run<f16_t>),
                   scratch, out, err);
}

/* Thread k adds up column k: there are few rows, a row for each bucket. */
static __global__ void add_checks(const double *checks, int64_t n, double *check)
{
    double sum = 0;

    if (grid_first() >= 2)
        return;
    for (int64_t i = grid_first(); i < 2 * n; i += 2)
        sum += checks[i];
    check[grid_first()] = sum;
}

static void cuda_grad_check_run_sum(const struct own *p)
{
    LAUNCH(add_checks, 1, WARP, p, (const double *)p->in[CHECK_SUM_CHECKS], p->rows,
           (double *)p->out[CHECK_SUM_CHECK]);
}

extern "C" int cuda_make_check_sum(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n, cuda_grad_check_run_sum, 0, out, err);
}
