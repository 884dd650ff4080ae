/* layer_norm - normalizes each row by its own mean and variance, and computes the gradients.
 *
 * A warp computes a row of usual length, and a block a longer one, with sums in double.
 * op/layer_norm.c has the formulas; the twin is cpu/layer_norm.c. */
#include "backend/cuda/columns.cuh"
#include "backend/cuda/rows.cuh"

template <typename T> struct norm_rows {
    const T *x;
    const float *weight, *bias;
    T *y;
    float *mean, *rstd; /* may be NULL */
    int64_t rows, c;
    float eps;
};

template <bool BY_WARP, typename T, int N>
static __global__ void cuda_layer_norm_normalise(struct norm_rows<T> p)
{
    typedef team<BY_WARP, N> threads;
    const threads t;
    float v[N], weight[N], bias[N];

    for (int64_t row = t.row; row < p.rows; row += t.step) {
        const T *x = p.x + row * p.c;
        double sum = 0, square = 0, mean;
        float m, rstd;

        for (int64_t i = t.from; i < p.c; i += t.each) {
            load_floats(x + i, v);
            for (int k = 0; k < N; k++)
                sum += (double)v[k];
        }
        mean = threads::sum(sum) / (double)p.c;
        for (int64_t i = t.from; i < p.c; i += t.each) {
            load_floats(x + i, v);
            for (int k = 0; k < N; k++)
                square += ((double)v[k] - mean) * ((double)v[k] - mean);
        }
        m = (float)mean;
        rstd = (float)(1.0 / sqrt(threads::sum(square) / (double)p.c + (double)p.eps));
        for (int64_t i = t.from; i < p.c; i += t.each) {
            vec<T, N> y;

            load_floats(x + i, v);
            load_floats(p.weight + i, weight);
            load_floats(p.bias + i, bias);
            for (int k = 0; k < N; k++)
                y.v[k] = (T)((v[k] - m) * rstd * weight[k] + bias[k]);
            store_whole(p.y + row * p.c + i, y);
        }
        if (t.from == 0 && p.mean)
            p.mean[row] = m;
        if (t.from == 0 && p.rstd)
            p.rstd[row] = rstd;
    }
}

template <typename T> static void cuda_layer_norm_run(const struct own *p)
{
    struct norm_rows<T> rows = {
    };

    rows.x = (const T *)p->in[LAYER_NORM_X];
    rows.weight = (const float *)p->in[LAYER_NORM_WEIGHT];
    rows.bias = (const float *)p->in[LAYER_NORM_BIAS];
    rows.y = (T *)p->out[LAYER_NORM_Y];
    rows.mean = (float *)p->out[LAYER_NORM_MEAN];
    rows.rstd = (float *)p->out[LAYER_NORM_RSTD];
    rows.rows = p->rows;
    rows.c = p->c;
    rows.eps = p->attr.norm.eps;
    LAUNCH_ROWS(cuda_layer_norm_normalise, T, p, rows);
}

extern "C" int cuda_make_layer_norm(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_layer_norm_run<float>, cuda_layer_norm_run<bf16_t>,
                         cuda_layer_norm_run<f16_t>),
                   0, out, err);
}

template <typename T> struct grad_rows {
    const T *x, *dy;
    const float *weight, *mean, *rstd;
    T *dx;
    int64_t rows, c;
};

/* dx = rstd * (d - avg(d) - xhat * avg(d * xhat)), where d = dy * weight. */
template <bool BY_WARP, typename T, int N>
static __global__ void cuda_layer_norm_grad_x(struct grad_rows<T> p)
{
    typedef team<BY_WARP, N> threads;
    const threads t;
    float v[N], slope[N], weight[N];

    for (int64_t row = t.row; row < p.rows; row += t.step) {
        const T *x = p.x + row * p.c, *dy = p.dy + row * p.c;
        const float m = p.mean[row], rstd = p.rstd[row];
        double plain = 0, product = 0;
        float avg, avg_product;

        for (int64_t i = t.from; i < p.c; i += t.each) {
            load_floats(x + i, v);
            load_floats(dy + i, slope);
            load_floats(p.weight + i, weight);
            for (int k = 0; k < N; k++) {
                const double d = (double)(slope[k] * weight[k]);

                plain += d;
                product += d * (double)((v[k] - m) * rstd);
            }
        }
        avg = (float)(threads::sum(plain) / (double)p.c);
        avg_product = (float)(threads::sum(product) / (double)p.c);
        for (int64_t i = t.from; i < p.c; i += t.each) {
            vec<T, N> dx;

            load_floats(x + i, v);
            load_floats(dy + i, slope);
            load_floats(p.weight + i, weight);
            for (int k = 0; k < N; k++)
                dx.v[k] =
                    (T)(rstd * (slope[k] * weight[k] - avg - (v[k] - m) * rstd * avg_product));
            store_whole(p.dx + row * p.c + i, dx);
        }
    }
}

/* The sums of dy * xhat and dy. */
template <typename T, int V> struct weight_term {
    enum { WIDTH = V };
    const T *x, *dy;
    const float *mean, *rstd;
    int64_t c, col;

    __device__ void column(int64_t column) { col = column; }
    __device__ void add(double (&sum)[V][2], int64_t row) const
    {
        const float m = mean[row], r = rstd[row];
        float from[V], slope[V];

        load_floats(x + row * c + col, from);
        load_floats(dy + row * c + col, slope);
        for (int v = 0; v < V; v++) {
            const float xhat = (from[v] - m) * r;
            const double d = (double)slope[v];

            sum[v][0] += d * (double)xhat;
            sum[v][1] += d;
        }
    }
};

struct weight_end {
    struct grad_array dweight, dbias;
    int64_t c;

    __device__ void put(int64_t i, double sum) const
    {
        const struct grad_array to = i < c ? dweight : dbias;

        if (to.at)
            to.put(i < c ? i : i - c, sum);
    }
};

template <typename T, int V>
static void sum_weights(const struct own *p, const struct grad_rows<T> &rows)
{
    const struct weight_term<T, V> term = {
        rows.x, rows.dy, rows.mean, rows.rstd, p->c, 0
    };
    const struct weight_end end = {grad_of(p, LAYER_NORM_GRAD_DWEIGHT),
                                   grad_of(p, LAYER_NORM_GRAD_DBIAS), p->c};

    columns_sum<2>(p, term, end, p->rows, p->c);
}

template <typename T> static void cuda_layer_norm_run_grad(const struct own *p)
{
    struct grad_rows<T> rows = {
    };

    rows.x = (const T *)p->in[LAYER_NORM_GRAD_X];
    rows.dy = (const T *)p->in[LAYER_NORM_GRAD_DY];
    rows.weight = (const float *)p->in[LAYER_NORM_GRAD_WEIGHT];
    rows.mean = (const float *)p->in[LAYER_NORM_GRAD_MEAN];
    rows.rstd = (const float *)p->in[LAYER_NORM_GRAD_RSTD];
    rows.dx = (T *)p->out[LAYER_NORM_GRAD_DX];
    rows.rows = p->rows;
    rows.c = p->c;
    if (p->out[LAYER_NORM_GRAD_DWEIGHT] || p->out[LAYER_NORM_GRAD_DBIAS]) {
        if (columns_are_wide(p->rows, p->c))
            sum_weights<T, COLUMNS_WIDE>(p, rows);
        else
            sum_weights<T, 1>(p, rows);
    }
    if (p->out[LAYER_NORM_GRAD_DX]) /* last, since dx may overwrite dy */
        LAUNCH_ROWS(cuda_layer_norm_grad_x, T, p, rows);
}

extern "C" int cuda_make_layer_norm_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    const int64_t c = shape_elements(cuda_in(g, n, LAYER_NORM_GRAD_WEIGHT));

    return own_new(b, g, n,
                   typed(g, n, cuda_layer_norm_run_grad<float>, cuda_layer_norm_run_grad<bf16_t>,
                         cuda_layer_norm_run_grad<f16_t>),
                   columns_scratch(2, shape_elements(cuda_in(g, n, LAYER_NORM_GRAD_X)) / c, c), out,
                   err);
}
