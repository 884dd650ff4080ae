/* lion - the update of Lion, by one pass over the parameters.
 *
 * op/lion.c has the formula and the order of its operations; the twin is cuda/lion.cu. */
#include "backend/cpu/update.h"

struct mean {
    float beta1, fresh1, beta2, fresh2; /* fresh: 1 - beta */
    float keep;                         /* 1 - rate * decay */
};

CPU_CLONES static void update_lion(struct cpu_update u, struct mean m, float *restrict param,
                                   const float *restrict grad, float *restrict avg)
{
    for (int64_t i = 0; i < u.n; i++) {
        float g = grad[i] * u.unscale, c;

        if (u.clip != 1.0f)
            g = g * u.clip;
        c = m.beta1 * avg[i] + m.fresh1 * g;
        param[i] = param[i] * m.keep - u.rate * (float)((c > 0) - (c < 0));
        avg[i] = m.beta2 * avg[i] + m.fresh2 * g;
    }
}

static void update_one(const struct plain *p, const struct cpu_update *u)
{
    const double beta1 = p->attr.number[LION_ATTR_BETA1], beta2 = p->attr.number[LION_ATTR_BETA2];
    const struct mean m = {.beta1 = (float)beta1,
                           .fresh1 = (float)(1 - beta1),
                           .beta2 = (float)beta2,
                           .fresh2 = (float)(1 - beta2),
                           .keep = (float)(1 - (double)u->rate * (double)u->decay)};

    update_lion(*u, m, update_at(p->out[LION_NEW_PARAM], u), u->grad,
                update_at(p->out[LION_NEW_EXP_AVG], u));
}

static void update_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    update_ranges(p, from, to, update_one);
}

static void run(const struct plain *p) { update_run(p, 8, update_part); }

int cpu_make_lion(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                  struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
