/* Mean squared error to the one-hot label, a block to a row; formulas in op/mse.c, twin cpu/mse.c.
 */
#include "backend/cuda/loss.cuh"

template <typename T> struct mse_rows {
    const T *y;
    const int32_t *labels;
    T *diff; /* may be NULL */
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
                p.diff[row * p.c + i] = (T)diff;
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0)
            p.result[row] = {sum / (double)p.c, best.at == label, 0};
    }
}

static void run(const struct own *p)
{
    const struct mse_rows<float> rows = {
        (const float *)p->in[0], (const int32_t *)p->in[1], (float *)p->out[0],
            (struct row_loss *)p->scratch, p->rows, p->c
    };

    LAUNCH((mse<float>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p);
}

extern "C" int cuda_make_mse(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, loss_scratch(g, n), out, err);
}

/* dy may be diff. */
template <typename T>
static __global__ void mse_grad(const T *diff, const struct step_scalars *s, T *dy, int64_t n,
                                int64_t c)
{
    const float factor = 2.0f / (float)c, scale = s->loss_scale;

    for (int64_t i = grid_first(); i < n; i += grid_stride())
        dy[i] = (T)((float)diff[i] * factor * scale);
}

static void run_grad(const struct own *p)
{
    LAUNCH((mse_grad<float>), blocks_for(p, p->n, THREADS), THREADS, p, (const float *)p->in[0],
           (const struct step_scalars *)p->in[1], (float *)p->out[0], p->n, p->c);
}

extern "C" int cuda_make_mse_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run_grad, 0, out, err);
}
