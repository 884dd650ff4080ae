/* lion - the update of Lion, by one pass over the parameters.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/lion.c has the formula; the twin is cpu/lion.c. */
#include "backend/cuda/update.cuh"

struct mean {
    double beta1, beta2;
};

/* `copy` is the working copy of the parameters, or NULL. */
template <typename G, typename C>
static __global__ void update(struct cuda_update u, struct mean m, float *param, const G *grad,
                              float *avg, C *copy)
{
    const float beta1 = (float)m.beta1, fresh1 = (float)(1 - m.beta1);
    const float beta2 = (float)m.beta2, fresh2 = (float)(1 - m.beta2);
    struct update_thread thread(&u);
    float keep = 1;

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {
        const float g = thread.gradient(grad, i);
        const float c = beta1 * avg[i] + fresh1 * g;

        if (thread.find(i))
            keep = (float)(1 - (double)thread.rate * (double)thread.decay);
        const float next =
            u.keep(i, param[i] * keep - thread.rate * (float)((c > 0) - (c < 0)), param[i]);

        avg[i] = beta2 * avg[i] + fresh2 * g;
        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void run(const struct own *p)
{
    struct mean m = {};

    if (p->n == 0)
        return;
    m.beta1 = p->attr.number[LION_ATTR_BETA1];
    m.beta2 = p->attr.number[LION_ATTR_BETA2];
    LAUNCH((update<G, C>), blocks_for(p, p->n, THREADS), THREADS, p, update_of(p), m,
           (float *)p->out[LION_NEW_PARAM], (const G *)p->in[LION_GRAD],
           (float *)p->out[LION_NEW_EXP_AVG], (C *)p->out[LION_NEW_COPY]);
}

extern "C" int cuda_make_lion(struct cuda *b, const struct graph *g, const struct node *n,
                              struct kernel **out, struct err *err)
{
    return own_new(b, g, n, UPDATE_RUN(g, n, run), 0, out, err);
}
