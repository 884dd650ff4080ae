/* pool2d - maximum and average pools, and their gradients.
 *
 * cuDNN has pools, too, but they are not used, for four reasons.  They are all compiled at run time
 * (libnvrtc, seconds for each shape).  For float32, pools with an index and all gradients come only
 * from an engine that notes tensor cores, which may round (seen with 9.19, building plans for an
 * H200).  cuDNN does not say which of equal elements it takes.  And the activation's gradient could
 * not be computed in the same pass.  Memory limits the speed of a pool, so nothing is lost.
 *
 * A thread makes V neighbouring channels of one place.  For y it walks over the place's window, for
 * dx over the windows that cover the place, in row order.  So there are no atomics, and
 * neighbouring threads read neighbouring channels.  Finding the place would take longer than the
 * memory does, unless indices have 32 bits, nothing is divided and several channels share the
 * place.  So a launch does only as many samples as 32 bits can number.
 * which[i] is the tap (row * kernel columns + column in the window) of the maximum.
 * op/pool2d.c has the formulas; the twin is cpu/pool2d.c. */
#include "backend/cuda/apply.cuh"

struct pool {
    int h, w, c; /* the image; c counts vectors of V channels */
    int oh, ow;  /* the output's rows and columns */
    int kernel[2], stride[2], pad[2];
    struct divisor by_stride[2];
    struct divisor by_channels, by_cols, by_rows; /* extents of what the threads make: y or dx */
    int count_pad;
    float inverse; /* 1 / number of elements of a whole window */
};

static struct pool pool_of(const struct own *p, const struct shape *x, const struct shape *y,
                           const struct shape *made, int width)
{
    struct pool v = {};

    v.h = (int)x->dim[1];
    v.w = (int)x->dim[2];
    v.c = (int)x->dim[3] / width;
    v.oh = (int)y->dim[1];
    v.ow = (int)y->dim[2];
    for (int i = 0; i < 2; i++) {
        v.kernel[i] = p->attr.pool.kernel[i];
        v.stride[i] = p->attr.pool.stride[i];
        v.pad[i] = p->attr.pool.pad[i];
        v.by_stride[i] = divisor_of(v.stride[i]);
    }
    v.by_channels = divisor_of(v.c);
    v.by_cols = divisor_of(made->dim[2]);
    v.by_rows = divisor_of(made->dim[1]);
    v.count_pad = p->attr.pool.count_pad;
    v.inverse = 1.0f / (float)((int64_t)v.kernel[0] * v.kernel[1]);
    return v;
}

/* The place of vector i of y or dx. */
struct place {
    int sample, row, col, channel;

    __device__ place(const struct pool &v, uint32_t i)
    {
        const uint32_t pixel = v.by_channels.quotient(i), line = v.by_cols.quotient(pixel);
        const uint32_t all = v.by_rows.quotient(line);

        channel = (int)(i - pixel * v.by_channels.by);
        col = (int)(pixel - line * v.by_cols.by);
        row = (int)(line - all * v.by_rows.by);
        sample = (int)all;
    }
};

/* The part of a window that is inside the image, on one axis: [from,to).  Tap 0 is at `start`. */
struct span {
    int start, from, to;

    __device__ span(const struct pool &v, int axis, int at, int extent)
    {
        start = at * v.stride[axis] - v.pad[axis];
        from = start > 0 ? start : 0;
        to = v.kernel[axis] < extent - start ? start + v.kernel[axis] : extent;
    }

    __device__ int n() const { return to - from; }
};

template <typename T, int V>
static __global__ void cuda_pool2d_largest(const vec<T, V> *x, vec<T, V> *y, vec<int32_t, V> *which,
                                           struct pool v, uint32_t n)
{
    for (uint32_t i = (uint32_t)grid_first(); i < n; i += (uint32_t)grid_stride()) {
        const struct place at(v, i);
        const struct span rows(v, 0, at.row, v.h), cols(v, 1, at.col, v.w);
        const vec<T, V> *image = x + at.sample * v.h * v.w * v.c + at.channel;
        vec<T, V> best = image[(rows.from * v.w + cols.from) * v.c];
        vec<int32_t, V> taps;

        for (int k = 0; k < V; k++)
            taps.v[k] = (rows.from - rows.start) * v.kernel[1] + cols.from - cols.start;
        for (int r = rows.from; r < rows.to; r++)
            for (int c = cols.from; c < cols.to; c++) {
                const vec<T, V> here = image[(r * v.w + c) * v.c];

                for (int k = 0; k < V; k++) {
                    const float value = (float)here.v[k];

                    if (value > (float)best.v[k] || value != value) {
                        best.v[k] = here.v[k];
                        taps.v[k] = (r - rows.start) * v.kernel[1] + c - cols.start;
                    }
                }
            }
        y[i] = best;
        if (which)
            which[i] = taps;
    }
}

static __device__ inline float cuda_pool2d_share(const struct pool &v, const struct span &rows,
                                                 const struct span &cols)
{
    return v.count_pad ? v.inverse : 1.0f / (float)(rows.n() * cols.n());
}

template <typename T, int V>
static __global__ void cuda_pool2d_average(const vec<T, V> *x, vec<T, V> *y, struct pool v,
                                           uint32_t n)
{
    for (uint32_t i = (uint32_t)grid_first(); i < n; i += (uint32_t)grid_stride()) {
        const struct place at(v, i);
        const struct span rows(v, 0, at.row, v.h), cols(v, 1, at.col, v.w);
        const vec<T, V> *image = x + at.sample * v.h * v.w * v.c + at.channel;
        vec<T, V> mean;
        float sum[V] = {};

        for (int r = rows.from; r < rows.to; r++)
            for (int c = cols.from; c < cols.to; c++) {
                const vec<T, V> here = image[(r * v.w + c) * v.c];

                for (int k = 0; k < V; k++)
                    sum[k] += (float)here.v[k];
            }
        for (int k = 0; k < V; k++)
            mean.v[k] = (T)(sum[k] * cuda_pool2d_share(v, rows, cols));
        y[i] = mean;
    }
}

/* The windows along one axis that cover the image's position `at`: [from,to). */
struct cover {
    int from, to;

    __device__ cover(const struct pool &v, int axis, int at, int n_windows)
    {
        const int padded = at + v.pad[axis], before = padded - v.kernel[axis];
        const int last = (int)v.by_stride[axis].quotient((uint32_t)padded) + 1;

        from = before < 0 ? 0 : (int)v.by_stride[axis].quotient((uint32_t)before) + 1;
        to = last < n_windows ? last : n_windows;
    }
};

/* The gradient of a vector of the image, from the windows that cover it.  which NULL: an average
 * pool. */
template <typename T, int V>
static __device__ inline void gather_windows(const vec<T, V> *dy, const vec<int32_t, V> *which,
                                             const struct pool &v, const struct place &at,
                                             float (&sum)[V])
{
    const struct cover rows(v, 0, at.row, v.oh), cols(v, 1, at.col, v.ow);
    const int base = at.sample * v.oh * v.ow * v.c + at.channel;

    for (int r = rows.from; r < rows.to; r++)
        for (int c = cols.from; c < cols.to; c++) {
            const int i = base + (r * v.ow + c) * v.c;
            const struct span wr(v, 0, r, v.h), wc(v, 1, c, v.w);
            const int tap = (at.row - wr.start) * v.kernel[1] + at.col - wc.start;
            const vec<T, V> d = dy[i];
            vec<int32_t, V> from;

            if (which)
                from = which[i];
            for (int k = 0; k < V; k++)
                if (!which)
                    sum[k] += (float)d.v[k] * cuda_pool2d_share(v, wr, wc);
                else if (from.v[k] == tap)
                    sum[k] += (float)d.v[k];
        }
}

struct whole {
    static __device__ float of(float d, float y)
    {
        (void)y;
        return d;
    }
};

template <int ACT> struct through { /* through the activation before the pool; y is its output */
    static __device__ float of(float d, float y)
    {
        if (ACT == ACT_RELU)
            return y <= 0.0f ? 0.0f : d; /* d * 0 would be NaN for an infinite d */
        return d * slope<ACT>(y);
    }
};

/* y_act NULL: there is no fused activation.  dx may be y_act. */
template <typename T, int V, typename F>
static __global__ void cuda_pool2d_gradient(const vec<T, V> *dy, const vec<int32_t, V> *which,
                                            const vec<T, V> *y_act, vec<T, V> *dx, struct pool v,
                                            uint32_t n)
{
    for (uint32_t i = (uint32_t)grid_first(); i < n; i += (uint32_t)grid_stride()) {
        const struct place at(v, i);
        vec<T, V> y = {}, d;
        float sum[V] = {};

        if (y_act)
            y = y_act[i];
        gather_windows(dy, which, v, at, sum);
        for (int k = 0; k < V; k++)
            d.v[k] = (T)F::of(sum[k], (float)y.v[k]);
        dx[i] = d;
    }
}

/* ---- launching: as many samples at once as 32 bits can number ---- */

struct portion {
    int64_t samples, x, y; /* number of samples; elements of a sample of x and of y */
    int64_t at_once;       /* samples of a launch */
};

static struct portion portion_of(const struct shape *x, const struct shape *y)
{
    struct portion v = {x->dim[0], x->dim[1] * x->dim[2] * x->dim[3],
                        y->dim[1] * y->dim[2] * y->dim[3], 0};

    v.at_once = max_i64(1, min_i64(v.samples, INDEX_LIMIT / max_i64(v.x, v.y)));
    return v;
}

template <typename T, int V> static vec<T, V> *from_element(void *p, int64_t i)
{
    return p ? (vec<T, V> *)((T *)p + i) : NULL;
}

template <int V, typename T> static void cuda_pool2d_run(const struct own *p)
{
    const struct shape *x = &p->in_shape[POOL2D_X], *y = &p->out_shape[POOL2D_Y];
    const struct pool v = pool_of(p, x, y, y, V);
    const struct portion all = portion_of(x, y);

    for (int64_t s = 0; s < all.samples; s += all.at_once) {
        const int64_t n = min_i64(all.at_once, all.samples - s) * all.y / V;
        const int64_t blocks = blocks_for(p, n, THREADS);
        const vec<T, V> *from = from_element<T, V>(p->in[POOL2D_X], s * all.x);
        vec<T, V> *to = from_element<T, V>(p->out[POOL2D_Y], s * all.y);

        if (p->attr.pool.kind == POOL_MAX)
            LAUNCH((cuda_pool2d_largest<T, V>), blocks, THREADS, p, from, to,
                   (from_element<int32_t, V>(p->out[POOL2D_WHICH], s * all.y)), v, (uint32_t)n);
        else
            LAUNCH((cuda_pool2d_average<T, V>), blocks, THREADS, p, from, to, v, (uint32_t)n);
    }
}

template <int V, typename F, typename T> static void cuda_pool2d_run_grad(const struct own *p)
{
    const struct shape *x = &p->out_shape[POOL2D_GRAD_DX], *y = &p->in_shape[POOL2D_GRAD_DY];
    const struct pool v = pool_of(p, x, y, x, V);
    const struct portion all = portion_of(x, y);

    for (int64_t s = 0; s < all.samples; s += all.at_once) {
        const int64_t n = min_i64(all.at_once, all.samples - s) * all.x / V;

        LAUNCH((cuda_pool2d_gradient<T, V, F>), blocks_for(p, n, THREADS), THREADS, p,
               (from_element<T, V>(p->in[POOL2D_GRAD_DY], s * all.y)),
               (from_element<int32_t, V>(p->in[POOL2D_GRAD_WHICH], s * all.y)),
               (from_element<T, V>(p->in[POOL2D_GRAD_Y_ACT], s * all.x)),
               (from_element<T, V>(p->out[POOL2D_GRAD_DX], s * all.x)), v, (uint32_t)n);
    }
}

/* The number V of channels that a thread does at once; pointers are 16-byte aligned. */
static int width_of(const struct shape *x)
{
    return x->dim[3] % 4 == 0 ? 4 : x->dim[3] % 2 == 0 ? 2 : 1;
}

static int cuda_pool2d_check_size(const struct shape *x, const struct shape *y, struct err *err)
{
    char text[SHAPE_TEXT_LEN];

    if (max_i64(portion_of(x, y).x, portion_of(x, y).y) <= INT32_MAX / 2)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "a sample of %s has 2^30 elements or more",
                   shape_text(x, text));
}

template <int V> static run_fn *cuda_pool2d_forward(const struct graph *g, const struct node *n)
{
    return typed(g, n, cuda_pool2d_run<V, float>, cuda_pool2d_run<V, bf16_t>,
                 cuda_pool2d_run<V, f16_t>);
}

extern "C" int cuda_make_pool2d(struct cuda *b, const struct graph *g, const struct node *n,
                                struct kernel **out, struct err *err)
{
    const int width = width_of(cuda_in(g, n, POOL2D_X));
    const int rc = cuda_pool2d_check_size(cuda_in(g, n, POOL2D_X), cuda_out(g, n, POOL2D_Y), err);

    return rc < 0 ? rc
                  : own_new(b, g, n,
                            width == 4   ? cuda_pool2d_forward<4>(g, n)
                            : width == 2 ? cuda_pool2d_forward<2>(g, n)
                                         : cuda_pool2d_forward<1>(g, n),
                            0, out, err);
}

template <int V, typename F> static run_fn *typed_grad(const struct graph *g, const struct node *n)
{
    return typed(g, n, cuda_pool2d_run_grad<V, F, float>, cuda_pool2d_run_grad<V, F, bf16_t>,
                 cuda_pool2d_run_grad<V, F, f16_t>);
}

/* gelu's gradient needs gelu's input, so op/pool2d.c refuses gelu here. */
template <int V> static run_fn *cuda_pool2d_backward(const struct graph *g, const struct node *n)
{
    static run_fn *(*const by_act[])(const struct graph *g, const struct node *n) = {
        typed_grad<V, whole>, typed_grad<V, through<ACT_RELU>>, typed_grad<V, through<ACT_TANH>>,
        typed_grad<V, through<ACT_SIGMOID>>};

    return by_act[n->attr.pool.act](g, n);
}

extern "C" int cuda_make_pool2d_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                     struct kernel **out, struct err *err)
{
    const int width = width_of(cuda_out(g, n, POOL2D_GRAD_DX));
    const int rc =
        cuda_pool2d_check_size(cuda_out(g, n, POOL2D_GRAD_DX), cuda_in(g, n, POOL2D_GRAD_DY), err);

    return rc < 0 ? rc
                  : own_new(b, g, n,
                            width == 4   ? cuda_pool2d_backward<4>(g, n)
                            : width == 2 ? cuda_pool2d_backward<2>(g, n)
                                         : cuda_pool2d_backward<1>(g, n),
                            0, out, err);
}
