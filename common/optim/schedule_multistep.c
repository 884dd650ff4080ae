/* The schedule `multistep`, as torch.optim.lr_scheduler.MultiStepLR: the rate is multiplied by
 * gamma at each milestone, a number of steps or epochs from the job's first step on. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

#define AT(field) offsetof(struct schedule_multistep_options, field)

static const struct option rows[] = {
    {"schedule.milestone_epochs", OPT_INTS, AT(epochs), "[]", 1, 1e6, .unit = "epochs",
     .help = "The rate is multiplied by gamma after these epochs; [] for milestones by steps."},
    {"schedule.milestone_steps", OPT_INTS, AT(steps), "[]", 1, 1e12, .unit = "steps",
     .help = "The rate is multiplied by gamma after these steps; [] for milestones by epochs."},
    {"schedule.gamma", OPT_REAL, AT(gamma), "0.1", 0, 1, .flags = OPT_ABOVE,
     .help = "The number by which the rate is multiplied."},
};

/* Milestones that lie at or before step `at`; `unit` is in steps. */
static int schedule_multistep_passed(const struct option_ints *milestones, int64_t unit, int64_t at)
{
    int n = 0;

    for (int i = 0; i < milestones->n; i++)
        n += milestones->v[i] <= at / unit;
    return n;
}

static double schedule_multistep_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_multistep_options *o = options;
    const int n = o->steps.n > 0 ? schedule_multistep_passed(&o->steps, 1, at->step)
                                 : schedule_multistep_passed(
                                       &o->epochs, max_i64(at->span->steps_per_epoch, 1), at->step);

    return at->peak * pow(o->gamma, n);
}

static int schedule_multistep_check(const void *options, struct err *err)
{
    const struct schedule_multistep_options *o = options;

    if ((o->epochs.n > 0) != (o->steps.n > 0))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "schedule.name multistep needs one of schedule.milestone_epochs and "
                   "schedule.milestone_steps; %s given",
                   o->epochs.n > 0 ? "both are" : "none is");
}

const struct schedule schedule_multistep = {
    .group = {.name = "multistep",
              .help = "times gamma at each milestone",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_multistep_options),
              .check = schedule_multistep_check},
    .rate = schedule_multistep_rate,
};
