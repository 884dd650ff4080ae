/* lamb - the update of LAMB in three launches: one brings the moments forward and adds up the norms
 * of each tensor's blocks, one makes each tensor's step of them, and one moves the parameters.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/lamb.c has the formula; the twin is cpu/lamb.c. */
#include "backend/cuda/update.cuh"

extern "C" {
#include "op/lamb.h"
}

struct moments {
    double beta1, beta2;
    float eps;
    double least, most, corrects;

    __device__ struct lamb_scales scales(int64_t t) const
    {
        return lamb_scales(beta1, beta2, corrects, t);
    }
};

struct norms {
    double *param, *r; /* [blocks]: sums of squares */
    double *step;      /* [rows]: rate * f * ratio */
};

/* The terms of the direction r that do not depend on the element. */
struct direction {
    float lift1, correction2, eps;

    __device__ direction(struct moments m, int64_t t)
        : lift1((float)m.scales(t).lift1), correction2((float)m.scales(t).correction2), eps(m.eps)
    {
    }

    __device__ float at(float param, float avg, float sq, float decay) const
    {
        return lift1 * avg / (sqrtf(sq) / correction2 + eps) + decay * param;
    }
};

template <typename G>
static __global__ void forward_moments(struct cuda_update u, struct moments m, const float *param,
                                       const G *grad, float *avg, float *sq, struct norms norms)
{
    const float fresh1 = (float)(1 - m.beta1), beta2 = (float)m.beta2;
    const float fresh2 = (float)(1 - m.beta2);
    const struct direction r(m, u.scalars->n_updates + 1);
    struct update_thread thread(&u);

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t number = blockIdx.x; number < update_blocks(u.n, u.n_segments);
         number += gridDim.x) {
        const struct update_block b = update_block_at(u.segments, u.n_segments, number);
        const float decay = (float)u.segments[b.row * SEGMENT_COLUMNS + SEGMENT_DECAY];
        double param_sum = 0, r_sum = 0;

        for (int64_t i = b.from + threadIdx.x; i < b.to; i += blockDim.x) {
            const float g = thread.gradient(grad, i);
            const float next_avg = avg[i] + fresh1 * (g - avg[i]);
            const float next_sq = beta2 * sq[i] + fresh2 * (g * g);
            const double way = (double)r.at(param[i], next_avg, next_sq, decay);

            avg[i] = next_avg;
            sq[i] = next_sq;
            param_sum += (double)param[i] * (double)param[i];
            r_sum += way * way;
        }
        param_sum = block_sum(param_sum);
        r_sum = block_sum(r_sum);
        if (threadIdx.x == 0) {
            norms.param[number] = param_sum;
            norms.r[number] = r_sum;
        }
    }
}

/* A block of threads for each row. */
static __global__ void make_steps(struct cuda_update u, struct moments m, struct norms norms)
{
    const double factor = m.scales(u.scalars->n_updates + 1).rate;

    for (int64_t row = blockIdx.x; row < u.n_segments; row += gridDim.x) {
        const double *settings = u.segments + row * SEGMENT_COLUMNS;
        const int64_t first = update_first_block(u.segments, row);
        const int64_t length = (int64_t)settings[SEGMENT_END] - update_row_start(u.segments, row);
        const int64_t n_blocks = (length + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
        double param = 0, r = 0;

        for (int64_t k = threadIdx.x; k < n_blocks; k += blockDim.x) {
            param += norms.param[first + k];
            r += norms.r[first + k];
        }
        param = block_sum(param);
        r = block_sum(r);
        if (threadIdx.x == 0)
            norms.step[row] = (double)(u.scalars->rate * (float)settings[SEGMENT_RATE]) * factor *
                              lamb_ratio(param, r, m.least, m.most);
    }
}

/* `copy` is the working copy of the parameters, or NULL. */
template <typename C>
static __global__ void move(struct cuda_update u, struct moments m, float *param, const float *avg,
                            const float *sq, C *copy, struct norms norms)
{
    const struct direction r(m, u.scalars->n_updates + 1);
    struct update_thread thread(&u);
    float step = 0;

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {
        if (thread.find(i))
            step = (float)norms.step[thread.row];
        const float next =
            u.keep(i, param[i] - step * r.at(param[i], avg[i], sq[i], thread.decay), param[i]);

        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void run(const struct own *p)
{
    const struct cuda_update u = update_of(p);
    const int64_t n_blocks = update_blocks(u.n, u.n_segments);
    double *scratch = (double *)p->scratch;
    const struct norms norms = {scratch, scratch + n_blocks, scratch + 2 * n_blocks};
    struct moments m = {};

    if (p->n == 0)
        return;
    m.beta1 = p->attr.number[LAMB_ATTR_BETA1];
    m.beta2 = p->attr.number[LAMB_ATTR_BETA2];
    m.eps = (float)p->attr.number[LAMB_ATTR_EPS];
    m.least = p->attr.number[LAMB_ATTR_LEAST];
    m.most = p->attr.number[LAMB_ATTR_MOST];
    m.corrects = p->attr.number[LAMB_ATTR_CORRECTS];
    LAUNCH(forward_moments<G>, blocks_for(p, n_blocks, 1), THREADS, p, u, m,
           (const float *)p->out[LAMB_NEW_PARAM], (const G *)p->in[LAMB_GRAD],
           (float *)p->out[LAMB_NEW_EXP_AVG], (float *)p->out[LAMB_NEW_EXP_AVG_SQ], norms);
    LAUNCH(make_steps, blocks_for(p, u.n_segments, 1), THREADS, p, u, m, norms);
    LAUNCH(move<C>, blocks_for(p, p->n, THREADS), THREADS, p, u, m, (float *)p->out[LAMB_NEW_PARAM],
           (const float *)p->out[LAMB_NEW_EXP_AVG], (const float *)p->out[LAMB_NEW_EXP_AVG_SQ],
           (C *)p->out[LAMB_NEW_COPY], norms);
}

extern "C" int cuda_make_lamb(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const int64_t n_rows = cuda_in(g, n, UPDATE_SEGMENTS)->dim[0];
    const int64_t n_blocks = update_blocks(shape_elements(cuda_in(g, n, UPDATE_PARAM)), n_rows);

    return own_new(b, g, n, UPDATE_RUN(g, n, run), (size_t)(2 * n_blocks + n_rows) * sizeof(double),
                   out, err);
}
