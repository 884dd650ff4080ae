/* Pools; semantics in op/pool2d.c, twin cpu/pool2d.c.
 *
 * Not by cuDNN, although it has them: all its pools are compiled at run time (libnvrtc, seconds for
 * each shape); for float32 those with an index, and all gradients, come only from an engine that
 * notes tensor cores, which may round (seen with 9.19, building plans for an H200); which of equal
 * elements it takes is not said; and the activation's gradient could not join.  A pool is bound by
 * memory, so nothing is lost.
 *
 * One thread makes one element: of y by walking over its window, of dx by walking over the windows
 * that cover it, in row order.  So no atomics, and neighbouring threads read neighbouring channels.
 * which[i]: the tap (row * kernel columns + column in the window) that the maximum came from. */
#include "backend/cuda/apply.cuh"

struct pool {
    int64_t h, w, c; /* image */
    int64_t oh, ow;  /* output */
    int64_t kernel[2], stride[2], pad[2];
    int count_pad;
    float inverse; /* 1 / whole window */
};

static struct pool pool_of(const struct own *p, const struct shape *x, const struct shape *y)
{
    struct pool v = {};

    v.h = x->dim[1];
    v.w = x->dim[2];
    v.c = x->dim[3];
    v.oh = y->dim[1];
    v.ow = y->dim[2];
    for (int i = 0; i < 2; i++) {
        v.kernel[i] = p->attr.pool.kernel[i];
        v.stride[i] = p->attr.pool.stride[i];
        v.pad[i] = p->attr.pool.pad[i];
    }
    v.count_pad = p->attr.pool.count_pad;
    v.inverse = 1.0f / (float)(v.kernel[0] * v.kernel[1]);
    return v;
}

/* Element i of [N,rows,cols,C]. */
struct place {
    int64_t sample, row, col, channel;

    __device__ place(int64_t i, int64_t rows, int64_t cols, int64_t c)
    {
        channel = i % c;
        i /= c;
        col = i % cols;
        i /= cols;
        row = i % rows;
        sample = i / rows;
    }
};

/* The part of a window that lies in the image: [from,to); tap 0 is at `start`. */
struct span {
    int64_t start, from, to;

    __device__ span(const struct pool &v, int axis, int64_t at, int64_t extent)
    {
        start = at * v.stride[axis] - v.pad[axis];
        from = start > 0 ? start : 0;
        to = start + v.kernel[axis] < extent ? start + v.kernel[axis] : extent;
    }

    __device__ int64_t n() const { return to - from; }
};

template <typename T>
static __global__ void largest(const T *x, T *y, int32_t *which, struct pool v, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const struct place at(i, v.oh, v.ow, v.c);
        const struct span rows(v, 0, at.row, v.h), cols(v, 1, at.col, v.w);
        const T *image = x + at.sample * v.h * v.w * v.c + at.channel;
        float best = (float)image[(rows.from * v.w + cols.from) * v.c];
        int64_t tap = (rows.from - rows.start) * v.kernel[1] + cols.from - cols.start;

        for (int64_t r = rows.from; r < rows.to; r++)
            for (int64_t c = cols.from; c < cols.to; c++) {
                const float value = (float)image[(r * v.w + c) * v.c];

                if (value > best || value != value) {
                    best = value;
                    tap = (r - rows.start) * v.kernel[1] + c - cols.start;
                }
            }
        y[i] = (T)best;
        if (which)
            which[i] = (int32_t)tap;
    }
}

static __device__ inline float share(const struct pool &v, const struct span &rows,
                                     const struct span &cols)
{
    return v.count_pad ? v.inverse : 1.0f / (float)(rows.n() * cols.n());
}

template <typename T> static __global__ void average(const T *x, T *y, struct pool v, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const struct place at(i, v.oh, v.ow, v.c);
        const struct span rows(v, 0, at.row, v.h), cols(v, 1, at.col, v.w);
        const T *image = x + at.sample * v.h * v.w * v.c + at.channel;
        float sum = 0.0f;

        for (int64_t r = rows.from; r < rows.to; r++)
            for (int64_t c = cols.from; c < cols.to; c++)
                sum += (float)image[(r * v.w + c) * v.c];
        y[i] = (T)(sum * share(v, rows, cols));
    }
}

/* The windows along one axis that cover image position `at`: [from,to). */
struct cover {
    int64_t from, to;

    __device__ cover(const struct pool &v, int axis, int64_t at, int64_t n_windows)
    {
        const int64_t padded = at + v.pad[axis], before = padded - v.kernel[axis] + 1;
        const int64_t last = padded / v.stride[axis] + 1;

        from = before <= 0 ? 0 : (before + v.stride[axis] - 1) / v.stride[axis];
        to = last < n_windows ? last : n_windows;
    }
};

/* What the windows give to one element of the image; which NULL: average. */
template <typename T>
static __device__ inline float gathered(const T *dy, const int32_t *which, const struct pool &v,
                                        const struct place &at)
{
    const struct cover rows(v, 0, at.row, v.oh), cols(v, 1, at.col, v.ow);
    const int64_t base = at.sample * v.oh * v.ow * v.c + at.channel;
    float sum = 0.0f;

    for (int64_t r = rows.from; r < rows.to; r++)
        for (int64_t c = cols.from; c < cols.to; c++) {
            const int64_t i = base + (r * v.ow + c) * v.c;
            const struct span wr(v, 0, r, v.h), wc(v, 1, c, v.w);
            const int64_t tap = (at.row - wr.start) * v.kernel[1] + at.col - wc.start;

            if (!which)
                sum += (float)dy[i] * share(v, wr, wc);
            else if (which[i] == tap)
                sum += (float)dy[i];
        }
    return sum;
}

struct whole {
    static __device__ float of(float d, float y)
    {
        (void)y;
        return d;
    }
};

template <int ACT> struct through { /* the activation whose output was y */
    static __device__ float of(float d, float y)
    {
        if (ACT == ACT_RELU)
            return y > 0.0f ? d : 0.0f; /* not d * 0, which an infinite d would make NaN */
        return d * slope<ACT>(y);
    }
};

template <typename T, typename F>
static __global__ void gradient(const T *dy, const int32_t *which, const T *y_act, T *dx,
                                struct pool v, int64_t n)
{
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        const struct place at(i, v.h, v.w, v.c);

        dx[i] = (T)F::of(gathered(dy, which, v, at), y_act ? (float)y_act[i] : 0.0f);
    }
}

template <typename T> static void run(const struct own *p)
{
    const struct pool v = pool_of(p, &p->in_shape[0], &p->out_shape[0]);
    const int64_t n = shape_elements(&p->out_shape[0]), blocks = blocks_for(p, n, THREADS);
    const T *x = (const T *)p->in[0];
    T *y = (T *)p->out[0];

    if (p->attr.pool.kind == POOL_MAX)
        LAUNCH((largest<T>), blocks, THREADS, p, x, y, (int32_t *)p->out[1], v, n);
    else
        LAUNCH((average<T>), blocks, THREADS, p, x, y, v, n);
}

template <typename F, typename T> static void run_grad(const struct own *p)
{
    const struct pool v = pool_of(p, &p->out_shape[0], &p->in_shape[0]);
    const int64_t n = shape_elements(&p->out_shape[0]);

    LAUNCH((gradient<T, F>), blocks_for(p, n, THREADS), THREADS, p, (const T *)p->in[0],
           (const int32_t *)p->in[1], (const T *)p->in[2], (T *)p->out[0], v, n);
}

extern "C" int cuda_make_pool2d(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    return own_new(b, g, n, typed(g, n, run<float>, run<bf16_t>, run<f16_t>), 0, out, err);
}

template <typename F> static run_fn *typed_grad(const struct graph *g, const struct node *n)
{
    return typed(g, n, run_grad<F, float>, run_grad<F, bf16_t>, run_grad<F, f16_t>);
}

/* gelu's gradient does not come from its output: op/pool2d.c refuses it. */
extern "C" int cuda_make_pool2d_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    static run_fn *(*const by_act[])(const struct graph *g, const struct node *n) = {
        typed_grad<whole>, typed_grad<through<ACT_RELU>>, typed_grad<through<ACT_TANH>>,
        typed_grad<through<ACT_SIGMOID>>};

    return own_new(b, g, n, by_act[n->attr.pool.act](g, n), 0, out, err);
}
