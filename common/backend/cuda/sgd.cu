/* One pass over the parameters, every operation rounded by itself (compiled without contraction),
 * so that replicas stay equal; formula in op/sgd.c, twin cpu/sgd.c. */
#include "backend/cuda/device.cuh"

struct sgd_rule {
    const double *check;
    const float *control, *scaler; /* scaler NULL: none */
    const struct step_scalars *scalars;
    float decay, momentum, undamped;
    int nesterov;
};

static __device__ float scale_of(const struct sgd_rule *u)
{
    return u->scaler ? u->scaler[SCALER_SCALE] : 1.0f;
}

static __device__ float clip_of(const struct sgd_rule *u)
{
    const double norm = sqrt(u->check[0]) / (double)scale_of(u);

    if (!(u->scalars->clip_norm > 0.0f))
        return 1.0f;
    return (float)fmin(1.0, (double)u->scalars->clip_norm / (norm + 1e-6));
}

/* buf: the momentum, or NULL; copy: the parameters rounded, or NULL. */
template <typename G, typename C>
static __global__ void update(struct sgd_rule u, float *param, const G *grad, float *buf, C *copy,
                              int64_t n)
{
    const float clip = clip_of(&u), rate = u.scalars->rate, unscale = 1.0f / scale_of(&u);
    const bool first_update = u.scalars->first_update != 0;

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < n; i += grid_stride()) {
        float g = (float)grad[i] * unscale, next;

        if (clip != 1.0f)
            g = g * clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        if (buf) {
            next = first_update ? g : u.momentum * buf[i] + u.undamped * g;
            buf[i] = next;
            g = u.nesterov ? g + u.momentum * next : next;
        }
        next = param[i] - rate * g;
        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void run(const struct own *p)
{
    struct sgd_rule u = {};

    if (p->n == 0)
        return;
    u.check = (const double *)p->in[SGD_CHECK];
    u.control = (const float *)p->in[SGD_CONTROL];
    u.scalars = (const struct step_scalars *)p->in[SGD_SCALARS];
    u.scaler = (const float *)p->in[SGD_SCALER];
    u.decay = p->attr.sgd.weight_decay;
    u.momentum = p->attr.sgd.momentum;
    u.undamped = 1.0f - p->attr.sgd.dampening;
    u.nesterov = p->attr.sgd.nesterov;
    LAUNCH((update<G, C>), blocks_for(p, p->n, THREADS), THREADS, p, u,
           (float *)p->out[SGD_NEW_PARAM], (const G *)p->in[SGD_GRAD],
           (float *)p->out[SGD_NEW_MOMENTUM], (C *)p->out[SGD_NEW_COPY], p->n);
}

/* By the type of the copies (none: float), and whether the gradient is of it. */
extern "C" int cuda_make_sgd(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    const bool is_wide = g->value[n->in[SGD_GRAD]].dtype == DTYPE_F32;

    return own_new(b, g, n,
                   is_wide ? typed(g, n, run<float, float>, run<float, bf16_t>, run<float, f16_t>)
                           : typed(g, n, run<float, float>, run<bf16_t, bf16_t>, run<f16_t, f16_t>),
                   0, out, err);
}
