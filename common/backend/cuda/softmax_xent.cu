/* softmax_xent - softmax, cross-entropy and its gradient, with a block for each row.
 *
 * The maximum and the sum of exponentials are found in one pass over the row: the sum is rescaled
 * whenever a larger element is found.  A second pass makes prob or the gradient.  A long row has a
 * large block, so that the rows that are under way stay in the GPU's cache between the two passes.
 * Not measured on a GPU yet.
 * op/softmax_xent.c has the formulas; the twin is cpu/softmax_xent.c. */
#include "backend/cuda/loss.cuh"

extern "C" {
#include "tensor/sample.h"
}

enum { LONG_ROW = 8192, MOST_THREADS = 512 };

template <typename T> struct xent_rows {
    const T *logits;
    const int32_t *labels;
    float *prob;                        /* NULL: not wanted */
    T *dlogits;                         /* NULL: not wanted; may be logits */
    const struct step_scalars *scalars; /* for dlogits */
    const float *scaler;                /* for dlogits; may be NULL */
    const float *weight;                /* of the classes; NULL: each weighs 1 */
    double weight_sum;                  /* of all classes */
    struct row_loss *result;
    int64_t rows, c;
    float smoothing, factor; /* factor: of dlogits */
    int counts_top5;
};

/* The part of the row's label in its gradient: dx = prob * whole - w * t of the class. */
struct row_target {
    const float *weight; /* as in xent_rows */
    int32_t label;
    float smoothing, others, whole;
};

static __device__ inline struct row_target row_target_of(const float *weight, double weight_sum,
                                                         int32_t label, int64_t c, float smoothing)
{
    const float others = smoothing / (float)c;
    const float own = weight && label >= 0 && label < c ? weight[label] : 0.0f;
    const float whole = !weight          ? 1.0f
                        : smoothing == 0 ? own
                                         : (1.0f - smoothing) * own + others * (float)weight_sum;

    return {weight, label, smoothing, others, whole};
}

static __device__ inline float slope_at(const struct row_target *r, float prob, int64_t i)
{
    const float t = i == r->label ? 1.0f - r->smoothing + r->others : r->others;

    if (r->label == SAMPLE_IGNORED)
        return 0.0f;
    return r->weight ? prob * r->whole - r->weight[i] * t : prob - t;
}

/* Of some elements of a row: the largest, the sum of exp(x - largest), the sum of x times its
 * class's weight, and the number of elements before the label's (op/softmax_xent.c). */
struct tally {
    struct best best;
    double exps, all, before;
};

/* The row's own values that `count` reads. */
struct counted {
    const float *weight; /* NULL: 1 */
    int32_t label;
    float at_label; /* NaN: the label is no class */
    bool is_smooth, is_ranked;
};

/* The sums that few losses want: of weighted elements, and of elements before the label's. */
static __device__ inline void count_more(struct tally *t, const struct counted *r, float x,
                                         int64_t at)
{
    if (r->is_smooth)
        t->all += r->weight ? (double)r->weight[at] * (double)x : (double)x;
    if (r->is_ranked)
        t->before += at < r->label ? !(x < r->at_label) : at > r->label ? !(x <= r->at_label) : 0;
}

/* Count N elements, of which `at` is the first.  Their exponentials are added in float before they
 * join the sum. */
template <int N>
static __device__ inline void cuda_softmax_xent_count(struct tally *t, const struct counted *r,
                                                      const float (&x)[N], int64_t at)
{
    struct best best = t->best;
    float exps = 0;

    for (int k = 0; k < N; k++)
        if (x[k] > best.value)
            best = {x[k], at + k};
    if (best.value > t->best.value) {
        t->exps *= (double)expf(t->best.value - best.value);
        t->best = best;
    }
    for (int k = 0; k < N; k++) /* both may be -inf */
        exps += x[k] == best.value ? 1.0f : expf(x[k] - best.value);
    t->exps += (double)exps;
    if (r->is_smooth || r->is_ranked)
        for (int k = 0; k < N; k++)
            count_more(t, r, x[k], at + k);
}

/* The tally of the whole row from the threads' tallies; every thread of the block gets it. */
static __device__ struct tally block_tally(struct tally mine, struct best first)
{
    struct tally all;

    all.best = block_best_of(mine.best, first);
    all.exps = block_sum(mine.exps * (double)expf(mine.best.value - all.best.value));
    all.all = block_sum(mine.all);
    all.before = mine.before; /* xent_row adds these up where they are wanted */
    return all;
}

/* The loss -sum of w[c] * t[c] * log prob[c], where t[c] = (1-s)*[c = label] + s/C; `own` is the
 * label's weight, `weights` the sum of w. */
static __device__ inline double smooth_loss(const struct tally *t, double at_label, double own,
                                            double weights, int64_t c, double smoothing)
{
    const double log_sum = (double)t->best.value + log(t->exps), loss = own * (log_sum - at_label);

    return smoothing == 0
               ? loss
               : (1 - smoothing) * loss + smoothing / (double)c * (weights * log_sum - t->all);
}

/* The probabilities and the gradients of N elements, of which `at` is the first, now that their
 * row's maximum and the inverse of its sum are known. */
template <typename T, int N>
static __device__ inline void cuda_softmax_xent_finish(const struct xent_rows<T> *p, float largest,
                                                       float inverse,
                                                       const struct row_target *target,
                                                       const float (&x)[N], int64_t row, int64_t at,
                                                       float scale)
{
    vec<T, N> slope;

    for (int k = 0; k < N; k++) {
        const float prob = expf(x[k] - largest) * inverse;

        if (p->prob)
            p->prob[row * p->c + at + k] = prob;
        slope.v[k] = (T)(slope_at(target, prob, at + k) * scale);
    }
    if (p->dlogits)
        *(vec<T, N> *)(p->dlogits + row * p->c + at) = slope;
}

/* The result of a row, by one thread. */
template <typename T>
static __device__ inline void put_result(const struct xent_rows<T> *p, const struct tally *t,
                                         const struct counted *r, int64_t row)
{
    const bool is_class = r->label >= 0 && r->label < p->c;
    const float own = !p->weight ? 1.0f : is_class ? p->weight[r->label] : 0.0f;
    const double weights = p->weight ? p->weight_sum : (double)p->c;
    const bool is_number = r->at_label == r->at_label;
    struct row_loss *to = &p->result[row];

    to->loss =
        smooth_loss(t, (double)r->at_label, (double)own, weights, p->c, (double)p->smoothing);
    to->weight = own;
    to->correct = t->best.at == r->label;
    to->top5 = p->counts_top5 && is_number && t->before < 5;
    to->ignored = r->label == SAMPLE_IGNORED;
}

/* N elements of x from `at` on; anything if they are beyond the row's end. */
template <typename T, int N>
static __device__ inline vec<T, N> read_ahead(const T *x, int64_t at, int64_t c)
{
    vec<T, N> v = {};

    return at < c ? *(const vec<T, N> *)(x + at) : v;
}

/* A row, N elements at once, of which c is a multiple.  A thread reads its next elements before it
 * works on the last ones. */
template <typename T, int N>
static __device__ void xent_row(const struct xent_rows<T> *p, int64_t row, float scale)
{
    const T *x = p->logits + row * p->c;
    const int64_t c = p->c, step = (int64_t)blockDim.x * N;
    const int32_t label = p->labels[row];
    const struct best first = {(float)x[0], 0};
    const struct counted counted = {p->weight, label,
                                    label >= 0 && label < c ? (float)x[label] : (float)NAN,
                                    p->smoothing != 0, p->counts_top5 != 0};
    const struct row_target target =
        row_target_of(p->weight, p->weight_sum, label, c, p->smoothing);
    struct tally t = {first, 0, 0, 0};
    vec<T, N> next = read_ahead<T, N>(x, (int64_t)threadIdx.x * N, c);
    float here[N], inverse;

    for (int64_t i = (int64_t)threadIdx.x * N; i < c; i += step) {
        load_floats(next.v, here);
        next = read_ahead<T, N>(x, i + step, c);
        cuda_softmax_xent_count(&t, &counted, here, i);
    }
    t = block_tally(t, first);
    if (p->counts_top5)
        t.before = block_sum(t.before);
    if (threadIdx.x == 0)
        put_result(p, &t, &counted, row);
    if (!p->prob && !p->dlogits)
        return;
    inverse = (float)(1 / t.exps);
    next = read_ahead<T, N>(x, (int64_t)threadIdx.x * N, c);
    for (int64_t i = (int64_t)threadIdx.x * N; i < c; i += step) {
        load_floats(next.v, here);
        next = read_ahead<T, N>(x, i + step, c);
        cuda_softmax_xent_finish(p, t.best.value, inverse, &target, here, row, i, scale);
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(MOST_THREADS, 2) softmax_xent_row(struct xent_rows<T> p)
{
    const float scale = p.dlogits ? loss_scale_of(p.scalars, p.scaler) * p.factor : 0.0f;

    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x)
        xent_row<T, N>(&p, row, scale);
}

template <typename T> static struct xent_rows<T> cuda_softmax_xent_rows_of(const struct own *p) {
    struct xent_rows<T> rows = {
    };

    rows.logits = (const T *)p->in[SOFTMAX_XENT_LOGITS];
    rows.labels = (const int32_t *)p->in[SOFTMAX_XENT_LABELS];
    rows.result = (struct row_loss *)p->scratch;
    rows.rows = p->rows;
    rows.c = p->c;
    rows.smoothing = p->attr.loss.label_smoothing;
    rows.factor = loss_factor(&p->attr);
    rows.counts_top5 = p->attr.loss.counts_top5;
    rows.weight = (const float *)p->table;
    rows.weight_sum = p->attr.loss.class_weight_sum;
    return rows;
}

template <typename T>
static void cuda_softmax_xent_launch(const struct own *p, struct xent_rows<T> rows, void *metrics)
{
    enum { N = wide<T>::N };
    const int64_t blocks = blocks_for(p, p->rows, 1);

    if (p->c % N == 0)
        LAUNCH((softmax_xent_row<T, N>), blocks,
               p->c < LONG_ROW ? row_threads(p->c / N) : MOST_THREADS, p, rows);
    else
        LAUNCH((softmax_xent_row<T, 1>), blocks, p->c < LONG_ROW ? row_threads(p->c) : MOST_THREADS,
               p, rows);
    loss_run_count(p, metrics);
}

template <typename T> static void cuda_softmax_xent_run(const struct own *p)
{
    struct xent_rows<T> rows = cuda_softmax_xent_rows_of<T>(p);

    rows.prob = (float *)p->out[SOFTMAX_XENT_PROB];
    cuda_softmax_xent_launch(p, rows, p->in[SOFTMAX_XENT_METRICS]);
}

/* Each of the three operators begins with the logits or prob, which have a column for each class.
 */
static int new_weighted(struct cuda *b, const struct graph *g, const struct node *n, run_fn *run,
                        size_t scratch_bytes, struct kernel **out, struct err *err)
{
    const struct shape *x = cuda_in(g, n, SOFTMAX_XENT_LOGITS);

    return own_new_table(b, g, n, run, scratch_bytes, n->attr.loss.class_weight,
                         (size_t)x->dim[x->n - 1] * sizeof(float), out, err);
}

extern "C" int cuda_make_softmax_xent(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return new_weighted(b, g, n,
                        typed(g, n, cuda_softmax_xent_run<float>, cuda_softmax_xent_run<bf16_t>,
                              cuda_softmax_xent_run<f16_t>),
                        loss_scratch(cuda_in(g, n, SOFTMAX_XENT_LOGITS)), out, err);
}

template <typename T> static void cuda_softmax_xent_run_train(const struct own *p)
{
    struct xent_rows<T> rows = cuda_softmax_xent_rows_of<T>(p);

    rows.dlogits = (T *)p->out[SOFTMAX_XENT_TRAIN_DLOGITS];
    rows.scalars = (const struct step_scalars *)p->in[SOFTMAX_XENT_TRAIN_SCALARS];
    rows.scaler = (const float *)p->in[SOFTMAX_XENT_TRAIN_SCALER];
    cuda_softmax_xent_launch(p, rows, p->in[SOFTMAX_XENT_TRAIN_METRICS]);
}

extern "C" int cuda_make_softmax_xent_train(struct cuda *b, const struct graph *g,
                                            const struct node *n, struct kernel **out,
                                            struct err *err)
{
    return new_weighted(b, g, n,
                        typed(g, n, cuda_softmax_xent_run_train<float>,
                              cuda_softmax_xent_run_train<bf16_t>,
                              cuda_softmax_xent_run_train<f16_t>),
                        loss_scratch(cuda_in(g, n, SOFTMAX_XENT_TRAIN_LOGITS)), out, err);
}

/* dlogits may be prob, if it has prob's type. */
template <typename T>
static __global__ void xent_grad(const float *prob, const int32_t *labels,
                                 const struct step_scalars *s, const float *scaler,
                                 const float *weight, T *dlogits, int64_t n, int64_t c,
                                 float smoothing, double weight_sum, float factor)
{
    const float scale = loss_scale_of(s, scaler) * factor;

    for (struct walk w(c); w.i < n; w.next()) {
        const struct row_target target =
            row_target_of(weight, weight_sum, labels[w.row], c, smoothing);

        dlogits[w.i] = (T)(slope_at(&target, prob[w.i], w.col) * scale);
    }
}

template <typename T> static void cuda_softmax_xent_run_grad(const struct own *p)
{
    LAUNCH((xent_grad<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const float *)p->in[SOFTMAX_XENT_GRAD_PROB],
           (const int32_t *)p->in[SOFTMAX_XENT_GRAD_LABELS],
           (const struct step_scalars *)p->in[SOFTMAX_XENT_GRAD_SCALARS],
           (const float *)p->in[SOFTMAX_XENT_GRAD_SCALER], (const float *)p->table,
           (T *)p->out[SOFTMAX_XENT_GRAD_DLOGITS], p->n, p->c, p->attr.loss.label_smoothing,
           p->attr.loss.class_weight_sum, loss_factor(&p->attr));
}

extern "C" int cuda_make_softmax_xent_grad(struct cuda *b, const struct graph *g,
                                           const struct node *n, struct kernel **out,
                                           struct err *err)
{
    return new_weighted(b, g, n,
                        typed(g, n, cuda_softmax_xent_run_grad<float>,
                              cuda_softmax_xent_run_grad<bf16_t>,
                              cuda_softmax_xent_run_grad<f16_t>),
                        0, out, err);
}

/* The logarithms of the labels' probabilities, with a block for each row. */
template <typename T, int N>
static __global__ void __launch_bounds__(MOST_THREADS, 2)
    label_log_p_row(const T *logits, const int32_t *labels, float *y, float *lse, int64_t rows,
                    int64_t c)
{
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const T *x = logits + row * c;
        const int32_t label = labels[row];
        const struct best first = {(float)x[0], 0};
        const struct counted counted = {NULL, label, (float)NAN, false, false};
        struct tally t = {first, 0, 0, 0};
        float here[N];

        for (int64_t i = (int64_t)threadIdx.x * N; i < c; i += (int64_t)blockDim.x * N) {
            const vec<T, N> next = read_ahead<T, N>(x, i, c);

            load_floats(next.v, here);
            cuda_softmax_xent_count(&t, &counted, here, i);
        }
        t = block_tally(t, first);
        if (threadIdx.x == 0) {
            const double log_sum = (double)t.best.value + log(t.exps);

            y[row] = label == SAMPLE_IGNORED   ? 0.0f
                     : label >= 0 && label < c ? (float)((double)(float)x[label] - log_sum)
                                               : (float)NAN;
            if (lse)
                lse[row] = (float)log_sum;
        }
    }
}

template <typename T> static void label_log_p_run(const struct own *p)
{
    enum { N = wide<T>::N };
    const int64_t blocks = blocks_for(p, p->rows, 1);
    const T *logits = (const T *)p->in[LABEL_LOG_P_LOGITS];
    const int32_t *labels = (const int32_t *)p->in[LABEL_LOG_P_LABELS];
    float *y = (float *)p->out[LABEL_LOG_P_Y], *lse = (float *)p->out[LABEL_LOG_P_LSE];

    if (p->c % N == 0)
        LAUNCH((label_log_p_row<T, N>), blocks,
               p->c < LONG_ROW ? row_threads(p->c / N) : MOST_THREADS, p, logits, labels, y, lse,
               p->rows, p->c);
    else
        LAUNCH((label_log_p_row<T, 1>), blocks, p->c < LONG_ROW ? row_threads(p->c) : MOST_THREADS,
               p, logits, labels, y, lse, p->rows, p->c);
}

extern "C" int cuda_make_label_log_p(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, label_log_p_run<float>, label_log_p_run<bf16_t>, label_log_p_run<f16_t>), 0,
        out, err);
}

/* dlogits may be logits. */
template <typename T>
static __global__ void label_log_p_slopes(const T *logits, const int32_t *labels, const float *lse,
                                          const float *dy, T *dlogits, int64_t n, int64_t c)
{
    for (struct walk w(c); w.i < n; w.next()) {
        const int32_t label = labels[w.row];
        const float prob = expf((float)logits[w.i] - lse[w.row]);

        dlogits[w.i] =
            (T)(label == SAMPLE_IGNORED ? 0.0f
                                        : ((w.col == label ? 1.0f : 0.0f) - prob) * dy[w.row]);
    }
}

template <typename T> static void label_log_p_run_grad(const struct own *p)
{
    LAUNCH((label_log_p_slopes<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const T *)p->in[LABEL_LOG_P_GRAD_LOGITS],
           (const int32_t *)p->in[LABEL_LOG_P_GRAD_LABELS],
           (const float *)p->in[LABEL_LOG_P_GRAD_LSE], (const float *)p->in[LABEL_LOG_P_GRAD_DY],
           (T *)p->out[LABEL_LOG_P_GRAD_DLOGITS], p->n, p->c);
}

extern "C" int cuda_make_label_log_p_grad(struct cuda *b, const struct graph *g,
                                          const struct node *n, struct kernel **out,
                                          struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, label_log_p_run_grad<float>, label_log_p_run_grad<bf16_t>,
                         label_log_p_run_grad<f16_t>),
                   0, out, err);
}
