/* LAMB, for large batches: AdamW whose steps are scaled to each tensor's norm.
 * The update's formula is in op/lamb.c. */
#include "base/util.h"
#include "optim/optimizer.h"

struct lamb_options {
    double lr;
    struct option_reals betas;
    double eps, weight_decay;
};

#define AT(field) offsetof(struct lamb_options, field)

static const struct option rows[] = {
    OPTIMIZER_LR("1e-3"),
    {"optimizer.betas", OPT_REALS, AT(betas), "[0.9, 0.999]", 0, 1, .flags = OPT_BELOW, .count = 2,
     .help = "The parts of the gradient's mean and of its mean square that go on."},
    {"optimizer.eps", OPT_REAL, AT(eps), "1e-6", 0, 1,
     .help = "Added to the root of the mean square, by which the mean is divided."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0.01", 0, 1e3,
     .help = "This times the weight is added to its direction, before the norms are taken."},
};

static void numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct lamb_options *o = options;

    number[LAMB_ATTR_BETA1] = o->betas.v[0];
    number[LAMB_ATTR_BETA2] = o->betas.v[1];
    number[LAMB_ATTR_EPS] = o->eps;
}

static double lr(const void *options) { return ((const struct lamb_options *)options)->lr; }

static double weight_decay(const void *options)
{
    return ((const struct lamb_options *)options)->weight_decay;
}

const struct optimizer optimizer_lamb = {
    .group = {.name = "lamb",
              .help = "Adam, its steps scaled to each tensor's norm",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct lamb_options)},
    .op = OP_lamb,
    .whole_tensors = 1,
    .slots = optimizer_two_moments,
    .numbers = numbers,
    .lr = lr,
    .weight_decay = weight_decay,
};
