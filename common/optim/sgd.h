/* sgd - stochastic gradient descent with momentum, as torch.optim.SGD: the formula of its update
 * and its entry (optim/optimizer.h).
 *
 *   Slot: momentum? [n], written momentum' here, because an option has the same name.
 *   Numbers: momentum, dampening, nesterov (1: yes)
 *
 *   g = g + the segment's weight decay * param     (skipped when that is 0)
 *   with the slot momentum:
 *     momentum' = scalars.n_updates == 0 ? g : momentum * momentum' + (1 - dampening) * g
 *     g = nesterov ? g + momentum * momentum' : momentum'
 *   param = param - rate * g
 *
 * Threads: pure; the entry is constant. */
#ifndef OPTIM_SGD_H
#define OPTIM_SGD_H

#include "op/rule.h"

enum { RULE_WORK_sgd = 4 };

struct sgd_terms {
    float momentum, undamped; /* undamped: 1 - dampening */
    float rate, decay;
    int is_nesterov, is_first;
};

OP_BOTH static inline struct sgd_terms sgd_begin(const double *number, int64_t n_updates)
{
    struct sgd_terms m;

    m.momentum = (float)number[SGD_ATTR_MOMENTUM];
    m.undamped = 1.0f - (float)number[SGD_ATTR_DAMPENING];
    m.is_nesterov = number[SGD_ATTR_NESTEROV] != 0;
    m.is_first = n_updates == 0;
    m.rate = m.decay = 0;
    return m;
}

OP_BOTH static inline void sgd_row(struct sgd_terms *m, float rate, float decay)
{
    m->rate = rate;
    m->decay = decay;
}

OP_BOTH static inline void sgd_step(const struct sgd_terms *m, struct sgd_element *e)
{
    float g = e->g;

    if (m->decay != 0.0f)
        g = g + m->decay * e->param;
    if (e->is_whole) {
        e->momentum = m->is_first ? g : m->momentum * e->momentum + m->undamped * g;
        g = m->is_nesterov ? g + m->momentum * e->momentum : e->momentum;
    }
    e->param = e->param - m->rate * g;
}

/* The options, with PyTorch's meanings. */
struct sgd_options {
    double lr;
    double momentum;
    double dampening;
    double weight_decay;
    int nesterov;
};

#ifdef OPTIMIZER_ENTRIES /* only in the source that optim/meson.build makes of this file */

#include "base/util.h"
#include "optim/optimizer.h"

#define AT(field) offsetof(struct sgd_options, field)

static const struct option sgd_rows[] = {
    OPTIMIZER_LR("0.1"),
    {"optimizer.momentum", OPT_REAL, AT(momentum), "0", 0, 1, .flags = OPT_BELOW,
     .help = "The part of the last update that is added to this one."},
    {"optimizer.dampening", OPT_REAL, AT(dampening), "0", 0, 1,
     .help = "The gradient enters the momentum times 1 minus this."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0", 0, 1e3,
     .help = "This times the weight is added to its gradient."},
    {"optimizer.nesterov", OPT_BOOL, AT(nesterov), "false",
     .help = "Nesterov's momentum: look ahead by one update."},
};

static int sgd_check(const void *options, struct err *err)
{
    const struct sgd_options *o = options;

    if (!o->nesterov || (o->momentum > 0 && o->dampening <= 0))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "optimizer.nesterov needs optimizer.momentum above 0 and optimizer.dampening 0; "
                   "they are %g and %g",
                   o->momentum, o->dampening);
}

static const struct slot_def sgd_momentum = {.name = "momentum",
                                             .suffix =
                                                 ".momentum_buffer", /* as in PyTorch's state */
                                             .scope = SLOT_PER_TRAINED,
                                             .dtype = DTYPE_F32,
                                             .file = SLOT_IN_OPTIMIZER,
                                             .is_hashed = 1,
                                             .is_broadcast = 1};

static int sgd_slots(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    const struct sgd_options *o = options;

    out[0] = &sgd_momentum;
    return o->momentum > 0;
}

static void sgd_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct sgd_options *o = options;

    number[SGD_ATTR_MOMENTUM] = o->momentum;
    number[SGD_ATTR_DAMPENING] = o->dampening;
    number[SGD_ATTR_NESTEROV] = o->nesterov;
}

const struct optimizer optimizer_sgd = {
    .group = {.name = "sgd",
              .help = "stochastic gradient descent",
              .option = sgd_rows,
              .n_options = ARRAY_LEN(sgd_rows),
              .size = sizeof(struct sgd_options),
              .check = sgd_check},
    .deepspeed = {"SGD"},
    .op = OP_sgd,
    .slots = sgd_slots,
    .numbers = sgd_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
};

#endif
#endif
