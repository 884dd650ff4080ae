/* Lion: the update is the sign of a mean of gradients, and one moment is kept instead of Adam's
 * two. The update's formula is in op/lion.c. */
#include "base/util.h"
#include "optim/optimizer.h"

struct lion_options {
    double lr;
    struct option_reals betas;
    double weight_decay;
};

#define AT(field) offsetof(struct lion_options, field)

static const struct option rows[] = {
    OPTIMIZER_LR("1e-4"),
    {"optimizer.betas", OPT_REALS, AT(betas), "[0.9, 0.99]", 0, 1, .flags = OPT_BELOW, .count = 2,
     .help = "The parts of the gradient's mean that go on: in the update, and in the mean that "
             "is kept."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0", 0, 1e3,
     .help = "Each weight shrinks by this times the learning rate, apart from its gradient."},
};

static const struct slot_def mean = {.name = "exp_avg",
                                     .suffix = ".exp_avg",
                                     .scope = SLOT_PER_TRAINED,
                                     .dtype = DTYPE_F32,
                                     .file = SLOT_IN_OPTIMIZER,
                                     .is_hashed = 1,
                                     .is_broadcast = 1};

static int slots(const void *options, const struct slot_def *out[OPTIMIZER_MAX_SLOTS])
{
    (void)options;
    out[0] = &mean;
    return 1;
}

static void numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct lion_options *o = options;

    number[LION_ATTR_BETA1] = o->betas.v[0];
    number[LION_ATTR_BETA2] = o->betas.v[1];
}

static double lr(const void *options) { return ((const struct lion_options *)options)->lr; }

static double weight_decay(const void *options)
{
    return ((const struct lion_options *)options)->weight_decay;
}

const struct optimizer optimizer_lion = {
    .group = {.name = "lion",
              .help = "the sign of the mean gradient",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct lion_options)},
    .op = OP_lion,
    .slots = slots,
    .numbers = numbers,
    .lr = lr,
    .weight_decay = weight_decay,
};
