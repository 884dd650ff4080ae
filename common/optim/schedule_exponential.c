/* The schedule `exponential`, as torch.optim.lr_scheduler.ExponentialLR: the rate is multiplied by
 * gamma after each epoch, or each time after a given number of steps. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

#define AT(field) offsetof(struct schedule_step_options, field)

static const struct option rows[] = {
    {"schedule.every_steps", OPT_INT, AT(every_steps), "0", 0, 1e12, .unit = "steps",
     .help =
         "The rate is multiplied by gamma after every so many steps; with 0, after each epoch."},
    {"schedule.gamma", OPT_REAL, AT(gamma), NULL, 0, 1, .flags = OPT_ABOVE | OPT_REQUIRED,
     .help = "The number by which the rate is multiplied."},
};

static double schedule_exponential_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_step_options *o = options;
    const int64_t every = o->every_steps > 0 ? o->every_steps : at->span->steps_per_epoch;

    return at->peak * pow(o->gamma, (double)(at->step / max_i64(every, 1)));
}

const struct schedule schedule_exponential = {
    .group = {.name = "exponential",
              .help = "times gamma after each epoch",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_step_options)},
    .rate = schedule_exponential_rate,
};
