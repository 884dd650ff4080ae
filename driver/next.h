/* next - proposes limits for training longer, for the command that a finished run prints.
 *
 * Threads: any; pure. */
#ifndef DRIVER_NEXT_H
#define DRIVER_NEXT_H

#include "job/job.h"

struct next {
    int64_t epochs, max_steps; /* 0: leave the limit as it is */
};

/* The run has done `step` steps, with `steps_per_epoch` in each epoch (0: not known), and has
 * trained all that `t` asks for.  The limit that ended the run is raised to twice what is done. The
 * other limit is raised only if it would end the run before that. */
struct next next_limits(const struct job_train *t, int64_t step, int64_t steps_per_epoch);

#endif
