/* Adam and AdamW, as torch.optim.Adam and torch.optim.AdamW without amsgrad.  They differ in the
 * weight decay: Adam adds it to the gradient, AdamW applies it to the parameters.  The update's
 * formula is in op/adamw.c. */
#include "base/util.h"
#include "optim/optimizer.h"

struct adamw_options {
    double lr;
    struct option_reals betas;
    double eps, weight_decay;
};

#define AT(field) offsetof(struct adamw_options, field)

/* The rows of both, up to the weight decay. */
#define MEAN_ROWS                                                                         \
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
    MEAN_ROWS,
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0", 0, 1e3,
     .help = "This times the weight is added to its gradient."},
};

static const struct option adamw_rows[] = {
    OPTIMIZER_LR("1e-3"),
    MEAN_ROWS,
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0.01", 0, 1e3,
     .help = "Each weight shrinks by this times the learning rate, apart from its gradient."},
};

static void numbers_adamw(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct adamw_options *o = options;

    number[ADAMW_ATTR_BETA1] = o->betas.v[0];
    number[ADAMW_ATTR_BETA2] = o->betas.v[1];
    number[ADAMW_ATTR_EPS] = o->eps;
    number[ADAMW_ATTR_COUPLED] = 0;
}

static void numbers_adam(const void *options, double number[NODE_MAX_NUMBERS])
{
    numbers_adamw(options, number);
    number[ADAMW_ATTR_COUPLED] = 1;
}

static double lr(const void *options) { return ((const struct adamw_options *)options)->lr; }

static double weight_decay(const void *options)
{
    return ((const struct adamw_options *)options)->weight_decay;
}

const struct optimizer optimizer_adam = {
    .group = {.name = "adam",
              .help = "Adam, its weight decay part of the gradient",
              .option = adam_rows,
              .n_options = ARRAY_LEN(adam_rows),
              .size = sizeof(struct adamw_options)},
    .op = OP_adamw,
    .slots = optimizer_two_moments,
    .numbers = numbers_adam,
    .lr = lr,
    .weight_decay = weight_decay,
};

const struct optimizer optimizer_adamw = {
    .group = {.name = "adamw",
              .help = "Adam with decoupled weight decay",
              .option = adamw_rows,
              .n_options = ARRAY_LEN(adamw_rows),
              .size = sizeof(struct adamw_options)},
    .op = OP_adamw,
    .slots = optimizer_two_moments,
    .numbers = numbers_adamw,
    .lr = lr,
    .weight_decay = weight_decay,
};
