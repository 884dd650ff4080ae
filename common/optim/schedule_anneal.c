/* The schedules `cosine` and `linear`: the rate goes down to schedule.min_lr, which it reaches at
 * the job's end. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

static const struct option rows[] = {
    {"schedule.min_lr", OPT_REAL, offsetof(struct schedule_anneal_options, min_lr), "0", 0, 1e6,
     .help = "The rate at the job's end."},
};

static double schedule_anneal_cosine(const void *options, const struct schedule_at *at)
{
    const struct schedule_anneal_options *o = options;

    return o->min_lr +
           (at->peak - o->min_lr) * (1.0 + cos(3.14159265358979323846 * at->progress)) / 2.0;
}

static double schedule_anneal_linear(const void *options, const struct schedule_at *at)
{
    const struct schedule_anneal_options *o = options;

    return at->peak + (o->min_lr - at->peak) * at->progress;
}

const struct schedule schedule_cosine = {
    .group = {.name = "cosine",
              .help = "down along a cosine until the job's end",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_anneal_options)},
    .lead = SCHEDULE_LEAD_1,
    .rate = schedule_anneal_cosine,
};

const struct schedule schedule_linear = {
    .group = {.name = "linear",
              .help = "down along a line until the job's end",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_anneal_options)},
    .lead = SCHEDULE_LEAD_0,
    .rate = schedule_anneal_linear,
};
