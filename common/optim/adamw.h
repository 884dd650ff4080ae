/* adamw - Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW without amsgrad: the formula of
 * their update and their entries (optim/optimizer.h).  They differ in the weight decay: Adam adds
 * it to the gradient, AdamW applies it to the parameters (Loshchilov, Hutter 2019, algorithm 2).
 *
 *   Slots: exp_avg [n], exp_avg_sq [n].
 *   Numbers: beta1, beta2, eps; coupled: 1 for Adam, 0 for AdamW; means_from
 *
 *   t = scalars.n_updates + 1
 *   Adam:   g = g + the segment's weight decay * param         (skipped when that is 0)
 *   AdamW:  param = param * (1 - rate * the segment's weight decay)
 *   exp_avg = exp_avg + (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   param = param - rate / (1 - beta1^t) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^t) + eps)
 *
 * With means_from > 0, from the update on before which scalars.n_updates is means_from
 * (strategy/qadam.c), grad holds x = beta1 * exp_avg + (1 - beta1) * the gradient, and
 *
 *   exp_avg = beta1 * exp_avg + (x - beta1 * exp_avg) / the gradient's factor     (x if that is 1)
 *
 * exp_avg_sq stays as it is then, Adam adds no weight decay to the gradient, and nothing is
 * clipped.
 *
 * Threads: pure; the entries are constant. */
#ifndef OPTIM_ADAMW_H
#define OPTIM_ADAMW_H

#include "op/rule.h"

enum { RULE_WORK_adamw = 16 };

struct adamw_terms {
    float beta1, fresh1;    /* beta1, 1 - beta1 */
    float beta2, fresh2;    /* beta2, 1 - beta2 */
    double correction1;     /* 1 - beta1^t */
    float correction2, eps; /* sqrt(1 - beta2^t) */
    float keep, rate;       /* 1 - rate * decay; rate / (1 - beta1^t) */
    float pull;             /* weight decay as part of the gradient; with it, keep is 1 */
    int is_coupled, has_means;
};

OP_BOTH static inline struct adamw_terms adamw_begin(const double *number, int64_t n_updates)
{
    const double beta1 = number[ADAMW_ATTR_BETA1], beta2 = number[ADAMW_ATTR_BETA2];
    const double means_from = number[ADAMW_ATTR_MEANS_FROM];
    struct adamw_terms m;

    m.beta1 = (float)beta1;
    m.fresh1 = (float)(1 - beta1);
    m.beta2 = (float)beta2;
    m.fresh2 = (float)(1 - beta2);
    m.correction1 = 1 - update_power(beta1, n_updates + 1);
    m.correction2 = (float)sqrt(1 - update_power(beta2, n_updates + 1));
    m.eps = (float)number[ADAMW_ATTR_EPS];
    m.is_coupled = number[ADAMW_ATTR_COUPLED] != 0;
    m.has_means = means_from > 0 && (double)n_updates >= means_from;
    m.keep = 1;
    m.rate = m.pull = 0;
    return m;
}

OP_BOTH static inline void adamw_row(struct adamw_terms *m, float rate, float decay)
{
    m->keep = m->is_coupled ? 1.0f : (float)(1 - (double)rate * (double)decay);
    m->pull = m->is_coupled ? decay : 0.0f;
    m->rate = (float)((double)rate / m->correction1);
}

OP_BOTH static inline void adamw_step(const struct adamw_terms *m, struct adamw_element *e)
{
    float step;

    if (m->has_means) {
        const float kept = m->beta1 * e->exp_avg;

        e->exp_avg = e->unscale == 1.0f ? e->grad : kept + (e->grad - kept) * e->unscale;
    } else {
        const float g = m->pull != 0.0f ? e->g + m->pull * e->param : e->g;

        e->exp_avg = e->exp_avg + m->fresh1 * (g - e->exp_avg);
        e->exp_avg_sq = m->beta2 * e->exp_avg_sq + m->fresh2 * (g * g);
    }
    step = m->rate * e->exp_avg / (sqrtf(e->exp_avg_sq) / m->correction2 + m->eps);
    e->param = e->param * m->keep - step;
}

#ifdef OPTIMIZER_ENTRIES /* only in the source that optim/meson.build makes of this file */

#include "base/util.h"
#include "optim/optimizer.h"

struct adamw_options {
    double lr;
    struct option_reals betas;
    double eps, weight_decay;
};

#define AT(field) offsetof(struct adamw_options, field)

/* The rows of both, up to the weight decay. */
#define ADAMW_MEANS                                                                       \
    {"optimizer.betas",                                                                   \
     OPT_REALS,                                                                           \
     AT(betas),                                                                           \
     "[0.9, 0.999]",                                                                      \
     0,                                                                                   \
     1,                                                                                   \
     .flags = OPT_BELOW,                                                                  \
     .count = 2,                                                                          \
     .help = "The parts of the gradient's mean and of its mean square that go on."},      \
    {                                                                                     \
        "optimizer.eps", OPT_REAL, AT(eps), "1e-8", 0, 1,                                 \
            .help = "Added to the root of the mean square, by which the mean is divided." \
    }

static const struct option adam_rows[] = {
    OPTIMIZER_LR("1e-3"),
    ADAMW_MEANS,
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0", 0, 1e3,
     .help = "This times the weight is added to its gradient."},
};

static const struct option adamw_rows[] = {
    OPTIMIZER_LR("1e-3"),
    ADAMW_MEANS,
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0.01", 0, 1e3,
     .help = "Each weight shrinks by this times the learning rate, apart from its gradient."},
};

static void adamw_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct adamw_options *o = options;

    number[ADAMW_ATTR_BETA1] = o->betas.v[0];
    number[ADAMW_ATTR_BETA2] = o->betas.v[1];
    number[ADAMW_ATTR_EPS] = o->eps;
    number[ADAMW_ATTR_COUPLED] = 0;
}

static void adam_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    adamw_numbers(options, number);
    number[ADAMW_ATTR_COUPLED] = 1;
}

const struct optimizer optimizer_adam = {
    .group = {.name = "adam",
              .help = "Adam, its weight decay part of the gradient",
              .option = adam_rows,
              .n_options = ARRAY_LEN(adam_rows),
              .size = sizeof(struct adamw_options)},
    .op = OP_adamw,
    .slots = optimizer_two_moments,
    .numbers = adam_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
};

const struct optimizer optimizer_adamw = {
    .group = {.name = "adamw",
              .help = "Adam with decoupled weight decay",
              .option = adamw_rows,
              .n_options = ARRAY_LEN(adamw_rows),
              .size = sizeof(struct adamw_options)},
    .deepspeed = {"Adam", "AdamW", "FusedAdam"},
    .op = OP_adamw,
    .slots = optimizer_two_moments,
    .numbers = adamw_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
};

#endif
#endif
