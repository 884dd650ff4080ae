/* sgd - the update of SGD, by one pass over the parameters.
 *
 * op/sgd.c has the formula and the order of its operations; the twin is cuda/sgd.cu. */
#include "backend/cpu/update.h"

CPU_CLONES static void update_plain(struct cpu_update u, float *restrict param,
                                    const float *restrict grad)
{
    for (int64_t i = 0; i < u.n; i++) {
        float g = grad[i] * u.unscale;

        if (u.clip != 1.0f)
            g = g * u.clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        param[i] = param[i] - u.rate * g;
    }
}

struct inertia {
    float momentum, undamped;
    int nesterov, is_first;
};

CPU_CLONES static void update_momentum(struct cpu_update u, struct inertia m, float *restrict param,
                                       const float *restrict grad, float *restrict buf)
{
    for (int64_t i = 0; i < u.n; i++) {
        float g = grad[i] * u.unscale;

        if (u.clip != 1.0f)
            g = g * u.clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        buf[i] = m.is_first ? g : m.momentum * buf[i] + m.undamped * g;
        g = m.nesterov ? g + m.momentum * buf[i] : buf[i];
        param[i] = param[i] - u.rate * g;
    }
}

static void update_one(const struct plain *p, const struct cpu_update *u)
{
    const struct step_scalars *s = p->in[SGD_SCALARS];
    const struct inertia m = {.momentum = (float)p->attr.number[SGD_ATTR_MOMENTUM],
                              .undamped = 1.0f - (float)p->attr.number[SGD_ATTR_DAMPENING],
                              .nesterov = p->attr.number[SGD_ATTR_NESTEROV] != 0,
                              .is_first = s->n_updates == 0};
    float *param = update_at(p->out[SGD_NEW_PARAM], u);
    const float *grad = u->grad;

    if (p->in[SGD_MOMENTUM])
        update_momentum(*u, m, param, grad, update_at(p->out[SGD_NEW_MOMENTUM], u));
    else
        update_plain(*u, param, grad);
}

static void update_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    update_ranges(p, from, to, update_one);
}

static void run(const struct plain *p) { update_run(p, 4, update_part); }

int cpu_make_sgd(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
