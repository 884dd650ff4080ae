/* batch_norm - batch norm from given sums.
 *
 * These kernels are ours, not cuDNN's.  A cuDNN graph computes the statistics of one GPU's rows and
 * uses them at once.  Here the sums of all ranks are added in between, so that the numbers do not
 * depend on the number of ranks.
 *
 * Where only one rank takes part, a plan could do it.  cuDNN 9.19, asked from the description of an
 * H200, builds plans of the forward pass alone, with relu, and with sum and relu, and of the
 * backward pass alone: in F32 and BF16, repeatable, compiled at run time.  It names no engine for
 * the forward pass with a sum alone, or for the relu's gradient with the backward pass, neither of
 * which costs a pass of its own here.  A forward plan would stand for two nodes, batch_norm_stats
 * and batch_norm, and would have to give the sums that the gradients read.
 *
 * op/batch_norm.c has the formulas; the twin is cpu/batch_norm.c. */
#include "backend/cuda/columns.cuh"

/* Mean and variance of channel i from the sums, which are of x - m. */
static __device__ inline void cuda_batch_norm_moments(const double *sums, const float *m, int64_t c,
                                                      int64_t i, double *mean, double *var)
{
    const double n = sums[2 * c], shift = sums[i] / n;

    *mean = (double)m[i] + shift;
    *var = fmax(sums[c + i] / n - shift * shift, 0.0);
}

/* The sums of x - m and its square. */
template <typename T, int V> struct stats_term {
    enum { WIDTH = V };
    const T *x;
    const float *m;
    int64_t c, col;
    double shift[V];

    __device__ void column(int64_t column)
    {
        col = column;
        for (int v = 0; v < V; v++)
            shift[v] = (double)m[col + v];
    }
    __device__ void add(double (&sum)[V][2], int64_t row) const
    {
        float here[V];

        load_floats(x + row * c + col, here);
        for (int v = 0; v < V; v++) {
            const double d = (double)here[v] - shift[v];

            sum[v][0] += d;
            sum[v][1] += d * d;
        }
    }
};

struct stats_end {
    double *sums;
    int64_t c;
    double rows;

    __device__ void put(int64_t i, double sum) const
    {
        sums[i] = sum;
        if (i == 0)
            sums[2 * c] = rows;
    }
};

template <typename T, int V> static void sum_stats(const struct own *p)
{
    const struct stats_term<T, V> term = {
        (const T *)p->in[BATCH_NORM_STATS_X],
            (const float *)p->in[BATCH_NORM_STATS_RUNNING_MEAN], p->c, 0,
        {
        }
    };
    const struct stats_end end = {(double *)p->out[BATCH_NORM_STATS_SUMS], p->c, (double)p->rows};

    columns_sum<2>(p, term, end, p->rows, p->c);
}

template <typename T> static void cuda_batch_norm_run_stats(const struct own *p)
{
    if (columns_are_wide(p->rows, p->c))
        sum_stats<T, COLUMNS_WIDE>(p);
    else
        sum_stats<T, 1>(p);
}

extern "C" int cuda_make_batch_norm_stats(struct cuda *b, const struct graph *g,
                                          const struct node *n, struct kernel **out,
                                          struct err *err)
{
    const struct shape *x = cuda_in(g, n, BATCH_NORM_STATS_X);
    const int64_t c = x->dim[x->n - 1];

    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run_stats<float>, cuda_batch_norm_run_stats<bf16_t>,
                         cuda_batch_norm_run_stats<f16_t>),
                   columns_scratch(2, shape_elements(x) / c, c), out, err);
}

/* The arguments of `prepare`, which computes for each channel, from the whole batch's sums, the
 * next running statistics and this step's mean and scale. */
struct channels {
    const double *sums;
    const float *weight, *m, *v;
    float *next_m, *next_v, *mean, *scale;
    int64_t c;
    float eps, momentum;
};

static __global__ void cuda_batch_norm_prepare(struct channels p)
{
    const double n = p.sums[2 * p.c], momentum = (double)p.momentum;

    for (int64_t i = grid_first(); i < p.c; i += grid_stride()) {
        double mean = (double)p.m[i], var = (double)p.v[i];

        p.next_m[i] = p.m[i];
        p.next_v[i] = p.v[i];
        if (n > 0)
            cuda_batch_norm_moments(p.sums, p.m, p.c, i, &mean, &var);
        if (n > 1) { /* one value has no variance */
            p.next_m[i] = (float)((1 - momentum) * (double)p.m[i] + momentum * mean);
            p.next_v[i] = (float)((1 - momentum) * (double)p.v[i] + momentum * (var * n / (n - 1)));
        }
        p.mean[i] = (float)mean;
        p.scale[i] = (float)((double)p.weight[i] / sqrt(var + (double)p.eps));
    }
}

/* (x - mean) * scale + bias, with the same bits in the forward pass and where a gradient needs its
 * sign. */
static __device__ inline float cuda_batch_norm_affine(float x, float mean, float scale, float bias)
{
    return (x - mean) * scale + bias;
}

/* By channel; a gradient reads them as its own k (grad_factors). */
struct affines {
    const float *mean, *scale, *bias;
};

/* The pieces of 16 bytes that a thread reads before it writes one, so that more of them are under
 * way. */
enum { AHEAD = 2 };

/* The affines of N neighbouring channels. */
template <int N> struct affines_here {
    float mean[N], scale[N], bias[N];

    __device__ affines_here(const struct affines &a, int64_t at)
    {
        load_floats(a.mean + at, mean);
        load_floats(a.scale + at, scale);
        load_floats(a.bias + at, bias);
    }
};

/* The arguments of `normalise`, in pieces of N elements.  add may be NULL; y may be x. */
template <typename T, int N> struct normalised {
    const vec<T, N> *x, *add;
    vec<T, N> *y;
    int64_t rows, c; /* c counts pieces */
    int is_relu;
};

/* M pieces of a column, which are `step` pieces apart. */
template <int M, typename T, int N>
static __device__ inline void normalise_pieces(const struct normalised<T, N> &p,
                                               const struct affines_here<N> &a, int64_t at,
                                               int64_t step)
{
    vec<T, N> v[M], other[M] = {};

    for (int m = 0; m < M; m++) {
        v[m] = p.x[at + m * step];
        if (p.add)
            other[m] = p.add[at + m * step];
    }
    for (int m = 0; m < M; m++) {
        for (int k = 0; k < N; k++) {
            float s = cuda_batch_norm_affine((float)v[m].v[k], a.mean[k], a.scale[k], a.bias[k]);

            s = p.add ? s + (float)other[m].v[k] : s;
            v[m].v[k] = (T)(p.is_relu && s < 0.0f ? 0.0f : s);
        }
        p.y[at + m * step] = v[m];
    }
}

/* y = act((x - mean) * scale + bias + add), with relu or no activation. */
template <typename T, int N>
static __global__ void cuda_batch_norm_normalise(struct normalised<T, N> p, struct affines a)
{
    for (struct columns_walk w(p.c); w.col < p.c; w.next()) {
        const struct affines_here<N> here(a, w.col * N);
        const int64_t step = w.down * p.c;
        int64_t row = w.row;

        for (; row + (AHEAD - 1) * w.down < p.rows; row += AHEAD * w.down)
            normalise_pieces<AHEAD>(p, here, row * p.c + w.col, step);
        for (; row < p.rows; row += w.down)
            normalise_pieces<1>(p, here, row * p.c + w.col, step);
    }
}

template <typename T, int N>
static void launch_normalise(const struct own *p, int add, struct affines a)
{
    const struct normalised<T, N> what = {
        (const vec<T, N> *)p->in[0], (const vec<T, N> *)p->in[add],
            (vec<T, N> *)p->out[0], p->rows, p->c / N, p->attr.norm.act == ACT_RELU
    };

    LAUNCH((cuda_batch_norm_normalise<T, N>), blocks_for(p, p->n / N, THREADS), THREADS, p, what,
           a);
}

template <typename T>
static void run_normalise(const struct own *p, int add, const void *mean, const float *scale,
                          const void *bias)
{
    const struct affines a = {(const float *)mean, scale, (const float *)bias};

    if (p->n > 0 && p->c % wide<T>::N == 0)
        launch_normalise<T, wide<T>::N>(p, add, a);
    else if (p->n > 0)
        launch_normalise<T, 1>(p, add, a);
}

template <typename T> static void cuda_batch_norm_run(const struct own *p)
{
    float *mean = (float *)p->scratch, *scale = mean + p->c;
    struct channels ch = {};

    ch.sums = (const double *)p->in[BATCH_NORM_SUMS];
    ch.weight = (const float *)p->in[BATCH_NORM_WEIGHT];
    ch.m = (const float *)p->in[BATCH_NORM_RUNNING_MEAN];
    ch.v = (const float *)p->in[BATCH_NORM_RUNNING_VAR];
    ch.next_m = (float *)p->out[BATCH_NORM_NEXT_MEAN];
    ch.next_v = (float *)p->out[BATCH_NORM_NEXT_VAR];
    ch.mean = mean;
    ch.scale = scale;
    ch.c = p->c;
    ch.eps = p->attr.norm.eps;
    ch.momentum = p->attr.norm.momentum;
    LAUNCH(cuda_batch_norm_prepare, blocks_for(p, p->c, THREADS), THREADS, p, ch);
    run_normalise<T>(p, BATCH_NORM_ADD, mean, scale, p->in[BATCH_NORM_BIAS]);
}

extern "C" int cuda_make_batch_norm(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run<float>, cuda_batch_norm_run<bf16_t>,
                         cuda_batch_norm_run<f16_t>),
                   (size_t)(2 * shape_elements(cuda_in(g, n, BATCH_NORM_WEIGHT))) * sizeof(float),
                   out, err);
}

static __global__ void infer_scale(const float *weight, const float *v, float eps, float *scale,
                                   int64_t c)
{
    for (int64_t i = grid_first(); i < c; i += grid_stride())
        scale[i] = (float)((double)weight[i] / sqrt((double)v[i] + (double)eps));
}

template <typename T> static void cuda_batch_norm_run_infer(const struct own *p)
{
    float *scale = (float *)p->scratch;

    LAUNCH(infer_scale, blocks_for(p, p->c, THREADS), THREADS, p,
           (const float *)p->in[BATCH_NORM_INFER_WEIGHT],
           (const float *)p->in[BATCH_NORM_INFER_RUNNING_VAR], p->attr.norm.eps, scale, p->c);
    run_normalise<T>(p, BATCH_NORM_INFER_ADD, p->in[BATCH_NORM_INFER_RUNNING_MEAN], scale,
                     p->in[BATCH_NORM_INFER_BIAS]);
}

extern "C" int cuda_make_batch_norm_infer(struct cuda *b, const struct graph *g,
                                          const struct node *n, struct kernel **out,
                                          struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run_infer<float>, cuda_batch_norm_run_infer<bf16_t>,
                         cuda_batch_norm_run_infer<f16_t>),
                   (size_t)shape_elements(cuda_in(g, n, BATCH_NORM_INFER_WEIGHT)) * sizeof(float),
                   out, err);
}

/* The filter of a convolution whose output a batch norm would scale: y[k,..] = w[k,..] * scale[k],
 * with `each` elements for each k. */
template <typename T>
static __global__ void scale_filter(const T *w, const float *scale, T *y, int64_t n, int64_t each)
{
    for (struct walk e(each); e.i < n; e.next())
        y[e.i] = (T)((float)w[e.i] * scale[e.row]);
}

template <typename T>
static __global__ void shift_bias(const T *b, struct affines a, T *y, int64_t c)
{
    for (int64_t i = grid_first(); i < c; i += grid_stride())
        y[i] = (T)cuda_batch_norm_affine(b ? (float)b[i] : 0.0f, a.mean[i], a.scale[i], a.bias[i]);
}

template <typename T> static void cuda_batch_norm_run_fold(const struct own *p)
{
    const int64_t c = p->in_shape[BATCH_NORM_FOLD_W].dim[0];
    float *scale = (float *)p->scratch;
    const struct affines a = {(const float *)p->in[BATCH_NORM_FOLD_RUNNING_MEAN], scale,
                              (const float *)p->in[BATCH_NORM_FOLD_BIAS]};

    LAUNCH(infer_scale, blocks_for(p, c, THREADS), THREADS, p,
           (const float *)p->in[BATCH_NORM_FOLD_WEIGHT],
           (const float *)p->in[BATCH_NORM_FOLD_RUNNING_VAR], p->attr.norm.eps, scale, c);
    LAUNCH((scale_filter<T>), blocks_for(p, p->n, THREADS), THREADS, p,
           (const T *)p->in[BATCH_NORM_FOLD_W], (const float *)scale,
           (T *)p->out[BATCH_NORM_FOLD_FILTER], p->n, p->n / c);
    LAUNCH((shift_bias<T>), blocks_for(p, c, THREADS), THREADS, p,
           (const T *)p->in[BATCH_NORM_FOLD_B], a, (T *)p->out[BATCH_NORM_FOLD_SHIFT], c);
}

extern "C" int cuda_make_batch_norm_fold(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run_fold<float>, cuda_batch_norm_run_fold<bf16_t>,
                         cuda_batch_norm_run_fold<f16_t>),
                   (size_t)cuda_in(g, n, BATCH_NORM_FOLD_W)->dim[0] * sizeof(float), out, err);
}

/* The sums of dy and dy * xhat.  With a fused relu (weight not NULL) dy counts as 0 where the
 * relu's input was not positive. */
template <typename T, int V> struct grad_term {
    enum { WIDTH = V };
    const T *x, *dy;
    const double *sums;
    const float *m, *weight, *bias;
    int64_t c, col;
    float eps;
    double mean[V], rstd[V];
    float scale[V], shift[V];

    __device__ void column(int64_t column)
    {
        col = column;
        for (int v = 0; v < V; v++) {
            double var;

            cuda_batch_norm_moments(sums, m, c, col + v, &mean[v], &var);
            rstd[v] = 1.0 / sqrt(var + (double)eps);
            scale[v] = weight ? (float)((double)weight[col + v] / sqrt(var + (double)eps)) : 0.0f;
            shift[v] = weight ? bias[col + v] : 0.0f;
        }
    }
    __device__ void add(double (&sum)[V][2], int64_t row) const
    {
        float from[V], d[V];

        load_floats(x + row * c + col, from);
        load_floats(dy + row * c + col, d);
        for (int v = 0; v < V; v++) {
            const bool passes = !weight || !(cuda_batch_norm_affine(from[v], (float)mean[v],
                                                                    scale[v], shift[v]) <= 0.0f);
            const double slope = passes ? (double)d[v] : 0.0;

            sum[v][0] += slope;
            sum[v][1] += slope * (((double)from[v] - mean[v]) * rstd[v]);
        }
    }
};

struct grad_end {
    double *gsums;
    struct grad_array dweight, dbias;
    int64_t c;

    __device__ void put(int64_t i, double sum) const
    {
        const struct grad_array to = i < c ? dbias : dweight;

        gsums[i] = sum;
        if (to.at)
            to.put(i < c ? i : i - c, sum);
    }
};

template <typename T, int V> static void sum_grad_stats(const struct own *p)
{
    struct grad_term<T, V> term = {
    };
    const struct grad_end end = {(double *)p->out[BATCH_NORM_GRAD_STATS_GSUMS],
                                 grad_of(p, BATCH_NORM_GRAD_STATS_DWEIGHT),
                                 grad_of(p, BATCH_NORM_GRAD_STATS_DBIAS), p->c};

    term.x = (const T *)p->in[BATCH_NORM_GRAD_STATS_X];
    term.dy = (const T *)p->in[BATCH_NORM_GRAD_STATS_DY];
    term.sums = (const double *)p->in[BATCH_NORM_GRAD_STATS_SUMS];
    term.m = (const float *)p->in[BATCH_NORM_GRAD_STATS_RUNNING_MEAN];
    if (p->attr.norm.act == ACT_RELU) {
        term.weight = (const float *)p->in[BATCH_NORM_GRAD_STATS_WEIGHT];
        term.bias = (const float *)p->in[BATCH_NORM_GRAD_STATS_BIAS];
    }
    term.c = p->c;
    term.eps = p->attr.norm.eps;
    columns_sum<2>(p, term, end, p->rows, p->c);
}

template <typename T> static void cuda_batch_norm_run_grad_stats(const struct own *p)
{
    if (columns_are_wide(p->rows, p->c))
        sum_grad_stats<T, COLUMNS_WIDE>(p);
    else
        sum_grad_stats<T, 1>(p);
}

extern "C" int cuda_make_batch_norm_grad_stats(struct cuda *b, const struct graph *g,
                                               const struct node *n, struct kernel **out,
                                               struct err *err)
{
    const struct shape *x = cuda_in(g, n, BATCH_NORM_GRAD_STATS_X);
    const int64_t c = x->dim[x->n - 1];

    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run_grad_stats<float>,
                         cuda_batch_norm_run_grad_stats<bf16_t>,
                         cuda_batch_norm_run_grad_stats<f16_t>),
                   columns_scratch(2, shape_elements(x) / c, c), out, err);
}

/* k [5,C] for dx = k0 * (dy - k1 - (x - k2) * k3), where k3 = rstd * gsums[C + i] / n; k4 is the
 * forward pass' scale, which k0 equals but for its rounding. */
static __global__ void grad_factors(const double *sums, const double *gsums, const float *m,
                                    const float *weight, float eps, float *k, int64_t c)
{
    const double n = sums[2 * c];

    for (int64_t i = grid_first(); i < c; i += grid_stride()) {
        double mean, var, rstd;

        cuda_batch_norm_moments(sums, m, c, i, &mean, &var);
        rstd = 1.0 / sqrt(var + (double)eps);
        k[i] = (float)((double)weight[i] * rstd);
        k[c + i] = (float)(gsums[i] / n);
        k[2 * c + i] = (float)mean;
        k[3 * c + i] = (float)(rstd * (gsums[c + i] / n));
        k[4 * c + i] = (float)((double)weight[i] / sqrt(var + (double)eps));
    }
}

/* The factors k of N neighbouring channels, and the bias of a fused relu. */
template <int N> struct factors_here {
    float k0[N], k1[N], k2[N], k3[N], k4[N], bias[N];

    __device__ factors_here(const float *k, const float *relu_bias, int64_t c, int64_t at)
    {
        load_floats(k + at, k0);
        load_floats(k + c + at, k1);
        load_floats(k + 2 * c + at, k2);
        load_floats(k + 3 * c + at, k3);
        if (relu_bias) {
            load_floats(k + 4 * c + at, k4);
            load_floats(relu_bias + at, bias);
        }
    }
};

/* The arguments of `grad_x`, in pieces of N elements.  dx may be dy. */
template <typename T, int N> struct norm_backward {
    const vec<T, N> *x, *dy;
    vec<T, N> *dx;
    const float *k, *bias; /* bias: of a fused relu, else NULL */
    int64_t rows, c;       /* c counts pieces */
};

/* M pieces of a column, which are `step` pieces apart. */
template <int M, typename T, int N>
static __device__ inline void grad_pieces(const struct norm_backward<T, N> &p,
                                          const struct factors_here<N> &f, int64_t at, int64_t step)
{
    vec<T, N> from[M], d[M];

    for (int m = 0; m < M; m++) {
        from[m] = p.x[at + m * step];
        d[m] = p.dy[at + m * step];
    }
    for (int m = 0; m < M; m++) {
        for (int j = 0; j < N; j++) {
            const float v = (float)from[m].v[j];
            const bool passes =
                !p.bias || !(cuda_batch_norm_affine(v, f.k2[j], f.k4[j], f.bias[j]) <= 0.0f);

            d[m].v[j] = (T)(f.k0[j] * ((passes ? (float)d[m].v[j] : 0.0f) - f.k1[j] -
                                       (v - f.k2[j]) * f.k3[j]));
        }
        p.dx[at + m * step] = d[m];
    }
}

template <typename T, int N>
static __global__ void cuda_batch_norm_grad_x(struct norm_backward<T, N> p)
{
    for (struct columns_walk w(p.c); w.col < p.c; w.next()) {
        const struct factors_here<N> here(p.k, p.bias, p.c * N, w.col * N);
        const int64_t step = w.down * p.c;
        int64_t row = w.row;

        for (; row + (AHEAD - 1) * w.down < p.rows; row += AHEAD * w.down)
            grad_pieces<AHEAD>(p, here, row * p.c + w.col, step);
        for (; row < p.rows; row += w.down)
            grad_pieces<1>(p, here, row * p.c + w.col, step);
    }
}

template <typename T, int N>
static void cuda_batch_norm_run_grad_x(const struct own *p, const float *k)
{
    const void *bias = p->attr.norm.act == ACT_RELU ? p->in[BATCH_NORM_GRAD_BIAS] : NULL;
    const struct norm_backward<T, N> what = {
        (const vec<T, N> *)p->in[BATCH_NORM_GRAD_X], (const vec<T, N> *)p->in[BATCH_NORM_GRAD_DY],
            (vec<T, N> *)p->out[BATCH_NORM_GRAD_DX], k, (const float *)bias, p->rows, p->c / N
    };

    LAUNCH((cuda_batch_norm_grad_x<T, N>), blocks_for(p, p->n / N, THREADS), THREADS, p, what);
}

template <typename T> static void cuda_batch_norm_run_grad(const struct own *p)
{
    float *k = (float *)p->scratch;

    LAUNCH(grad_factors, blocks_for(p, p->c, THREADS), THREADS, p,
           (const double *)p->in[BATCH_NORM_GRAD_SUMS],
           (const double *)p->in[BATCH_NORM_GRAD_GSUMS],
           (const float *)p->in[BATCH_NORM_GRAD_RUNNING_MEAN],
           (const float *)p->in[BATCH_NORM_GRAD_WEIGHT], p->attr.norm.eps, k, p->c);
    if (p->c % wide<T>::N == 0)
        cuda_batch_norm_run_grad_x<T, wide<T>::N>(p, k);
    else
        cuda_batch_norm_run_grad_x<T, 1>(p, k);
}

extern "C" int cuda_make_batch_norm_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_batch_norm_run_grad<float>, cuda_batch_norm_run_grad<bf16_t>,
                         cuda_batch_norm_run_grad<f16_t>),
                   (size_t)(5 * shape_elements(cuda_in(g, n, BATCH_NORM_GRAD_WEIGHT))) *
                       sizeof(float),
                   out, err);
}
