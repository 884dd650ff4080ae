/* group_norm - a block for each group of a sample; the gradients of weight and bias have one for
 * each channel.  Sums are made in double.
 *
 * op/group_norm.c has the formulas; the twin is cpu/group_norm.c. */
#include "backend/cuda/device.cuh"

/* N samples of P pixels and C channels, G groups of D channels. */
struct extents {
    int64_t n, pixels, c, groups, d;

    /* Element i of group k (of all samples' groups): its place in x, and its channel. */
    __device__ int64_t at(int64_t k, int64_t i) const
    {
        return (k / groups * pixels + i / d) * c + channel(k, i);
    }
    __device__ int64_t channel(int64_t k, int64_t i) const { return k % groups * d + i % d; }
};

static struct extents cuda_group_norm_extents_of(const struct own *p)
{
    const int64_t n = p->in_shape[0].dim[0], groups = p->attr.group_norm.groups;

    return {n, p->rows / n, p->c, groups, p->c / groups};
}

template <typename T> struct norm_groups {
    struct extents e;
    float eps;
    const T *x;
    const float *weight, *bias; /* may be NULL */
    T *y;
    float *mean, *rstd; /* may be NULL */
};

template <typename T> static __global__ void cuda_group_norm_normalise(struct norm_groups<T> p)
{
    const int64_t n = p.e.pixels * p.e.d;

    for (int64_t k = blockIdx.x; k < p.e.n * p.e.groups; k += gridDim.x) {
        double sum = 0, square = 0, mean;
        float rstd;

        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            sum += (double)(float)p.x[p.e.at(k, i)];
        mean = block_sum(sum) / (double)n;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const double d = (double)(float)p.x[p.e.at(k, i)] - mean;

            square += d * d;
        }
        rstd = (float)(1.0 / sqrt(block_sum(square) / (double)n + (double)p.eps));
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t c = p.e.channel(k, i);
            const float v = (float)((double)(float)p.x[p.e.at(k, i)] - mean) * rstd;

            p.y[p.e.at(k, i)] =
                (T)(v * (p.weight ? p.weight[c] : 1.0f) + (p.bias ? p.bias[c] : 0.0f));
        }
        if (threadIdx.x == 0 && p.mean)
            p.mean[k] = (float)mean;
        if (threadIdx.x == 0 && p.rstd)
            p.rstd[k] = rstd;
    }
}

template <typename T> struct norm_grad {
    struct extents e;
    const T *x, *dy;
    const float *weight, *mean, *rstd; /* weight may be NULL */
    T *dx;
};

template <typename T> static __global__ void cuda_group_norm_grad_x(struct norm_grad<T> p)
{
    const int64_t n = p.e.pixels * p.e.d;

    for (int64_t k = blockIdx.x; k < p.e.n * p.e.groups; k += gridDim.x) {
        const float mean = p.mean[k], rstd = p.rstd[k];
        double plain = 0, product = 0;
        float avg, avg_product;

        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float d =
                (float)p.dy[p.e.at(k, i)] * (p.weight ? p.weight[p.e.channel(k, i)] : 1.0f);

            plain += (double)d;
            product += (double)d * (double)(((float)p.x[p.e.at(k, i)] - mean) * rstd);
        }
        avg = (float)(block_sum(plain) / (double)n);
        avg_product = (float)(block_sum(product) / (double)n);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const float d =
                (float)p.dy[p.e.at(k, i)] * (p.weight ? p.weight[p.e.channel(k, i)] : 1.0f);
            const float xhat = ((float)p.x[p.e.at(k, i)] - mean) * rstd;

            p.dx[p.e.at(k, i)] = (T)(rstd * (d - avg - xhat * avg_product));
        }
    }
}

template <typename T>
static __global__ void grad_weight(struct norm_grad<T> p, struct grad_array dweight,
                                   struct grad_array dbias)
{
    const int64_t n = p.e.n * p.e.pixels;

    for (int64_t c = blockIdx.x; c < p.e.c; c += gridDim.x) {
        double plain = 0, product = 0;

        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const int64_t k = i / p.e.pixels * p.e.groups + c / p.e.d;
            const float dy = (float)p.dy[i * p.e.c + c];

            plain += (double)dy;
            product += (double)dy * (double)(((float)p.x[i * p.e.c + c] - p.mean[k]) * p.rstd[k]);
        }
        plain = block_sum(plain);
        product = block_sum(product);
        if (threadIdx.x == 0 && dweight.at)
            dweight.put(c, product);
        if (threadIdx.x == 0 && dbias.at)
            dbias.put(c, plain);
    }
}

template <typename T> static void cuda_group_norm_run(const struct own *p)
{
    const struct extents e = cuda_group_norm_extents_of(p);
    const struct norm_groups<T> v = {
        e, p->attr.group_norm.eps, (const T *)p->in[GROUP_NORM_X],
            (const float *)p->in[GROUP_NORM_WEIGHT], (const float *)p->in[GROUP_NORM_BIAS],
            (T *)p->out[GROUP_NORM_Y], (float *)p->out[GROUP_NORM_MEAN],
            (float *)p->out[GROUP_NORM_RSTD]
    };

    LAUNCH((cuda_group_norm_normalise<T>), blocks_for(p, e.n * e.groups, 1),
           row_threads(e.pixels * e.d), p, v);
}

template <typename T> static void cuda_group_norm_run_grad(const struct own *p)
{
    const struct extents e = cuda_group_norm_extents_of(p);
    const struct norm_grad<T> v = {
        e, (const T *)p->in[GROUP_NORM_GRAD_X], (const T *)p->in[GROUP_NORM_GRAD_DY],
            (const float *)p->in[GROUP_NORM_GRAD_WEIGHT],
            (const float *)p->in[GROUP_NORM_GRAD_MEAN], (const float *)p->in[GROUP_NORM_GRAD_RSTD],
            (T *)p->out[GROUP_NORM_GRAD_DX]
    };

    if (v.dx)
        LAUNCH((cuda_group_norm_grad_x<T>), blocks_for(p, e.n * e.groups, 1),
               row_threads(e.pixels * e.d), p, v);
    if (p->out[GROUP_NORM_GRAD_DWEIGHT] || p->out[GROUP_NORM_GRAD_DBIAS])
        LAUNCH((grad_weight<T>), blocks_for(p, e.c, 1), row_threads(e.n * e.pixels), p, v,
               grad_of(p, GROUP_NORM_GRAD_DWEIGHT), grad_of(p, GROUP_NORM_GRAD_DBIAS));
}

extern "C" int cuda_make_group_norm(struct cuda *b, const struct graph *g, const struct node *n,
                                    struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_group_norm_run<float>, cuda_group_norm_run<bf16_t>,
                         cuda_group_norm_run<f16_t>),
                   0, out, err);
}

extern "C" int cuda_make_group_norm_grad(struct cuda *b, const struct graph *g,
                                         const struct node *n, struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_group_norm_run_grad<float>, cuda_group_norm_run_grad<bf16_t>,
                         cuda_group_norm_run_grad<f16_t>),
                   0, out, err);
}
