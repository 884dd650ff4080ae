/* Stochastic gradient descent with momentum, as torch.optim.SGD.
 * The formula of its update is in op/sgd.c. */
#include "optim/sgd.h"

#include "base/util.h"

#define AT(field) offsetof(struct sgd_options, field)

static const struct option rows[] = {
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

static int check(const void *options, struct err *err)
{
    const struct sgd_options *o = options;

    if (!o->nesterov || (o->momentum > 0 && o->dampening <= 0))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "optimizer.nesterov needs optimizer.momentum above 0 and optimizer.dampening 0; "
                   "they are %g and %g",
                   o->momentum, o->dampening);
}

static const struct slot_def momentum = {.name = "momentum",
                                         .suffix = ".momentum_buffer", /* as in PyTorch's state */
                                         .scope = SLOT_PER_TRAINED,
                                         .dtype = DTYPE_F32,
                                         .file = SLOT_IN_OPTIMIZER,
                                         .is_hashed = 1,
                                         .is_broadcast = 1};

static int slots(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    const struct sgd_options *o = options;

    out[0] = &momentum;
    return o->momentum > 0;
}

static void numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct sgd_options *o = options;

    number[SGD_ATTR_MOMENTUM] = o->momentum;
    number[SGD_ATTR_DAMPENING] = o->dampening;
    number[SGD_ATTR_NESTEROV] = o->nesterov;
}

static double lr(const void *options) { return ((const struct sgd_options *)options)->lr; }

static double weight_decay(const void *options)
{
    return ((const struct sgd_options *)options)->weight_decay;
}

const struct optimizer optimizer_sgd = {
    .group = {.name = "sgd",
              .help = "stochastic gradient descent",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct sgd_options),
              .check = check},
    .op = OP_sgd,
    .slots = slots,
    .numbers = numbers,
    .lr = lr,
    .weight_decay = weight_decay,
};
