/* rms_norm - divides each row by its root mean square, and computes the gradients.
 *
 * A warp computes a row of usual length, and a block a longer one, with sums in double.
 * op/rms_norm.c has the formulas; the twin is cpu/rms_norm.c. */
#include "backend/cuda/columns.cuh"
#include "backend/cuda/rows.cuh"

/* The factors of the columns: weight + plus, or 1 without weight. */
struct factors {
    const float *weight;
    float plus;

    template <int N> __device__ void load(int64_t i, float (&to)[N]) const
    {
        if (weight)
            load_floats(weight + i, to);
        for (int k = 0; k < N; k++)
            to[k] = weight ? to[k] + plus : 1.0f;
    }
};

template <typename T> struct rms_rows {
    const T *x, *dy; /* dy, dx: of the gradient only */
    T *y, *dx;
    struct factors w;
    float *rstd; /* the forward kernel writes it, unless it is NULL */
    int64_t rows, c;
    float eps;
};

template <bool BY_WARP, typename T, int N>
static __global__ void cuda_rms_norm_scale(struct rms_rows<T> p)
{
    typedef team<BY_WARP, N> threads;
    const threads t;
    float v[N], w[N];

    for (int64_t row = t.row; row < p.rows; row += t.step) {
        const T *x = p.x + row * p.c;
        double square = 0;
        float rstd;

        for (int64_t i = t.from; i < p.c; i += t.each) {
            load_floats(x + i, v);
            for (int k = 0; k < N; k++)
                square += (double)v[k] * (double)v[k];
        }
        rstd = (float)(1.0 / sqrt(threads::sum(square) / (double)p.c + (double)p.eps));
        for (int64_t i = t.from; i < p.c; i += t.each) {
            vec<T, N> y;

            load_floats(x + i, v);
            p.w.load(i, w);
            for (int k = 0; k < N; k++)
                y.v[k] = (T)(v[k] * rstd * w[k]);
            store_whole(p.y + row * p.c + i, y);
        }
        if (t.from == 0 && p.rstd)
            p.rstd[row] = rstd;
    }
}

/* dx = rstd * (d - xhat * avg(d * xhat)), where d = dy * w. */
template <bool BY_WARP, typename T, int N>
static __global__ void cuda_rms_norm_grad_x(struct rms_rows<T> p)
{
    typedef team<BY_WARP, N> threads;
    const threads t;
    float v[N], slope[N], w[N];

    for (int64_t row = t.row; row < p.rows; row += t.step) {
        const T *x = p.x + row * p.c, *dy = p.dy + row * p.c;
        const float rstd = p.rstd[row];
        double product = 0;
        float average;

        for (int64_t i = t.from; i < p.c; i += t.each) {
            load_floats(x + i, v);
            load_floats(dy + i, slope);
            p.w.load(i, w);
            for (int k = 0; k < N; k++)
                product += (double)v[k] * (double)slope[k] * (double)w[k];
        }
        average = (float)(threads::sum(product) * (double)rstd / (double)p.c);
        for (int64_t i = t.from; i < p.c; i += t.each) {
            vec<T, N> dx;

            load_floats(x + i, v);
            load_floats(dy + i, slope);
            p.w.load(i, w);
            for (int k = 0; k < N; k++)
                dx.v[k] = (T)(rstd * (slope[k] * w[k] - v[k] * rstd * average));
            store_whole(p.dx + row * p.c + i, dx);
        }
    }
}

template <typename T> static void cuda_rms_norm_run(const struct own *p)
{
    struct rms_rows<T> rows = {
    };

    rows.x = (const T *)p->in[RMS_NORM_X];
    rows.w = {(const float *)p->in[RMS_NORM_WEIGHT], p->attr.norm.one_plus ? 1.0f : 0.0f};
    rows.y = (T *)p->out[RMS_NORM_Y];
    rows.rstd = (float *)p->out[RMS_NORM_RSTD];
    rows.rows = p->rows;
    rows.c = p->c;
    rows.eps = p->attr.norm.eps;
    LAUNCH_ROWS(cuda_rms_norm_scale, T, p, rows);
}

extern "C" int cuda_make_rms_norm(struct cuda *b, const struct graph *g, const struct node *n,
                                  struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_rms_norm_run<float>, cuda_rms_norm_run<bf16_t>, cuda_rms_norm_run<f16_t>),
        0, out, err);
}

/* The sum of dy * xhat. */
template <typename T, int V> struct rms_weight_term {
    enum { WIDTH = V };
    const T *x, *dy;
    const float *rstd;
    int64_t c, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double (&sum)[V][1], int64_t row) const
    {
        float from[V], slope[V];

        load_floats(x + row * c + col, from);
        load_floats(dy + row * c + col, slope);
        for (int v = 0; v < V; v++)
            sum[v][0] += (double)slope[v] * (double)(from[v] * rstd[row]);
    }
};

struct rms_weight_end {
    struct grad_array dweight;

    __device__ void put(int64_t i, double sum) const { dweight.put(i, sum); }
};

template <typename T, int V>
static void cuda_rms_norm_sum_weight(const struct own *p, const struct rms_rows<T> &rows)
{
    const struct rms_weight_term<T, V> term = {
        rows.x, rows.dy, rows.rstd, p->c, 0
    };
    const struct rms_weight_end end = {grad_of(p, RMS_NORM_GRAD_DWEIGHT)};

    columns_sum<1>(p, term, end, p->rows, p->c);
}

template <typename T> static void cuda_rms_norm_run_grad(const struct own *p)
{
    struct rms_rows<T> rows = {
    };

    rows.x = (const T *)p->in[RMS_NORM_GRAD_X];
    rows.dy = (const T *)p->in[RMS_NORM_GRAD_DY];
    rows.w = {(const float *)p->in[RMS_NORM_GRAD_WEIGHT], p->attr.norm.one_plus ? 1.0f : 0.0f};
    rows.rstd = (float *)p->in[RMS_NORM_GRAD_RSTD];
    rows.dx = (T *)p->out[RMS_NORM_GRAD_DX];
    rows.rows = p->rows;
    rows.c = p->c;
    if (p->out[RMS_NORM_GRAD_DWEIGHT]) {
        if (columns_are_wide(p->rows, p->c))
            cuda_rms_norm_sum_weight<T, COLUMNS_WIDE>(p, rows);
        else
            cuda_rms_norm_sum_weight<T, 1>(p, rows);
    }
    if (p->out[RMS_NORM_GRAD_DX]) /* last, since dx may overwrite dy */
        LAUNCH_ROWS(cuda_rms_norm_grad_x, T, p, rows);
}

extern "C" int cuda_make_rms_norm_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                       struct kernel **out, struct err *err)
{
    const struct shape *x = cuda_in(g, n, RMS_NORM_GRAD_X);
    const int64_t c = x->dim[x->n - 1];

    return own_new(b, g, n,
                   typed(g, n, cuda_rms_norm_run_grad<float>, cuda_rms_norm_run_grad<bf16_t>,
                         cuda_rms_norm_run_grad<f16_t>),
                   columns_scratch(1, c ? shape_elements(x) / c : 0, c), out, err);
}
