/* Softmax and cross-entropy in one pass over the logits, a block to a row; formulas in
 * op/softmax_xent.c, twin cpu/softmax_xent.c. */
#include "backend/cuda/loss.cuh"

template <typename T> struct xent_rows {
    const T *logits;
    const int32_t *labels;
    T *prob; /* may be NULL */
    struct row_loss *result;
    int64_t rows, c;
    float smoothing;
};

/* prob = softmax of x; returns the logarithm of the sum of exp(x). */
template <typename T>
static __device__ double softmax_row(const T *x, T *prob, int64_t c, float largest)
{
    double sum = 0;

    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        sum += (double)expf((float)x[i] - largest);
    sum = block_sum(sum);
    if (prob)
        for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
            prob[i] = (T)((double)expf((float)x[i] - largest) / sum);
    return (double)largest + log(sum);
}

/* -sum of t[c] * log prob[c], t = (1-s)*[c = label] + s/C; every thread gets it. */
template <typename T>
static __device__ double smooth_loss(const T *x, int64_t c, int32_t label, double smoothing,
                                     double log_sum)
{
    const double at_label = log_sum - (double)x[label];
    double all = 0;

    if (smoothing == 0)
        return at_label;
    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        all += log_sum - (double)x[i];
    return (1 - smoothing) * at_label + smoothing / (double)c * block_sum(all);
}

template <typename T> static __global__ void xent(struct xent_rows<T> p)
{
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const T *x = p.logits + row * p.c;
        const int32_t label = p.labels[row];
        const struct best best = block_best(x, p.c);
        const double log_sum =
            softmax_row(x, p.prob ? p.prob + row * p.c : (T *)NULL, p.c, best.value);
        const double loss = smooth_loss(x, p.c, label, (double)p.smoothing, log_sum);

        if (threadIdx.x == 0)
            p.result[row] = {loss, best.at == label, 0};
    }
}

static void run(const struct own *p)
{
    struct xent_rows<float> rows = {
    };

    rows.logits = (const float *)p->in[0];
    rows.labels = (const int32_t *)p->in[1];
    rows.prob = (float *)p->out[0];
    rows.result = (struct row_loss *)p->scratch;
    rows.rows = p->rows;
    rows.c = p->c;
    rows.smoothing = p->attr.loss.label_smoothing;
    LAUNCH((xent<float>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p);
}

extern "C" int cuda_make_softmax_xent(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, loss_scratch(g, n), out, err);
}

/* dlogits may be prob. */
template <typename T>
static __global__ void xent_grad(const T *prob, const int32_t *labels, const struct step_scalars *s,
                                 T *dlogits, int64_t n, int64_t c, float smoothing)
{
    const float scale = s->loss_scale, others = smoothing / (float)c;

    for (struct walk w(c); w.i < n; w.next()) {
        const float t = w.col == labels[w.row] ? 1.0f - smoothing + others : others;

        dlogits[w.i] = (T)(((float)prob[w.i] - t) * scale);
    }
}

static void run_grad(const struct own *p)
{
    LAUNCH((xent_grad<float>), blocks_for(p, p->n, THREADS), THREADS, p, (const float *)p->in[0],
           (const int32_t *)p->in[1], (const struct step_scalars *)p->in[2], (float *)p->out[0],
           p->n, p->c, p->attr.loss.label_smoothing);
}

extern "C" int cuda_make_softmax_xent_grad(struct cuda *b, const struct graph *g,
                                           const struct node *n, struct kernel **out,
                                           struct err *err)
{
    return own_new(b, g, n, run_grad, 0, out, err);
}
