/* attention - softmax(q k^T) v, and its gradient, without the T x T matrix.
 *
 * A block computes one row of one head: in the forward pass, and for dq, of the queries; for dk and
 * dv of the keys.  It looks at the other side in tiles of TILE rows: first a thread has one score
 * of the tile, then a thread has one column of the result.  Each sum has a fixed order.  Rows of
 * other documents, and beyond a window, are not looked at.  This is
 * right for every shape, and far from the speed of cuDNN's attention, which flash.c takes where it
 * can.  Not measured on a GPU yet.
 * op/attention.c has the formulas; the twin is cpu/attention.c. */
#include "backend/cuda/draw.cuh"

extern "C" {
#include "backend/cuda/flash.h"
}

enum { TILE = 64 }; /* threads of a block; WARPS_MAX warps at most */

template <typename T> struct heads {
    const T *qkv;
    const T *dy;                        /* gradient only */
    float *lse;                         /* forward: may be NULL */
    T *to;                              /* y, or dqkv */
    float *delta;                       /* gradient only: [rows,n_heads], in the scratch */
    const struct step_scalars *scalars; /* NULL: no dropout */
    const int32_t *starts;              /* NULL: a sample is one document */
    int64_t rows, length, n_heads, d, width, window;
    uint64_t tag;
    float scale, p;
    int causal;
};

/* Row i of head `head` of sample `sample`: its place, and a row of the same head and sample. */
template <typename T> struct place {
    const struct heads<T> *h;
    int64_t sample, head, i;

    __device__ place(const struct heads<T> *heads, int64_t block) : h(heads)
    {
        const int64_t row = block / heads->n_heads;

        head = block % heads->n_heads;
        sample = row / heads->length;
        i = row % heads->length;
    }

    __device__ int64_t row(int64_t of) const { return sample * h->length + of; }

    /* which: 0 q, 1 k, 2 v */
    __device__ int64_t at(int which, int64_t of) const
    {
        return row(of) * 3 * h->width + which * h->width + head * h->d;
    }

    __device__ int64_t at_y(int64_t of) const { return row(of) * h->width + head * h->d; }

    __device__ int64_t at_lse(int64_t of) const { return row(of) * h->n_heads + head; }

    /* m of op/attention.c for query `query` and key `key` */
    __device__ float keep(int64_t query, int64_t key) const
    {
        if (!h->scalars)
            return 1.0f;
        const uint64_t r = (uint64_t)((h->scalars->first_position + sample) * h->n_heads + head);
        const uint64_t e =
            (r * (uint64_t)h->length + (uint64_t)query) * (uint64_t)h->length + (uint64_t)key;
        const struct rng_block words =
            draw(h->scalars->seed, RNG_DROPOUT, h->scalars->step, h->tag + (e >> 2));

        return draw_unit(words.v[e & 3]) >= h->p ? 1.0f / (1.0f - h->p) : 0.0f;
    }
};

template <typename T>
static __device__ inline float cuda_attention_dot(const T *a, const T *b, int64_t d)
{
    float sum = 0;

    for (int64_t e = 0; e < d; e++)
        sum += (float)a[e] * (float)b[e];
    return sum;
}

static __device__ inline float block_max(float v)
{
    const struct best mine = {v, threadIdx.x}, first = {-INFINITY, 0};

    return block_best_of(mine, first).value;
}

/* The first row after the keys that query i sees. */
template <typename T>
static __device__ inline int64_t cuda_attention_end_of(const struct heads<T> *h, int64_t i)
{
    return h->causal ? i + 1 : h->length;
}

/* The first key that query i of the sample sees. */
template <typename T>
static __device__ inline int64_t cuda_attention_first_of(const struct place<T> *w, int64_t i)
{
    const struct heads<T> *h = w->h;
    int64_t first = h->starts ? h->starts[w->row(i)] : 0;

    first = first < 0 ? 0 : first < i ? first : i;
    if (h->window > 0 && first < i - h->window + 1)
        first = i - h->window + 1;
    return h->causal ? first : 0;
}

/* ---- forward ---- */

/* The largest score of the row, and the sum of e^(score - largest). */
template <typename T>
static __device__ void cuda_attention_weigh(const struct place<T> *w, float *largest, double *total)
{
    const struct heads<T> *h = w->h;
    const T *q = h->qkv + w->at(0, w->i);
    const int64_t begin = cuda_attention_first_of(w, w->i), end = cuda_attention_end_of(h, w->i);
    float most = -INFINITY;
    double sum = 0;

    for (int64_t j = begin + threadIdx.x; j < end; j += blockDim.x)
        most = fmaxf(most, cuda_attention_dot(q, h->qkv + w->at(1, j), h->d) * h->scale);
    most = block_max(most);
    for (int64_t j = begin + threadIdx.x; j < end; j += blockDim.x)
        sum += (double)expf(cuda_attention_dot(q, h->qkv + w->at(1, j), h->d) * h->scale - most);
    *largest = most;
    *total = block_sum(sum);
}

template <typename T> static __global__ void cuda_attention_attend(struct heads<T> h)
{
    SHARED(float, weight, TILE);

    for (int64_t b = blockIdx.x; b < h.rows * h.n_heads; b += gridDim.x) {
        const struct place<T> w(&h, b);
        const T *q = h.qkv + w.at(0, w.i);
        const int64_t begin = cuda_attention_first_of(&w, w.i),
                      end = cuda_attention_end_of(&h, w.i);
        float most;
        double total;

        cuda_attention_weigh(&w, &most, &total);
        if (threadIdx.x == 0 && h.lse)
            h.lse[w.at_lse(w.i)] = most + logf((float)total);
        for (int64_t e = threadIdx.x; e - threadIdx.x < h.d; e += blockDim.x) {
            float sum = 0;

            for (int64_t first = begin; first < end; first += TILE) {
                const int64_t j = first + threadIdx.x;

                __syncthreads(); /* the tile before may still be read */
                if (j < end)
                    weight[threadIdx.x] =
                        (float)((double)expf(cuda_attention_dot(q, h.qkv + w.at(1, j), h.d) *
                                                 h.scale -
                                             most) /
                                total) *
                        w.keep(w.i, j);
                __syncthreads();
                for (int64_t k = first; e < h.d && k < end && k < first + TILE; k++)
                    sum += weight[k - first] * (float)h.qkv[w.at(2, k) + e];
            }
            if (e < h.d)
                h.to[w.at_y(w.i) + e] = (T)sum;
        }
    }
}

/* ---- the gradient ---- */

/* p and dp of query i and key j. */
template <typename T> struct pair {
    float p, dp, keep;

    __device__ pair(const struct place<T> *w, int64_t i, int64_t j)
    {
        const struct heads<T> *h = w->h;

        keep = w->keep(i, j);
        p = expf(cuda_attention_dot(h->qkv + w->at(0, i), h->qkv + w->at(1, j), h->d) * h->scale -
                 h->lse[w->at_lse(i)]);
        dp = cuda_attention_dot(h->dy + w->at_y(i), h->qkv + w->at(2, j), h->d) * keep;
    }
};

/* delta = sum of p * dp over the keys of a query, and dq. */
template <typename T> static __global__ void grad_queries(struct heads<T> h)
{
    SHARED(float, ds, TILE);

    for (int64_t b = blockIdx.x; b < h.rows * h.n_heads; b += gridDim.x) {
        const struct place<T> w(&h, b);
        const int64_t begin = cuda_attention_first_of(&w, w.i),
                      end = cuda_attention_end_of(&h, w.i);
        double sum = 0;
        float delta;

        for (int64_t j = begin + threadIdx.x; j < end; j += blockDim.x) {
            const struct pair<T> at(&w, w.i, j);

            sum += (double)(at.p * at.dp);
        }
        delta = (float)block_sum(sum);
        if (threadIdx.x == 0)
            h.delta[w.at_lse(w.i)] = delta;
        for (int64_t e = threadIdx.x; e - threadIdx.x < h.d; e += blockDim.x) {
            float dq = 0;

            for (int64_t first = begin; first < end; first += TILE) {
                const int64_t j = first + threadIdx.x;

                __syncthreads(); /* the tile before may still be read */
                if (j < end) {
                    const struct pair<T> at(&w, w.i, j);

                    ds[threadIdx.x] = at.p * (at.dp - delta) * h.scale;
                }
                __syncthreads();
                for (int64_t k = first; e < h.d && k < end && k < first + TILE; k++)
                    dq += ds[k - first] * (float)h.qkv[w.at(1, k) + e];
            }
            if (e < h.d)
                h.to[w.at(0, w.i) + e] = (T)dq;
        }
    }
}

/* dk and dv of a key, from all queries that see it.  Those that do not have the weight 0. */
template <typename T> static __global__ void grad_keys(struct heads<T> h)
{
    SHARED(float, ds, TILE);
    SHARED(float, weight, TILE);

    for (int64_t b = blockIdx.x; b < h.rows * h.n_heads; b += gridDim.x) {
        const struct place<T> w(&h, b);
        const int64_t begin = h.causal ? w.i : 0;

        for (int64_t e = threadIdx.x; e - threadIdx.x < h.d; e += blockDim.x) {
            float dk = 0, dv = 0;

            for (int64_t first = begin; first < h.length; first += TILE) {
                const int64_t i = first + threadIdx.x;

                __syncthreads(); /* the tile before may still be read */
                if (i < h.length && cuda_attention_first_of(&w, i) <= w.i) {
                    const struct pair<T> at(&w, i, w.i);

                    ds[threadIdx.x] = at.p * (at.dp - h.delta[w.at_lse(i)]) * h.scale;
                    weight[threadIdx.x] = at.p * at.keep;
                } else {
                    ds[threadIdx.x] = weight[threadIdx.x] = 0;
                }
                __syncthreads();
                for (int64_t k = first; e < h.d && k < h.length && k < first + TILE; k++) {
                    dk += ds[k - first] * (float)h.qkv[w.at(0, k) + e];
                    dv += weight[k - first] * (float)h.dy[w.at_y(k) + e];
                }
            }
            if (e < h.d) {
                h.to[w.at(1, w.i) + e] = (T)dk;
                h.to[w.at(2, w.i) + e] = (T)dv;
            }
        }
    }
}

/* ---- the kernels ---- */

template <typename T> static struct heads<T> heads_of(const struct own *p) {
    struct heads<T> h = {
    };

    h.qkv = (const T *)p->in[ATTENTION_QKV];
    h.rows = p->rows;
    h.length = p->attr.attention.length;
    h.n_heads = p->attr.attention.heads;
    h.width = p->c / 3;
    h.d = h.width / h.n_heads;
    h.tag = (uint64_t)p->attr.attention.tag << 40;
    h.scale = 1.0f / sqrtf((float)h.d);
    h.p = p->attr.attention.p;
    h.causal = p->attr.attention.causal;
    h.window = p->attr.attention.window;
    return h;
}

template <typename T>
static void cuda_attention_run(const struct own *p)
{
    struct heads<T> h = heads_of<T>(p);

    h.scalars = (const struct step_scalars *)p->in[ATTENTION_SCALARS];
    h.starts = (const int32_t *)p->in[ATTENTION_STARTS];
    h.lse = (float *)p->out[ATTENTION_LSE];
    h.to = (T *)p->out[ATTENTION_Y];
    LAUNCH((cuda_attention_attend<T>), blocks_for(p, h.rows * h.n_heads, 1), TILE, p, h);
}

/* Warn once if a node is left to these kernels whose samples are long: a thread reads a whole row
 * of keys for each pair of rows, and no matrix unit is used. */
static void warn_if_slow(struct cuda *b, const struct node *n)
{
    enum { LONG_SAMPLE = 256 };

    if (b->has_warned || n->attr.attention.length < LONG_SAMPLE || !b->choices.warn)
        return;
    b->has_warned = 1;
    b->choices.warn(
        b->choices.warn_arg,
        n->attr.attention.window > 0 || n->in[ATTENTION_STARTS] != NO_VALUE
            ? "attention within packed documents has no fast kernel on GPUs: training may take "
              "longer than with data.pack: false"
        : n->attr.attention.p > 0
            ? "attention with dropout has no fast kernel on GPUs: training takes many "
              "times as long as with model.dropout: 0"
            : "attention in float32, or of a shape that cuDNN has no plan for, has no "
              "fast kernel on GPUs: precision: bfloat16 and heads of 64 or 128 have one");
}

extern "C" int cuda_make_attention(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    const int rc = flash_new(b, g, n, out, err);

    if (rc != FLASH_NONE)
        return rc;
    warn_if_slow(b, n);
    return own_new(b, g, n,
                   typed(g, n, cuda_attention_run<float>, cuda_attention_run<bf16_t>,
                         cuda_attention_run<f16_t>),
                   0, out, err);
}

template <typename T> static void cuda_attention_run_grad(const struct own *p)
{
    struct heads<T> h = heads_of<T>(p);

    h.scalars = (const struct step_scalars *)p->in[ATTENTION_GRAD_SCALARS];
    h.starts = (const int32_t *)p->in[ATTENTION_GRAD_STARTS];
    h.dy = (const T *)p->in[ATTENTION_GRAD_DY];
    h.lse = (float *)p->in[ATTENTION_GRAD_LSE];
    h.to = (T *)p->out[ATTENTION_GRAD_DQKV];
    h.delta = (float *)p->scratch;
    LAUNCH((grad_queries<T>), blocks_for(p, h.rows * h.n_heads, 1), TILE, p, h);
    LAUNCH((grad_keys<T>), blocks_for(p, h.rows * h.n_heads, 1), TILE, p, h);
}

extern "C" int cuda_make_attention_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    const int rc = flash_new(b, g, n, out, err);

    return rc != FLASH_NONE
               ? rc
               : own_new(b, g, n,
                         typed(g, n, cuda_attention_run_grad<float>,
                               cuda_attention_run_grad<bf16_t>, cuda_attention_run_grad<f16_t>),
                         (size_t)shape_elements(cuda_in(g, n, ATTENTION_GRAD_LSE)) * sizeof(float),
                         out, err);
}
