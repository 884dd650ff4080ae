/* softmax - a block for each line, which is what lies along the dimension.
 *
 * op/softmax.c has the formulas; the twin is cpu/softmax.c. */
#include "backend/cuda/largest.cuh"

/* Lines of n elements, `step` apart. */
struct lines {
    int64_t n_lines, n, step;
    bool is_log, is_safe;

    __device__ int64_t first(int64_t line) const { return line / step * n * step + line % step; }
};

template <typename T> static __global__ void cuda_softmax_forward(struct lines l, const T *x, T *y)
{
    for (int64_t line = blockIdx.x; line < l.n_lines; line += gridDim.x) {
        const int64_t at = l.first(line);
        float most = -INFINITY, factor;
        double sum = 0;

        for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x)
            most = larger((float)x[at + i * l.step], most);
        most = block_largest(most);
        if (l.is_safe && most == -INFINITY)
            most = INFINITY; /* e^(x - most) is 0 everywhere */
        for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x)
            sum += (double)expf((float)x[at + i * l.step] - most);
        sum = block_sum(sum);
        factor = (float)(l.is_log ? log(sum) : l.is_safe && sum == 0 ? 0 : 1 / sum);
        for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x) {
            const float v = (float)x[at + i * l.step] - most;

            y[at + i * l.step] = (T)(l.is_log ? v - factor : expf(v) * factor);
        }
    }
}

template <typename T>
static __global__ void cuda_softmax_backward(struct lines l, const T *y, const T *dy, T *dx)
{
    for (int64_t line = blockIdx.x; line < l.n_lines; line += gridDim.x) {
        const int64_t at = l.first(line);
        double sum = 0;

        for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x)
            sum += (double)(float)dy[at + i * l.step] *
                   (l.is_log ? 1.0 : (double)(float)y[at + i * l.step]);
        sum = block_sum(sum);
        for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x) {
            const float v = (float)y[at + i * l.step], d = (float)dy[at + i * l.step];

            dx[at + i * l.step] = (T)(l.is_log ? d - expf(v) * (float)sum : v * (d - (float)sum));
        }
    }
}

static struct lines lines_of(const struct own *p)
{
    const struct shape *s = &p->in_shape[0];
    struct lines l = {0, s->dim[p->attr.softmax.dim], 1, p->attr.softmax.log != 0,
                      p->attr.softmax.safe != 0};

    for (int d = p->attr.softmax.dim + 1; d < s->n; d++)
        l.step *= s->dim[d];
    l.n_lines = p->n / l.n;
    return l;
}

template <typename T> static void cuda_softmax_run(const struct own *p)
{
    const struct lines l = lines_of(p);

    LAUNCH((cuda_softmax_forward<T>), blocks_for(p, l.n_lines, 1), row_threads(l.n), p, l,
           (const T *)p->in[SOFTMAX_X], (T *)p->out[SOFTMAX_Y]);
}

template <typename T> static void cuda_softmax_run_grad(const struct own *p)
{
    const struct lines l = lines_of(p);

    LAUNCH((cuda_softmax_backward<T>), blocks_for(p, l.n_lines, 1), row_threads(l.n), p, l,
           (const T *)p->in[SOFTMAX_GRAD_Y], (const T *)p->in[SOFTMAX_GRAD_DY],
           (T *)p->out[SOFTMAX_GRAD_DX]);
}

extern "C" int cuda_make_softmax(struct cuda *b, const struct graph *g, const struct node *n,
                                 struct kernel **out, struct err *err)
{
    return own_new(
        b, g, n,
        typed(g, n, cuda_softmax_run<float>, cuda_softmax_run<bf16_t>, cuda_softmax_run<f16_t>), 0,
        out, err);
}

extern "C" int cuda_make_softmax_grad(struct cuda *b, const struct graph *g, const struct node *n,
                                      struct kernel **out, struct err *err)
{
    return own_new(b, g, n,
                   typed(g, n, cuda_softmax_run_grad<float>, cuda_softmax_run_grad<bf16_t>,
                         cuda_softmax_run_grad<f16_t>),
                   0, out, err);
}
