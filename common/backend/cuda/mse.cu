/* mse - the mean squared error to the one-hot label, and its gradient.
 *
 * A block computes a row.  op/mse.c has the formulas; the twin is cpu/mse.c. */
#include "backend/cuda/loss.cuh"

template <typename T> struct mse_rows {
    const T *y;
    const int32_t *labels;
    float *diff; /* may be NULL */
    struct row_loss *result;
    int64_t rows, c;
};

template <typename T> static __global__ void mse(struct mse_rows<T> p)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *y = p.y + row * p.c;
        const int32_t label = p.labels[row];
        const struct best best = block_best(y, p.c);
        double sum = 0;

        for (int64_t i = threadIdx.x; i < p.c; i += blockDim.x) {
            const float diff = (float)y[i] - (i == label ? 1.0f : 0.0f);

            sum += (double)diff * (double)diff;
            if (p.diff)
                p.diff[row * p.c + i] = diff;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            p.result[row] = {sum / (double)p.c, best.at == label, 0};
    }
}

template <typename T> static void run(const struct own *p)
{
    const struct mse_rows<T> rows = {
        (const T *)p->in[MSE_Y], (const int32_t *)p->in[MSE_LABELS], (float *)p->out[MSE_DIFF],
            (struct row_loss *)p->scratch, p->rows, p->c
    };

    LAUNCH((mse<T>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p, p->in[MSE_METRICS]);
}

extern "C" int cuda_make_mse(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>),
                   loss_scratch(cuda_in(g, n, MSE_Y)), out, err);
}

/* dy may be diff, if it has diff's type. */
template <typename T>
static __global__ void mse_grad(const float *diff, const struct step_scalars *s,
                                const float *scaler, T *dy, int64_t n, int64_t c)
{
    const float factor = 2.0f / (float)c, scale = loss_scale_of(s, scaler);

    for (int64_t i = grid_first(); i < n; i += grid_stride())
        dy[i] = (T)(diff[i] * factor * scale);
}

template <typename T> static void run_grad(const struct own *p)
{
    LAUNCH((mse_grad<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const float *)p->in[MSE_GRAD_DIFF],
           (const struct step_scalars *)p->in[MSE_GRAD_SCALARS],
           (const float *)p->in[MSE_GRAD_SCALER], (T *)p->out[MSE_GRAD_DY], p->n, p->c);
}

extern "C" int cuda_make_mse_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run_grad<float>, run_grad<bf16_t>, run_grad<f16_t>), 0, out,
                   err);
}
