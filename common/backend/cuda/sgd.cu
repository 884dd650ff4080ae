/* One pass over the parameters, every operation rounded by itself (compiled without contraction),
 * so that replicas stay equal; formula in op/sgd.c, twin cpu/sgd.c. */
#include "backend/cuda/device.cuh"

struct sgd_rule {
    const double *check;
    const float *control;
    const struct step_scalars *scalars;
    float decay, momentum, undamped;
    int nesterov;
};

static __device__ float clip_of(const struct sgd_rule *u)
{
    if (!(u->scalars->clip_norm > 0.0f))
        return 1.0f;
    return (float)fmin(1.0, (double)u->scalars->clip_norm / (sqrt(u->check[0]) + 1e-6));
}

/* buf: the momentum, or NULL. */
static __global__ void update(struct sgd_rule u, float *param, const float *grad, float *buf,
                              int64_t n)
{
    const float clip = clip_of(&u), rate = u.scalars->rate;
    const bool first_update = u.scalars->first_update != 0;

    if (!step_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        float g = grad[i];

        if (clip != 1.0f)
            g = g * clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        if (buf) {
            const float next = first_update ? g : u.momentum * buf[i] + u.undamped * g;

            buf[i] = next;
            g = u.nesterov ? g + u.momentum * next : next;
        }
        param[i] = param[i] - rate * g;
    }
}

static void run(const struct own *p)
{
    struct sgd_rule u = {};

    if (p->n == 0)
        return;
    u.check = (const double *)p->in[3];
    u.control = (const float *)p->in[4];
    u.scalars = (const struct step_scalars *)p->in[5];
    u.decay = p->attr.sgd.weight_decay;
    u.momentum = p->attr.sgd.momentum;
    u.undamped = 1.0f - p->attr.sgd.dampening;
    u.nesterov = p->attr.sgd.nesterov;
    LAUNCH(update, blocks_for(p, p->n, THREADS), THREADS, p, u, (float *)p->out[0],
           (const float *)p->in[1], (float *)p->out[1], p->n);
}

extern "C" int cuda_make_sgd(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, run, 0, out, err);
}
