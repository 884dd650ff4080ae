/* adamw - the update of AdamW and Adam, by one pass over the parameters.
 *
 * op/adamw.c has the formula and the order of its operations; the twin is cuda/adamw.cu. */
#include "backend/cpu/update.h"

struct moments {
    float beta1, fresh1;    /* beta1, 1 - beta1 */
    float beta2, fresh2;    /* beta2, 1 - beta2 */
    float correction2, eps; /* sqrt(1 - beta2^t) */
    float keep, rate;       /* 1 - rate * decay; rate / (1 - beta1^t) */
    float pull;             /* weight decay as part of the gradient; with it, keep is 1 */
};

static struct moments moments_of(const struct plain *p, const struct cpu_update *u)
{
    const struct step_scalars *s = p->in[ADAMW_SCALARS];
    const double beta1 = p->attr.number[ADAMW_ATTR_BETA1];
    const double beta2 = p->attr.number[ADAMW_ATTR_BETA2];
    const int coupled = p->attr.number[ADAMW_ATTR_COUPLED] != 0;

    return (struct moments){
        .beta1 = (float)beta1,
        .fresh1 = (float)(1 - beta1),
        .beta2 = (float)beta2,
        .fresh2 = (float)(1 - beta2),
        .correction2 = (float)sqrt(1 - update_power(beta2, s->n_updates + 1)),
        .eps = (float)p->attr.number[ADAMW_ATTR_EPS],
        .keep = coupled ? 1.0f : (float)(1 - (double)u->rate * (double)u->decay),
        .rate = (float)((double)u->rate / (1 - update_power(beta1, s->n_updates + 1))),
        .pull = coupled ? u->decay : 0.0f,
    };
}

CPU_CLONES static void update_adamw(struct cpu_update u, struct moments m, float *restrict param,
                                    const float *restrict grad, float *restrict avg,
                                    float *restrict sq)
{
    for (int64_t i = 0; i < u.n; i++) {
        float g = grad[i] * u.unscale, step;

        if (u.clip != 1.0f)
            g = g * u.clip;
        if (m.pull != 0.0f)
            g = g + m.pull * param[i];
        avg[i] = avg[i] + m.fresh1 * (g - avg[i]);
        sq[i] = m.beta2 * sq[i] + m.fresh2 * (g * g);
        step = m.rate * avg[i] / (sqrtf(sq[i]) / m.correction2 + m.eps);
        param[i] = param[i] * m.keep - step;
    }
}

/* The same where the gradient's array holds means of the gradient. */
CPU_CLONES static void update_means(struct cpu_update u, struct moments m, float *restrict param,
                                    const float *restrict mean, float *restrict avg,
                                    const float *restrict sq)
{
    for (int64_t i = 0; i < u.n; i++) {
        const float kept = m.beta1 * avg[i];
        float step;

        avg[i] = u.unscale == 1.0f ? mean[i] : kept + (mean[i] - kept) * u.unscale;
        step = m.rate * avg[i] / (sqrtf(sq[i]) / m.correction2 + m.eps);
        param[i] = param[i] * m.keep - step;
    }
}

static int has_means(const struct plain *p)
{
    const struct step_scalars *s = p->in[ADAMW_SCALARS];
    const double from = p->attr.number[ADAMW_ATTR_MEANS_FROM];

    return from > 0 && (double)s->n_updates >= from;
}

static void update_one(const struct plain *p, const struct cpu_update *u)
{
    const struct moments m = moments_of(p, u);
    float *param = update_at(p->out[ADAMW_NEW_PARAM], u);
    float *avg = update_at(p->out[ADAMW_NEW_EXP_AVG], u);
    float *sq = update_at(p->out[ADAMW_NEW_EXP_AVG_SQ], u);

    if (has_means(p))
        update_means(*u, m, param, u->grad, avg, sq);
    else
        update_adamw(*u, m, param, u->grad, avg, sq);
}

static void update_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    (void)part;
    update_ranges(p, from, to, update_one);
}

static void run(const struct plain *p) { update_run(p, 16, update_part); }

int cpu_make_adamw(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                   struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
