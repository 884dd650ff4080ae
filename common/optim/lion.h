/* lion - Lion (Chen and others 2023, "Symbolic discovery of optimization algorithms", algorithm 2):
 * the formula of its update and its entry (optim/optimizer.h).  The update is the sign of a mean of
 * gradients, so each parameter moves by the rate, whatever the size of its gradient.  One moment is
 * kept instead of Adam's two.
 *
 *   Slot: exp_avg [n].
 *   Numbers: beta1, beta2
 *
 *   c = beta1 * exp_avg + (1 - beta1) * g
 *   param = param * (1 - rate * the segment's weight decay) - rate * sign(c),  sign(0) = 0
 *   exp_avg = beta2 * exp_avg + (1 - beta2) * g
 *
 * The factor of the weight decay is made in double and rounded once.
 *
 * Threads: pure; the entry is constant. */
#ifndef OPTIM_LION_H
#define OPTIM_LION_H

#include "op/rule.h"

enum { RULE_WORK_lion = 8 };

struct lion_terms {
    float beta1, fresh1, beta2, fresh2; /* fresh: 1 - beta */
    float rate, keep;                   /* keep: 1 - rate * decay */
};

OP_BOTH static inline struct lion_terms lion_begin(const double *number, int64_t n_updates)
{
    const double beta1 = number[LION_ATTR_BETA1], beta2 = number[LION_ATTR_BETA2];
    struct lion_terms m;

    (void)n_updates;
    m.beta1 = (float)beta1;
    m.fresh1 = (float)(1 - beta1);
    m.beta2 = (float)beta2;
    m.fresh2 = (float)(1 - beta2);
    m.rate = 0;
    m.keep = 1;
    return m;
}

OP_BOTH static inline void lion_row(struct lion_terms *m, float rate, float decay)
{
    m->rate = rate;
    m->keep = (float)(1 - (double)rate * (double)decay);
}

OP_BOTH static inline void lion_step(const struct lion_terms *m, struct lion_element *e)
{
    const float c = m->beta1 * e->exp_avg + m->fresh1 * e->g;

    e->param = e->param * m->keep - m->rate * (float)((c > 0) - (c < 0));
    e->exp_avg = m->beta2 * e->exp_avg + m->fresh2 * e->g;
}

#ifdef OPTIMIZER_ENTRIES /* only in the source that optim/meson.build makes of this file */

#include "base/util.h"
#include "optim/optimizer.h"

struct lion_options {
    double lr;
    struct option_reals betas;
    double weight_decay;
};

#define AT(field) offsetof(struct lion_options, field)

static const struct option lion_rows[] = {
    OPTIMIZER_LR("1e-4"),
    {"optimizer.betas", OPT_REALS, AT(betas), "[0.9, 0.99]", 0, 1, .flags = OPT_BELOW, .count = 2,
     .help = "The parts of the gradient's mean that go on: in the update, and in the mean that "
             "is kept."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0", 0, 1e3,
     .help = "Each weight shrinks by this times the learning rate, apart from its gradient."},
};

static void lion_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct lion_options *o = options;

    number[LION_ATTR_BETA1] = o->betas.v[0];
    number[LION_ATTR_BETA2] = o->betas.v[1];
}

const struct optimizer optimizer_lion = {
    .group = {.name = "lion",
              .help = "the sign of the mean gradient",
              .option = lion_rows,
              .n_options = ARRAY_LEN(lion_rows),
              .size = sizeof(struct lion_options)},
    .deepspeed = {"Lion"},
    .deepspeed_default = {{"optimizer.betas", "0.9, 0.999", 1}},
    .op = OP_lion,
    .slots = optimizer_one_moment,
    .numbers = lion_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
};

#endif
#endif
