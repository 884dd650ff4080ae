/* The schedule `step`: the rate is multiplied by gamma each time after a given number of steps or
 * epochs, counted from the job's first step. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

#define AT(field) offsetof(struct schedule_step_options, field)

static const struct option rows[] = {
    {"schedule.every_steps", OPT_INT, AT(every_steps), "0", 0, 1e12, .unit = "steps",
     .help = "The rate is multiplied by gamma after every so many steps; 0 if it goes by epochs."},
    {"schedule.every_epochs", OPT_INT, AT(every_epochs), "0", 0, 1e6, .unit = "epochs",
     .help = "The rate is multiplied by gamma after every so many epochs; 0 if it goes by steps."},
    {"schedule.gamma", OPT_REAL, AT(gamma), "0.1", 0, 1, .flags = OPT_ABOVE,
     .help = "The number by which the rate is multiplied."},
};

static double schedule_step_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_step_options *o = options;
    const int64_t every =
        o->every_steps > 0 ? o->every_steps : o->every_epochs * at->span->steps_per_epoch;

    return at->peak * pow(o->gamma, (double)(at->step / max_i64(every, 1)));
}

static int schedule_step_check(const void *options, struct err *err)
{
    const struct schedule_step_options *o = options;

    if ((o->every_steps > 0) != (o->every_epochs > 0))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "schedule.name step needs one of schedule.every_steps and "
                   "schedule.every_epochs above 0; they are %lld and %lld",
                   (long long)o->every_steps, (long long)o->every_epochs);
}

const struct schedule schedule_step = {
    .group = {.name = "step",
              .help = "times gamma now and then",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_step_options),
              .check = schedule_step_check},
    .rate = schedule_step_rate,
};
