/* sgd - the update of SGD, by one pass over the parameters.
 *
 * Every operation is rounded by itself (compiled without contraction), so replicas stay equal.
 * op/sgd.c has the formula; the twin is cpu/sgd.c. */
#include "backend/cuda/update.cuh"

struct inertia {
    float momentum, undamped;
    bool nesterov;
};

/* `buf` is the momentum, or NULL; `copy` is the working copy of the parameters, or NULL. */
template <typename G, typename C>
static __global__ void update(struct cuda_update u, struct inertia m, float *param, const G *grad,
                              float *buf, C *copy)
{
    const bool is_first = u.scalars->n_updates == 0;
    struct update_thread t(&u);

    if (!control_applies(u.check, u.control))
        return;
    for (int64_t i = grid_first(); i < u.n; i += grid_stride()) {
        float g = t.gradient(grad, i), next;

        t.find(i);
        if (t.decay != 0.0f)
            g = g + t.decay * param[i];
        if (buf) {
            next = is_first ? g : m.momentum * buf[i] + m.undamped * g;
            buf[i] = next;
            g = m.nesterov ? g + m.momentum * next : next;
        }
        next = u.keep(i, param[i] - t.rate * g, param[i]);
        param[i] = next;
        if (copy)
            copy[i] = (C)next;
    }
}

template <typename G, typename C> static void run(const struct own *p)
{
    struct inertia m = {};

    if (p->n == 0)
        return;
    m.momentum = (float)p->attr.number[SGD_ATTR_MOMENTUM];
    m.undamped = 1.0f - (float)p->attr.number[SGD_ATTR_DAMPENING];
    m.nesterov = p->attr.number[SGD_ATTR_NESTEROV] != 0;
    LAUNCH((update<G, C>), blocks_for(p, p->n, THREADS), THREADS, p, update_of(p), m,
           (float *)p->out[SGD_NEW_PARAM], (const G *)p->in[SGD_GRAD],
           (float *)p->out[SGD_NEW_MOMENTUM], (C *)p->out[SGD_NEW_COPY]);
}

extern "C" int cuda_make_sgd(struct cuda *b, const struct graph *g, const struct node *n,
                             struct kernel **out, struct err *err)
{
    return own_new(b, g, n, UPDATE_RUN(g, n, run), 0, out, err);
}
