/* adamw - the update of AdamW and Adam, by one pass over the parameters.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/adamw.c has the formula; the twin is cpu/adamw.c. */
#include "backend/cuda/update.cuh"

struct moments {
    double beta1, beta2;
    float eps;
    bool coupled;      /* weight decay is part of the gradient */
    double means_from; /* 0: never */
};

/* The mean of the gradient, of which `kept` comes from the steps before; only the rest is scaled.
 */
static __device__ inline float mean_of(float kept, float mean, float unscale)
{
    return unscale == 1.0f ? mean : kept + (mean - kept) * unscale;
}

/* `copy` is the working copy of the parameters, or NULL. */
template <typename G, typename C>
static __global__ void update(struct cuda_update u, struct moments m, float *param, const G *grad,
                              float *avg, float *sq, C *copy)
{
    const int64_t t = u.scalars->n_updates + 1;
    const float fresh1 = (float)(1 - m.beta1), beta2 = (float)m.beta2;
    const float fresh2 = (float)(1 - m.beta2);
    const double correction1 = 1 - update_power(m.beta1, t);
    const float correction2 = (float)sqrt(1 - update_power(m.beta2, t));
    const float beta1 = (float)m.beta1;
    const bool has_means = m.means_from > 0 && (double)(t - 1) >= m.means_from;
    struct update_thread thread(&u);
    float keep = 1, rate = 0;

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {
        float g = thread.gradient(grad, i);

        if (thread.find(i)) {
            keep = m.coupled ? 1.0f : (float)(1 - (double)thread.rate * (double)thread.decay);
            rate = (float)((double)thread.rate / correction1);
        }
        if (m.coupled && thread.decay != 0.0f)
            g = g + thread.decay * param[i];
        float next_avg = avg[i] + fresh1 * (g - avg[i]);
        float next_sq = beta2 * sq[i] + fresh2 * (g * g);

        if (has_means) {
            next_avg = mean_of(beta1 * avg[i], (float)grad[i], thread.unscale);
            next_sq = sq[i];
        }

        const float step = rate * next_avg / (sqrtf(next_sq) / correction2 + m.eps);
        const float next = u.keep(i, param[i] * keep - step, param[i]);

        avg[i] = next_avg;
        sq[i] = next_sq;
        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void run(const struct own *p)
{
    struct moments m = {};

    if (p->n == 0)
        return;
    m.beta1 = p->attr.number[ADAMW_ATTR_BETA1];
    m.beta2 = p->attr.number[ADAMW_ATTR_BETA2];
    m.eps = (float)p->attr.number[ADAMW_ATTR_EPS];
    m.means_from = p->attr.number[ADAMW_ATTR_MEANS_FROM];
    m.coupled = p->attr.number[ADAMW_ATTR_COUPLED] != 0;
    LAUNCH((update<G, C>), blocks_for(p, p->n, THREADS), THREADS, p, update_of(p), m,
           (float *)p->out[ADAMW_NEW_PARAM], (const G *)p->in[ADAMW_GRAD],
           (float *)p->out[ADAMW_NEW_EXP_AVG], (float *)p->out[ADAMW_NEW_EXP_AVG_SQ],
           (C *)p->out[ADAMW_NEW_COPY]);
}

extern "C" int cuda_make_adamw(struct cuda *b, const struct graph *g, const struct node *n,
                               struct kernel **out, struct err *err)
{
    return own_new(b, g, n, UPDATE_RUN(g, n, run), 0, out, err);
}
