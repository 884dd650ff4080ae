/* next - how much longer a run may train next, for the command that a finished run shows.
 *
 * Threads: any; pure. */
#ifndef DRIVER_NEXT_H
#define DRIVER_NEXT_H

#include "job/job.h"

struct next {
    int64_t epochs, max_steps; /* 0: as it is now */
};

/* The run has done `step` steps, of `steps_per_epoch` each epoch (0: not known), and trained all
 * that `t` asks for.  The limit that ended it is raised to twice what is done; the other one is
 * raised only if it would end the run before that. */
struct next next_limits(const struct job_train *t, int64_t step, int64_t steps_per_epoch);

#endif
