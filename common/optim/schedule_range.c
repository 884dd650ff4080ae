/* The schedule `range`: the rate grows by the same factor at each step, from schedule.first_lr to
 * schedule.last_lr, which it has at the job's last step.  A learning-rate range test (see/rates.h)
 * trains by it.  optimizer.lr has no effect. */
#include "optim/schedule.h"

#include <math.h>

#include "base/util.h"

#define AT(field) offsetof(struct schedule_range_options, field)

static const struct option rows[] = {
    {"schedule.first_lr", OPT_REAL, AT(first_lr), "1e-6", 0, 1e6, .flags = OPT_ABOVE,
     .help = "The rate of the first step."},
    {"schedule.last_lr", OPT_REAL, AT(last_lr), "10", 0, 1e6, .flags = OPT_ABOVE,
     .help = "The rate of the last step."},
};

static double schedule_range_rate(const void *options, const struct schedule_at *at)
{
    const struct schedule_range_options *o = options;
    const double part = (double)at->since / (double)max_i64(at->rest - 1, 1);

    return o->first_lr * pow(o->last_lr / o->first_lr, fmin(part, 1));
}

const struct schedule schedule_range = {
    .group = {.name = "range",
              .help = "from first_lr to last_lr, times the same factor at each step",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct schedule_range_options)},
    .rate = schedule_range_rate,
};
