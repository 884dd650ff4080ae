/* The schedule `constant`: after the warm-up the rate does not change.  This schedule has no keys
 * of its own. */
#include "optim/schedule.h"

static double schedule_constant_rate(const void *options, const struct schedule_at *at)
{
    (void)options;
    return at->peak;
}

const struct schedule schedule_constant = {
    .group = {.name = "constant", .help = "the same rate"},
    .lead = SCHEDULE_LEAD_0,
    .rate = schedule_constant_rate,
};
