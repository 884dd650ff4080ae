/* pointwise_loss - the losses that compare output by output, and their gradient.
 *
 * A block computes a row.  op/pointwise_loss.h has the formulas; the twin is
 * cpu/pointwise_loss.c. */
#include "backend/cuda/loss.cuh"

extern "C" {
#include "op/pointwise_loss.h"
#include "tensor/sample.h"
}

template <typename T> struct pointwise_rows {
    const T *y;
    const int32_t *labels; /* NULL: there are targets */
    const float *targets;
    float *slope; /* may be NULL */
    struct row_loss *result;
    int64_t rows, c;
    enum pointwise kind;
};

template <typename T> static __global__ void cuda_pointwise_loss_rows(struct pointwise_rows<T> p)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *y = p.y + row * p.c;
        const int32_t label = p.labels ? p.labels[row] : 0;
        const bool ignored = p.labels && label == SAMPLE_IGNORED;
        const struct best best = block_best(y, p.c);
        double sum = 0, wrong = 0;

        for (int64_t i = threadIdx.x; i < p.c; i += blockDim.x) {
            const float target = p.targets ? p.targets[row * p.c + i] : i == label ? 1.0f : 0.0f;

            sum += pointwise_value(p.kind, (float)y[i], target);
            wrong += pointwise_agrees((float)y[i], target) ? 0.0 : 1.0;
            if (p.slope)
                p.slope[row * p.c + i] =
                    ignored ? 0.0f : pointwise_slope(p.kind, (float)y[i], target);
        }
        sum = block_sum(sum);
        wrong = block_sum(wrong);
        if (threadIdx.x == 0)
            p.result[row] = {sum / (double)p.c, 1.0f,
                             p.labels && p.kind != POINTWISE_GIVEN
                                 ? best.at == label
                                 : p.kind == POINTWISE_LOGISTIC && wrong == 0,
                             0, ignored};
    }
}

template <typename T, bool is_real> static void cuda_pointwise_loss_run(const struct own *p)
{
    struct pointwise_rows<T> rows = {
    };

    rows.y = (const T *)p->in[POINTWISE_LOSS_Y];
    if (is_real)
        rows.targets = (const float *)p->in[POINTWISE_LOSS_TARGET];
    else
        rows.labels = (const int32_t *)p->in[POINTWISE_LOSS_TARGET];
    rows.slope = (float *)p->out[POINTWISE_LOSS_SLOPE];
    rows.result = (struct row_loss *)p->scratch;
    rows.rows = p->rows;
    rows.c = p->c;
    rows.kind = p->attr.loss.pointwise;
    LAUNCH((cuda_pointwise_loss_rows<T>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p, p->in[POINTWISE_LOSS_METRICS]);
}

extern "C" int cuda_make_pointwise_loss(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    const bool is_real = g->value[n->in[POINTWISE_LOSS_TARGET]].dtype == DTYPE_F32;

    return own_new(
        b, g, n,
        is_real
            ? typed(g, n, cuda_pointwise_loss_run<float, true>,
                    cuda_pointwise_loss_run<bf16_t, true>, cuda_pointwise_loss_run<f16_t, true>)
            : typed(g, n, cuda_pointwise_loss_run<float, false>,
                    cuda_pointwise_loss_run<bf16_t, false>, cuda_pointwise_loss_run<f16_t, false>),
        loss_scratch(cuda_in(g, n, POINTWISE_LOSS_Y)), out, err);
}

/* dy may be slope, if it has slope's type. */
template <typename T>
static __global__ void pointwise_grad(const float *slope, const struct step_scalars *s,
                                      const float *scaler, T *dy, int64_t n, float factor,
                                      float of_loss)
{
    const float scale = loss_scale_of(s, scaler) * of_loss;

    for (int64_t i = grid_first(); i < n; i += grid_stride())
        dy[i] = (T)(slope[i] * factor * scale);
}

template <typename T> static void cuda_pointwise_loss_run_grad(const struct own *p)
{
    LAUNCH((pointwise_grad<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const float *)p->in[POINTWISE_LOSS_GRAD_SLOPE],
           (const struct step_scalars *)p->in[POINTWISE_LOSS_GRAD_SCALARS],
           (const float *)p->in[POINTWISE_LOSS_GRAD_SCALER], (T *)p->out[POINTWISE_LOSS_GRAD_DY],
           p->n, pointwise_factor(p->attr.loss.pointwise, p->c), loss_factor(&p->attr));
}

extern "C" int cuda_make_pointwise_loss_grad(struct cuda *b, const struct graph *g,
                                             const struct node *n, struct kernel **out,
                                             struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_pointwise_loss_run_grad<float>,
                         cuda_pointwise_loss_run_grad<bf16_t>, cuda_pointwise_loss_run_grad<f16_t>),
                   0, out, err);
}
