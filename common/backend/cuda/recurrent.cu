/* recurrent - the steps of LSTM, GRU and RNN, and their gradient: one kernel for a step, and in the
 * gradient two.
 *
 * A block of the step computes a tile of samples by units: all gates of a unit in one thread, for
 * which tiles of the state and of w go through shared memory.  So the sums of the gates, from which
 * the unit follows, never leave the registers.  The state is in float32, twice: one that a step
 * reads, one that it writes.  cuDNN has whole layers, too; it wants their weights in an order of
 * its own, which would have to be made at each step of the training.
 * op/recurrent.c has the formulas; the twin is cpu/recurrent.c. */
#include "backend/cuda/device.cuh"

enum { TILE = 16, GATES_MAX = 4, SAVED = 4 /* times H: a row of `saved` */ };

/* The sizes and the order of all steps. */
struct layer {
    int64_t N, T, H;
    bool reverse;

    /* The row of sample i at the k-th step. */
    __host__ __device__ int64_t row(int64_t i, int64_t k) const
    {
        return i * T + (reverse ? T - 1 - k : k);
    }
};

template <typename T> struct forward {
    struct layer l;
    const T *gx, *w, *b; /* b may be NULL */
    const float *h;      /* [N,H] before the step; NULL: 0 */
    float *next, *c;     /* [N,H]: h behind it; c, before and behind it */
    T *y, *saved;        /* saved may be NULL */
    float *cell;         /* or NULL */
};

static __device__ inline float cuda_recurrent_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Unit j of sample i; gh has its sums, and b is in them. */
template <int KIND, typename T>
static __device__ void cuda_recurrent_unit(const struct forward<T> &f, int64_t i, int64_t j,
                                           int64_t k, const float (&gh)[GATES_MAX])
{
    enum { G = KIND == RECURRENT_LSTM ? 4 : KIND == RECURRENT_GRU ? 3 : 1 };
    const int64_t H = f.l.H, row = f.l.row(i, k), at = i * H + j;
    float v[GATES_MAX] = {0.0f, 0.0f, 0.0f, 0.0f}, gx[G], h;

    for (int g = 0; g < G; g++)
        gx[g] = (float)f.gx[row * G * H + g * H + j];
    if (KIND == RECURRENT_LSTM) {
        for (int g = 0; g < G; g++)
            v[g] = g == 2 ? tanhf(gx[g] + gh[g]) : cuda_recurrent_sigmoid(gx[g] + gh[g]);
        f.c[at] = v[1] * f.c[at] + v[0] * v[2];
        h = v[3] * tanhf(f.c[at]);
        if (f.cell)
            f.cell[row * H + j] = f.c[at];
    } else if (KIND == RECURRENT_GRU) {
        v[0] = cuda_recurrent_sigmoid(gx[0] + gh[0]);
        v[1] = cuda_recurrent_sigmoid(gx[1 % G] + gh[1]);
        v[2] = tanhf(gx[2 % G] + v[0] * gh[2]);
        v[3] = gh[2];
        h = (1.0f - v[1]) * v[2] + v[1] * (f.h ? f.h[at] : 0.0f);
    } else {
        const float x = gx[0] + gh[0];

        h = KIND == RECURRENT_TANH ? tanhf(x) : x < 0.0f ? 0.0f : x;
    }
    for (int g = 0; g < SAVED && f.saved; g++)
        f.saved[row * SAVED * H + g * H + j] = (T)v[g];
    f.next[at] = h;
    f.y[row * H + j] = (T)h;
}

template <int KIND, typename T>
static __global__ void cuda_recurrent_step(struct forward<T> f, int64_t k)
{
    enum { G = KIND == RECURRENT_LSTM ? 4 : KIND == RECURRENT_GRU ? 3 : 1 };
    SHARED(float, tile_h, TILE *TILE);
    SHARED(float, tile_w, GATES_MAX *TILE *TILE);
    const int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    const int64_t H = f.l.H, across = (H + TILE - 1) / TILE, down = (f.l.N + TILE - 1) / TILE;

    for (int64_t t = blockIdx.x; t < across * down; t += gridDim.x) {
        const int64_t i = t / across * TILE + row, first = t % across * TILE, j = first + col;
        float gh[GATES_MAX] = {0.0f, 0.0f, 0.0f, 0.0f};

        for (int64_t m = 0; f.h && m < H; m += TILE) {
            __syncthreads(); /* the tiles before may still be read */
            tile_h[threadIdx.x] = i < f.l.N && m + col < H ? f.h[i * H + m + col] : 0.0f;
            for (int g = 0; g < G; g++) /* w's rows are units: [unit][m], padded by none */
                tile_w[g * TILE * TILE + threadIdx.x] =
                    first + row < H && m + col < H ? (float)f.w[(g * H + first + row) * H + m + col]
                                                   : 0.0f;
            __syncthreads();
            for (int g = 0; g < G; g++)
                for (int l = 0; l < TILE; l++)
                    gh[g] += tile_h[row * TILE + l] * tile_w[(g * TILE + col) * TILE + l];
        }
        if (i >= f.l.N || j >= H)
            continue;
        for (int g = 0; g < G && f.b; g++)
            gh[g] += (float)f.b[g * H + j];
        cuda_recurrent_unit<KIND, T>(f, i, j, k, gh);
    }
}

/* to = from, or 0 without it */
template <typename T>
static __global__ void cuda_recurrent_begin(const T *from, float *to, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        to[i] = from ? (float)from[i] : 0.0f;
}

template <typename T>
static __global__ void cuda_recurrent_give(const float *from, T *to, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride())
        to[i] = (T)from[i];
}

static struct layer cuda_recurrent_layer(const struct own *p, int w, int64_t rows)
{
    const int64_t length = p->attr.recurrent.length;

    return {rows / length, length, p->in_shape[w].dim[1], p->attr.recurrent.reverse != 0};
}

static int64_t cuda_recurrent_tiles(const struct layer &l)
{
    return ((l.N + TILE - 1) / TILE) * ((l.H + TILE - 1) / TILE);
}

template <int KIND, typename T> static void cuda_recurrent_run(const struct own *p)
{
    const struct layer l = cuda_recurrent_layer(p, RECURRENT_W, p->in_shape[RECURRENT_GX].dim[0]);
    const int64_t n = l.N * l.H;
    float *state[] = {(float *)p->scratch, (float *)p->scratch + n};
    struct forward<T> f = {
        l, (const T *)p->in[RECURRENT_GX], (const T *)p->in[RECURRENT_W],
            (const T *)p->in[RECURRENT_B], NULL, NULL, state[1] + n, (T *)p->out[RECURRENT_Y],
            (T *)p->out[RECURRENT_SAVED], (float *)p->out[RECURRENT_CELL]
    };

    if (p->in[RECURRENT_H0])
        LAUNCH((cuda_recurrent_begin<T>), blocks_for(p, n, THREADS), THREADS, p,
               (const T *)p->in[RECURRENT_H0], state[0], n);
    if (KIND == RECURRENT_LSTM)
        LAUNCH((cuda_recurrent_begin<float>), blocks_for(p, n, THREADS), THREADS, p,
               (const float *)p->in[RECURRENT_C0], f.c, n);
    for (int64_t k = 0; k < l.T; k++) {
        f.h = k > 0 || p->in[RECURRENT_H0] ? state[k % 2] : NULL;
        f.next = state[(k + 1) % 2];
        LAUNCH((cuda_recurrent_step<KIND, T>), blocks_for(p, cuda_recurrent_tiles(l), 1),
               TILE * TILE, p, f, k);
    }
}

template <typename T> static run_fn *cuda_recurrent_run_of(const struct node *n)
{
    switch (n->attr.recurrent.kind) {
    case RECURRENT_LSTM:
        return cuda_recurrent_run<RECURRENT_LSTM, T>;
    case RECURRENT_GRU:
        return cuda_recurrent_run<RECURRENT_GRU, T>;
    case RECURRENT_TANH:
        return cuda_recurrent_run<RECURRENT_TANH, T>;
    default:
        return cuda_recurrent_run<RECURRENT_RELU, T>;
    }
}

/* Bytes of `columns` floats for each sample. */
static size_t cuda_recurrent_scratch(const struct node *n, int64_t rows, int64_t columns)
{
    return (size_t)(rows / n->attr.recurrent.length * columns) * sizeof(float);
}

extern "C" int cuda_make_recurrent(struct cuda *b, const struct graph *g, const struct node *n,
                                   struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_recurrent_run_of<float>(n), cuda_recurrent_run_of<bf16_t>(n),
                         cuda_recurrent_run_of<f16_t>(n)),
                   cuda_recurrent_scratch(n, cuda_in(g, n, RECURRENT_GX)->dim[0],
                                          3 * cuda_in(g, n, RECURRENT_W)->dim[1]),
                   out, err);
}

/* ---- gradient ---- */

template <typename T> struct backward {
    struct layer l;
    const T *w, *y, *saved, *h0, *dy; /* all but w and y may be NULL, as cell, c0 and dcell */
    const float *cell, *c0, *dcell;
    float *dh, *dc; /* [N,H]: of the state behind the step, then of that before it */
    float *sums;    /* [N,G*H]: dgh of the step, before it is rounded */
    T *dgx, *dgh, *prev;
};

/* The units of the k-th step: dgx, dgh and prev; dh becomes its part that goes around w. */
template <int KIND, typename T>
static __global__ void cuda_recurrent_units_grad(struct backward<T> f, int64_t k)
{
    enum { G = KIND == RECURRENT_LSTM ? 4 : KIND == RECURRENT_GRU ? 3 : 1 };
    const int64_t H = f.l.H;

    for (int64_t at = grid_first(); at < f.l.N * H; at += grid_stride()) {
        const int64_t i = at / H, j = at % H, row = f.l.row(i, k);
        const int64_t before = k > 0 ? f.l.row(i, k - 1) * H + j : 0;
        const float h = k > 0 ? (float)f.y[before] : f.h0 ? (float)f.h0[at] : 0.0f;
        const float dh = f.dh[at] + (f.dy ? (float)f.dy[row * H + j] : 0.0f);
        float v[SAVED] = {0.0f, 0.0f, 0.0f, 0.0f}, d[GATES_MAX], around = 0.0f;

        for (int g = 0; g < SAVED && f.saved; g++)
            v[g] = (float)f.saved[row * SAVED * H + g * H + j];
        if (KIND == RECURRENT_LSTM) {
            const float t = tanhf(f.cell[row * H + j]);
            const float c = k > 0 ? f.cell[before] : f.c0 ? f.c0[at] : 0.0f;
            const float dc =
                f.dc[at] + (f.dcell ? f.dcell[row * H + j] : 0.0f) + dh * v[3] * (1.0f - t * t);

            d[0] = dc * v[2] * v[0] * (1.0f - v[0]);
            d[1] = dc * c * v[1] * (1.0f - v[1]);
            d[2] = dc * v[0] * (1.0f - v[2] * v[2]);
            d[3] = dh * t * v[3] * (1.0f - v[3]);
            f.dc[at] = dc * v[1];
        } else if (KIND == RECURRENT_GRU) {
            d[2] = dh * (1.0f - v[1]) * (1.0f - v[2] * v[2]);
            d[1] = dh * (h - v[2]) * v[1] * (1.0f - v[1]);
            d[0] = d[2] * v[3] * v[0] * (1.0f - v[0]);
            around = dh * v[1];
        } else {
            const float y = (float)f.y[row * H + j];

            d[0] = KIND == RECURRENT_TANH ? dh * (1.0f - y * y) : y > 0.0f ? dh : 0.0f;
        }
        f.dh[at] = around;
        for (int g = 0; g < G; g++)
            f.dgx[row * G * H + g * H + j] = (T)d[g];
        if (KIND == RECURRENT_GRU)
            d[2 % G] *= v[0];
        for (int g = 0; g < G; g++) {
            f.sums[(i * G + g) * H + j] = d[g];
            if (f.dgh)
                f.dgh[row * G * H + g * H + j] = (T)d[g];
        }
        if (f.prev)
            f.prev[row * H + j] = (T)h;
    }
}

/* dh += sums w; each element is added up by one thread. */
template <typename T>
static __global__ void cuda_recurrent_product_grad(struct backward<T> f, int64_t GH)
{
    SHARED(float, tile_d, TILE *TILE);
    SHARED(float, tile_w, TILE *TILE);
    const int row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    const int64_t H = f.l.H, across = (H + TILE - 1) / TILE, down = (f.l.N + TILE - 1) / TILE;

    for (int64_t t = blockIdx.x; t < across * down; t += gridDim.x) {
        const int64_t i = t / across * TILE + row, j = t % across * TILE + col;
        float sum = 0.0f;

        for (int64_t m = 0; m < GH; m += TILE) {
            __syncthreads(); /* the tiles before may still be read */
            tile_d[threadIdx.x] = i < f.l.N && m + col < GH ? f.sums[i * GH + m + col] : 0.0f;
            tile_w[threadIdx.x] = m + row < GH && j < H ? (float)f.w[(m + row) * H + j] : 0.0f;
            __syncthreads();
            for (int l = 0; l < TILE; l++)
                sum += tile_d[row * TILE + l] * tile_w[l * TILE + col];
        }
        if (i < f.l.N && j < H)
            f.dh[i * H + j] += sum;
    }
}

template <int KIND, typename T> static void cuda_recurrent_run_grad(const struct own *p)
{
    const struct layer l =
        cuda_recurrent_layer(p, RECURRENT_GRAD_W, p->in_shape[RECURRENT_GRAD_Y].dim[0]);
    const int64_t n = l.N * l.H, GH = p->in_shape[RECURRENT_GRAD_W].dim[0];
    float *dh = (float *)p->scratch, *dc = dh + n;
    const struct backward<T> f = {
        l, (const T *)p->in[RECURRENT_GRAD_W], (const T *)p->in[RECURRENT_GRAD_Y],
            (const T *)p->in[RECURRENT_GRAD_SAVED], (const T *)p->in[RECURRENT_GRAD_H0],
            (const T *)p->in[RECURRENT_GRAD_DY], (const float *)p->in[RECURRENT_GRAD_CELL],
            (const float *)p->in[RECURRENT_GRAD_C0],
            (const float *)p->in[RECURRENT_GRAD_DCELL], dh, dc, dc + n,
            (T *)p->out[RECURRENT_GRAD_DGX], (T *)p->out[RECURRENT_GRAD_DGH],
            (T *)p->out[RECURRENT_GRAD_PREV]
    };

    LAUNCH((cuda_recurrent_begin<float>), blocks_for(p, 2 * n, THREADS), THREADS, p,
           (const float *)NULL, dh, 2 * n);
    for (int64_t k = l.T - 1; k >= 0; k--) {
        LAUNCH((cuda_recurrent_units_grad<KIND, T>), blocks_for(p, n, THREADS), THREADS, p, f, k);
        if (k > 0 || p->out[RECURRENT_GRAD_DH0])
            LAUNCH((cuda_recurrent_product_grad<T>), blocks_for(p, cuda_recurrent_tiles(l), 1),
                   TILE * TILE, p, f, GH);
    }
    if (p->out[RECURRENT_GRAD_DH0])
        LAUNCH((cuda_recurrent_give<T>), blocks_for(p, n, THREADS), THREADS, p, dh,
               (T *)p->out[RECURRENT_GRAD_DH0], n);
    if (p->out[RECURRENT_GRAD_DC0])
        LAUNCH((cuda_recurrent_give<float>), blocks_for(p, n, THREADS), THREADS, p, dc,
               (float *)p->out[RECURRENT_GRAD_DC0], n);
}

template <typename T> static run_fn *cuda_recurrent_run_grad_of(const struct node *n)
{
    switch (n->attr.recurrent.kind) {
    case RECURRENT_LSTM:
        return cuda_recurrent_run_grad<RECURRENT_LSTM, T>;
    case RECURRENT_GRU:
        return cuda_recurrent_run_grad<RECURRENT_GRU, T>;
    case RECURRENT_TANH:
        return cuda_recurrent_run_grad<RECURRENT_TANH, T>;
    default:
        return cuda_recurrent_run_grad<RECURRENT_RELU, T>;
    }
}

extern "C" int cuda_make_recurrent_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                        struct kernel **out, struct err *err)
{
    const int64_t rows = cuda_in(g, n, RECURRENT_GRAD_Y)->dim[0];
    const struct shape *w = cuda_in(g, n, RECURRENT_GRAD_W);

    return own_new(b, g, n,
                   typed(g, n, cuda_recurrent_run_grad_of<float>(n),
                         cuda_recurrent_run_grad_of<bf16_t>(n),
                         cuda_recurrent_run_grad_of<f16_t>(n)),
                   cuda_recurrent_scratch(n, rows, 2 * w->dim[1] + w->dim[0]), out, err);
}
