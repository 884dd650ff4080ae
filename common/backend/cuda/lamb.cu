/* lamb - the update of LAMB in three launches: one brings the moments forward and adds up the norms
 * of each tensor's blocks, one makes each tensor's step of them, and one moves the parameters.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/lamb.h has the formula; the twin is cpu/lamb.c. */
#include "backend/cuda/update.cuh"

extern "C" {
#include "op/lamb.h"
}

struct norms {
    double *param, *r; /* [blocks]: sums of squares */
    double *step;      /* [rows]: rate * f * ratio */
};

template <typename G>
static __global__ void cuda_lamb_forward_moments(struct cuda_update u, union node_attr attr,
                                                 const float *param, const G *grad, float *avg,
                                                 float *sq, struct norms norms)
{
    const struct lamb_terms m = lamb_terms(attr.number, u.scalars->n_updates);
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
            float next_avg = avg[i], next_sq = sq[i];

            lamb_forward(&m, g, &next_avg, &next_sq);
            const double way = (double)lamb_direction(&m, param[i], next_avg, next_sq, decay);

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
static __global__ void cuda_lamb_make_steps(struct cuda_update u, union node_attr attr,
                                            struct norms norms)
{
    const double factor = lamb_terms(attr.number, u.scalars->n_updates).rate;

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
            norms.step[row] =
                (double)(u.scalars->rate * (float)settings[SEGMENT_RATE]) * factor *
                lamb_ratio(param, r, attr.number[LAMB_ATTR_LEAST], attr.number[LAMB_ATTR_MOST]);
    }
}

/* `copy` is the working copy of the parameters, or NULL. */
template <typename C>
static __global__ void cuda_lamb_move(struct cuda_update u, union node_attr attr, float *param,
                                      const float *avg, const float *sq, C *copy,
                                      struct norms norms)
{
    const struct lamb_terms m = lamb_terms(attr.number, u.scalars->n_updates);
    struct update_thread thread(&u);
    float step = 0;

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {
        if (thread.find(i))
            step = (float)norms.step[thread.row];
        const float next =
            u.keep(i, param[i] - step * lamb_direction(&m, param[i], avg[i], sq[i], thread.decay),
                   param[i]);

        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void cuda_lamb_run(const struct own *p)
{
    const struct cuda_update u = update_of(p);
    const int64_t n_blocks = update_blocks(u.n, u.n_segments);
    double *scratch = (double *)p->scratch;
    const struct norms norms = {scratch, scratch + n_blocks, scratch + 2 * n_blocks};

    if (p->n == 0)
        return;
    LAUNCH(cuda_lamb_forward_moments<G>, blocks_for(p, n_blocks, 1), THREADS, p, u, p->attr,
           (const float *)p->out[LAMB_NEW_PARAM], (const G *)p->in[LAMB_GRAD],
           (float *)p->out[LAMB_NEW_EXP_AVG], (float *)p->out[LAMB_NEW_EXP_AVG_SQ], norms);
    LAUNCH(cuda_lamb_make_steps, blocks_for(p, u.n_segments, 1), THREADS, p, u, p->attr, norms);
    LAUNCH(cuda_lamb_move<C>, blocks_for(p, p->n, THREADS), THREADS, p, u, p->attr,
           (float *)p->out[LAMB_NEW_PARAM], (const float *)p->out[LAMB_NEW_EXP_AVG],
           (const float *)p->out[LAMB_NEW_EXP_AVG_SQ], (C *)p->out[LAMB_NEW_COPY], norms);
}

extern "C" int cuda_make_lamb(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    const int64_t n_rows = cuda_in(g, n, UPDATE_SEGMENTS)->dim[0];
    const int64_t n_blocks = update_blocks(shape_elements(cuda_in(g, n, UPDATE_PARAM)), n_rows);

    return own_new(b, g, n, UPDATE_RUN(g, n, cuda_lamb_run),
                   (size_t)(2 * n_blocks + n_rows) * sizeof(double), out, err);
}
