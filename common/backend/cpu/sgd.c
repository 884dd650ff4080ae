/* One pass over the parameters; every operation rounds by itself, so all ranks get the same bits
 * (op/sgd.c gives the order). */
#include <math.h>
#include <string.h>

#include "backend/cpu/plain.h"

struct rule {
    float unscale, clip, decay, rate, momentum, undamped;
    int nesterov;
};

CPU_CLONES static void update_plain(struct rule u, float *restrict param,
                                    const float *restrict grad, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * u.unscale;

        if (u.clip != 1.0f)
            g = g * u.clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        param[i] = param[i] - u.rate * g;
    }
}

CPU_CLONES static void update_momentum(struct rule u, int first, float *restrict param,
                                       const float *restrict grad, float *restrict buf, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * u.unscale;

        if (u.clip != 1.0f)
            g = g * u.clip;
        if (u.decay != 0.0f)
            g = g + u.decay * param[i];
        buf[i] = first ? g : u.momentum * buf[i] + u.undamped * g;
        g = u.nesterov ? g + u.momentum * buf[i] : buf[i];
        param[i] = param[i] - u.rate * g;
    }
}

static struct rule rule_of(const struct plain *p)
{
    const double *check = p->in[SGD_CHECK];
    const struct step_scalars *s = p->in[SGD_SCALARS];
    const float scale = p->in[SGD_SCALER] ? ((const float *)p->in[SGD_SCALER])[SCALER_SCALE] : 1.0f;
    struct rule u = {.unscale = 1.0f / scale,
                     .clip = 1.0f,
                     .decay = p->attr.sgd.weight_decay,
                     .rate = s->rate,
                     .momentum = p->attr.sgd.momentum,
                     .undamped = 1.0f - p->attr.sgd.dampening,
                     .nesterov = p->attr.sgd.nesterov};

    if (s->clip_norm > 0.0f)
        u.clip = (float)fmin(1.0, (double)s->clip_norm / (sqrt(check[0]) / (double)scale + 1e-6));
    return u;
}

static void update_part(const struct plain *p, int part, int64_t from, int64_t to)
{
    const struct step_scalars *s = p->in[SGD_SCALARS];
    const float *grad = (const float *)p->in[SGD_GRAD] + from;
    float *param = (float *)p->out[SGD_NEW_PARAM] + from;

    (void)part;
    if (p->in[SGD_MOMENTUM])
        update_momentum(rule_of(p), s->first_update, param, grad,
                        (float *)p->out[SGD_NEW_MOMENTUM] + from, to - from);
    else
        update_plain(rule_of(p), param, grad, to - from);
    if (p->out[SGD_NEW_COPY]) /* F32, as all here is */
        memcpy((float *)p->out[SGD_NEW_COPY] + from, param, (size_t)(to - from) * sizeof *param);
}

static void run(const struct plain *p)
{
    if (control_applies(p->in[SGD_CHECK], p->in[SGD_CONTROL]))
        plain_split(p, p->c, p->c / 4, update_part);
}

int cpu_make_sgd(struct cpu *b, const struct graph *g, const struct node *n, struct kernel **out,
                 struct err *err)
{
    return plain_new_split(b, g, n, run, 0, 0, out, err);
}
