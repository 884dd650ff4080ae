/* LAMB, for large batches: AdamW whose steps are scaled to each tensor's norm.
 * The update's formula is in op/lamb.c.  DeepSpeed's FusedLamb is this with bias_correction rate,
 * min_trust 0.01 and max_trust 10. */
#include <math.h>

#include "base/util.h"
#include "op/lamb.h"
#include "optim/optimizer.h"

struct lamb_options {
    double lr;
    struct option_reals betas;
    double eps, weight_decay, min_trust, max_trust;
    enum lamb_correction correction;
};

static const char *const corrections[] = {[LAMB_CORRECTS_DIRECTION] = "direction",
                                          [LAMB_CORRECTS_RATE] = "rate",
                                          [LAMB_CORRECTS_NOTHING] = "none",
                                          NULL};

#define AT(field) offsetof(struct lamb_options, field)

static const struct option rows[] = {
    OPTIMIZER_LR("1e-3"),
    {"optimizer.betas", OPT_REALS, AT(betas), "[0.9, 0.999]", 0, 1, .flags = OPT_BELOW, .count = 2,
     .help = "The parts of the gradient's mean and of its mean square that go on."},
    {"optimizer.eps", OPT_REAL, AT(eps), "1e-6", 0, 1,
     .help = "Added to the root of the mean square, by which the mean is divided."},
    {"optimizer.weight_decay", OPT_REAL, AT(weight_decay), "0.01", 0, 1e3,
     .help = "This times the weight is added to its direction, before the norms are taken."},
    {"optimizer.min_trust", OPT_REAL, AT(min_trust), "0", 0, 1e9, .also = "min_coeff",
     .help = "The least factor that a tensor's norm, divided by that of its direction, gives its "
             "step."},
    {"optimizer.max_trust", OPT_REAL, AT(max_trust), "0", 0, 1e9, .also = "max_coeff",
     .help = "The largest such factor; with 0 there is no such bound."},
    {"optimizer.bias_correction", OPT_CHOICE, AT(correction), "direction", .choices = corrections,
     .help = "Where the means' beginning at 0 is made up for: in the direction, before its norm is "
             "taken; in the rate, as DeepSpeed's FusedLamb does; or nowhere."},
};

static void lamb_numbers(const void *options, double number[NODE_MAX_NUMBERS])
{
    const struct lamb_options *o = options;

    number[LAMB_ATTR_BETA1] = o->betas.v[0];
    number[LAMB_ATTR_BETA2] = o->betas.v[1];
    number[LAMB_ATTR_EPS] = o->eps;
    number[LAMB_ATTR_LEAST] = o->min_trust;
    number[LAMB_ATTR_MOST] = o->max_trust > 0 ? o->max_trust : HUGE_VAL;
    number[LAMB_ATTR_CORRECTS] = o->correction;
}

static int lamb_check(const void *options, struct err *err)
{
    const struct lamb_options *o = options;

    if (o->max_trust == 0 || o->min_trust <= o->max_trust)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "optimizer.min_trust is %g, want at most optimizer.max_trust, %g", o->min_trust,
                   o->max_trust);
}

const struct optimizer optimizer_lamb = {
    .group = {.name = "lamb",
              .help = "Adam, its steps scaled to each tensor's norm",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct lamb_options),
              .check = lamb_check},
    .deepspeed = {"Lamb"},
    .deepspeed_default = {{"optimizer.eps", "1e-8", 0},
                          {"optimizer.min_trust", "0.01", 0},
                          {"optimizer.max_trust", "10", 0}},
    .op = OP_lamb,
    .whole_tensors = 1,
    .slots = optimizer_two_moments,
    .numbers = lamb_numbers,
    .lr = AT(lr),
    .weight_decay = AT(weight_decay),
};
