/* Softmax and cross-entropy in one pass over the logits, a block to a row; formulas in
 * op/softmax_xent.c, twin cpu/softmax_xent.c. */
#include "backend/cuda/loss.cuh"

template <typename T> struct xent_rows {
    const T *logits;
    const int32_t *labels;
    float *prob; /* may be NULL */
    struct row_loss *result;
    int64_t rows, c;
    float smoothing;
};

/* prob = softmax of x; returns the logarithm of the sum of exp(x). */
template <typename T>
static __device__ double softmax_row(const T *x, float *prob, int64_t c, float largest)
{
    double sum = 0;

    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        sum += (double)expf((float)x[i] - largest);
    sum = block_sum(sum);
    if (prob)
        for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
            prob[i] = (float)((double)expf((float)x[i] - largest) / sum);
    return (double)largest + log(sum);
}

/* -sum of t[c] * log prob[c], t = (1-s)*[c = label] + s/C; every thread gets it. */
template <typename T>
static __device__ double smooth_loss(const T *x, int64_t c, int32_t label, double smoothing,
                                     double log_sum)
{
    const double at_label = log_sum - (double)(float)x[label];
    double all = 0;

    if (smoothing == 0)
        return at_label;
    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        all += log_sum - (double)(float)x[i];
    return (1 - smoothing) * at_label + smoothing / (double)c * block_sum(all);
}

template <typename T> static __global__ void xent(struct xent_rows<T> p)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *x = p.logits + row * p.c;
        const int32_t label = p.labels[row];
        const struct best best = block_best(x, p.c);
        const double log_sum =
            softmax_row(x, p.prob ? p.prob + row * p.c : (float *)NULL, p.c, best.value);
        const double loss = smooth_loss(x, p.c, label, (double)p.smoothing, log_sum);

        if (threadIdx.x == 0)
            p.result[row] = {loss, best.at == label, 0};
    }
}

template <typename T> static void run(const struct own *p)
{
    struct xent_rows<T> rows = {
    };

    rows.logits = (const T *)p->in[0];
    rows.labels = (const int32_t *)p->in[1];
    rows.prob = (float *)p->out[0];
    rows.result = (struct row_loss *)p->scratch;
    rows.rows = p->rows;
    rows.c = p->c;
    rows.smoothing = p->attr.loss.label_smoothing;
    LAUNCH((xent<T>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p);
}

extern "C" int cuda_make_softmax_xent(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>), loss_scratch(g, n),
                   out, err);
}

/* dlogits may be prob, of its type. */
template <typename T>
static __global__ void xent_grad(const float *prob, const int32_t *labels,
                                 const struct step_scalars *s, const float *scaler, T *dlogits,
                                 int64_t n, int64_t c, float smoothing)
{
    const float scale = loss_scale_of(s, scaler), others = smoothing / (float)c;

    for (struct walk w(c); w.i < n; w.next()) {
        const float t = w.col == labels[w.row] ? 1.0f - smoothing + others : others;

        dlogits[w.i] = (T)((prob[w.i] - t) * scale);
    }
}

template <typename T> static void run_grad(const struct own *p)
{
    LAUNCH((xent_grad<T>), blocks_for(p, p->n, THREADS), THREADS, p, (const float *)p->in[0],
           (const int32_t *)p->in[1], (const struct step_scalars *)p->in[2],
           (const float *)p->in[3], (T *)p->out[0], p->n, p->c, p->attr.loss.label_smoothing);
}

extern "C" int cuda_make_softmax_xent_grad(struct cuda *b, const struct graph *g,
                                           const struct node *n, struct kernel **out,
                                           struct err *err)
{
    return own_new(b, g, n, typed(g, n, run_grad<float>, run_grad<bf16_t>, run_grad<f16_t>), 0, out,
                   err);
}
