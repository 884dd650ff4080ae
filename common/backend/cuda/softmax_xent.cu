/* softmax_xent - softmax, cross-entropy and its gradient, with a block for each row.
 *
 * The maximum and the sum of exponentials are found in one pass: the sum is rescaled whenever a
 * larger element is found.  A thread keeps its first KEPT elements in registers, so the first
 * KEPT * THREADS elements of a row are read once; elements beyond are read again for prob or the
 * gradient.  Not measured on a GPU yet.
 * op/softmax_xent.c has the formulas; the twin is cpu/softmax_xent.c. */
#include "backend/cuda/loss.cuh"

extern "C" {
#include "tensor/sample.h"
}

enum { KEPT = 8 };

template <typename T> struct xent_rows {
    const T *logits;
    const int32_t *labels;
    float *prob;                        /* NULL: not wanted */
    T *dlogits;                         /* NULL: not wanted; may be logits */
    const struct step_scalars *scalars; /* for dlogits */
    const float *scaler;                /* for dlogits; may be NULL */
    struct row_loss *result;
    int64_t rows, c;
    float smoothing;
};

/* Of some elements of a row: the largest, the sum of exp(x - largest), and the sum of x. */
struct tally {
    struct best best;
    double exps, all;
};

static __device__ inline void count(struct tally *t, float x, int64_t at)
{
    t->all += (double)x;
    if (x > t->best.value) {
        t->exps = t->exps * (double)expf(t->best.value - x) + 1;
        t->best = {x, at};
    } else if (x == t->best.value) { /* both may be -inf */
        t->exps += 1;
        t->best.at = at < t->best.at ? at : t->best.at;
    } else {
        t->exps += (double)expf(x - t->best.value);
    }
}

/* The tally of the whole row from the threads' tallies; every thread of the block gets it. */
static __device__ struct tally block_tally(struct tally mine, struct best first)
{
    struct tally all;

    all.best = block_best_of(mine.best, first);
    all.exps = block_sum(mine.exps * (double)expf(mine.best.value - all.best.value));
    all.all = block_sum(mine.all);
    return all;
}

/* The loss -sum of t[c] * log prob[c], where t[c] = (1-s)*[c = label] + s/C. */
static __device__ inline double smooth_loss(const struct tally *t, double at_label, int64_t c,
                                            double smoothing)
{
    const double log_sum = (double)t->best.value + log(t->exps), loss = log_sum - at_label;

    return smoothing == 0
               ? loss
               : (1 - smoothing) * loss + smoothing / (double)c * ((double)c * log_sum - t->all);
}

/* The probability and the gradient of one element, now that its row's maximum and sum are known. */
template <typename T>
static __device__ inline void finish(const struct xent_rows<T> *p, const struct tally *t, float x,
                                     int64_t row, int64_t i, float scale)
{
    const float prob = (float)((double)expf(x - t->best.value) / t->exps);
    const float others = p->smoothing / (float)p->c;
    const float target = i == p->labels[row] ? 1.0f - p->smoothing + others : others;

    if (p->prob)
        p->prob[row * p->c + i] = prob;
    if (p->dlogits)
        p->dlogits[row * p->c + i] =
            p->labels[row] == SAMPLE_IGNORED ? (T)0.0f : (T)((prob - target) * scale);
}

template <typename T>
static __device__ void xent_row(const struct xent_rows<T> *p, int64_t row, float scale)
{
    const T *x = p->logits + row * p->c;
    const int64_t c = p->c, beyond = threadIdx.x + (int64_t)KEPT * blockDim.x;
    const int32_t label = p->labels[row];
    const struct best first = {(float)x[0], 0};
    const double at_label = label >= 0 && label < c ? (double)(float)x[label] : (double)NAN;
    struct tally t = {first, 0, 0};
    float kept[KEPT];

    for (int k = 0; k < KEPT; k++) {
        const int64_t i = threadIdx.x + (int64_t)k * blockDim.x;

        kept[k] = i < c ? (float)x[i] : 0.0f;
        if (i < c)
            count(&t, kept[k], i);
    }
    for (int64_t i = beyond; i < c; i += blockDim.x)
        count(&t, (float)x[i], i);
    t = block_tally(t, first);
    if (threadIdx.x == 0)
        p->result[row] = {smooth_loss(&t, at_label, c, (double)p->smoothing), t.best.at == label,
                          label == SAMPLE_IGNORED};
    if (!p->prob && !p->dlogits)
        return;
    for (int k = 0; k < KEPT; k++) {
        const int64_t i = threadIdx.x + (int64_t)k * blockDim.x;

        if (i < c)
            finish(p, &t, kept[k], row, i, scale);
    }
    for (int64_t i = beyond; i < c; i += blockDim.x)
        finish(p, &t, (float)x[i], row, i, scale);
}

template <typename T> static __global__ void xent(struct xent_rows<T> p)
{
    const float scale = p.dlogits ? loss_scale_of(p.scalars, p.scaler) : 0.0f;

    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x)
        xent_row(&p, row, scale);
}

template <typename T> static struct xent_rows<T> rows_of(const struct own *p) {
    struct xent_rows<T> rows = {
    };

    rows.logits = (const T *)p->in[SOFTMAX_XENT_LOGITS];
    rows.labels = (const int32_t *)p->in[SOFTMAX_XENT_LABELS];
    rows.result = (struct row_loss *)p->scratch;
    rows.rows = p->rows;
    rows.c = p->c;
    rows.smoothing = p->attr.loss.label_smoothing;
    return rows;
}

template <typename T>
static void launch(const struct own *p, struct xent_rows<T> rows, void *metrics)
{
    LAUNCH((xent<T>), blocks_for(p, p->rows, 1), row_threads(p->c), p, rows);
    loss_run_count(p, metrics);
}

template <typename T> static void run(const struct own *p)
{
    struct xent_rows<T> rows = rows_of<T>(p);

    rows.prob = (float *)p->out[SOFTMAX_XENT_PROB];
    launch(p, rows, p->in[SOFTMAX_XENT_METRICS]);
}

extern "C" int cuda_make_softmax_xent(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>),
                   loss_scratch(cuda_in(g, n, SOFTMAX_XENT_LOGITS)), out, err);
}

template <typename T> static void run_train(const struct own *p)
{
    struct xent_rows<T> rows = rows_of<T>(p);

    rows.dlogits = (T *)p->out[SOFTMAX_XENT_TRAIN_DLOGITS];
    rows.scalars = (const struct step_scalars *)p->in[SOFTMAX_XENT_TRAIN_SCALARS];
    rows.scaler = (const float *)p->in[SOFTMAX_XENT_TRAIN_SCALER];
    launch(p, rows, p->in[SOFTMAX_XENT_TRAIN_METRICS]);
}

extern "C" int cuda_make_softmax_xent_train(struct cuda *b, const struct graph *g,
                                            const struct node *n, struct kernel **out,
                                            struct err *err)
{
    return own_new(b, g, n, typed(g, n, run_train<float>, run_train<bf16_t>, run_train<f16_t>),
                   loss_scratch(cuda_in(g, n, SOFTMAX_XENT_TRAIN_LOGITS)), out, err);
}

/* dlogits may be prob, if it has prob's type. */
template <typename T>
static __global__ void xent_grad(const float *prob, const int32_t *labels,
                                 const struct step_scalars *s, const float *scaler, T *dlogits,
                                 int64_t n, int64_t c, float smoothing)
{
    const float scale = loss_scale_of(s, scaler), others = smoothing / (float)c;

    for (struct walk w(c); w.i < n; w.next()) {
        const int32_t label = labels[w.row];
        const float t = w.col == label ? 1.0f - smoothing + others : others;

        dlogits[w.i] = label == SAMPLE_IGNORED ? (T)0.0f : (T)((prob[w.i] - t) * scale);
    }
}

template <typename T> static void run_grad(const struct own *p)
{
    LAUNCH((xent_grad<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const float *)p->in[SOFTMAX_XENT_GRAD_PROB],
           (const int32_t *)p->in[SOFTMAX_XENT_GRAD_LABELS],
           (const struct step_scalars *)p->in[SOFTMAX_XENT_GRAD_SCALARS],
           (const float *)p->in[SOFTMAX_XENT_GRAD_SCALER], (T *)p->out[SOFTMAX_XENT_GRAD_DLOGITS],
           p->n, p->c, p->attr.loss.label_smoothing);
}

extern "C" int cuda_make_softmax_xent_grad(struct cuda *b, const struct graph *g,
                                           const struct node *n, struct kernel **out,
                                           struct err *err)
{
    return own_new(b, g, n, typed(g, n, run_grad<float>, run_grad<bf16_t>, run_grad<f16_t>), 0, out,
                   err);
}
