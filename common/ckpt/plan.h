/* plan - the steps after which a job asks for checkpoints, by checkpoint.every_steps and
 * every_epochs.  Checkpoints of a stop, of --checkpoint-now and of train.best are not planned.
 *
 * Threads: any. */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H

#include <stdint.h>

struct ckpt_plan {
    int64_t every_steps, every_epochs; /* 0: none by these */
    int64_t steps_per_epoch;           /* 0: nothing is planned */
};

/* The step of the newest planned checkpoint once `done` steps are done; 0: none is due yet.  At an
 * epoch's end, one that is due by its steps comes a step later, unless the epoch itself is saved.
 */
int64_t ckpt_plan_newest(const struct ckpt_plan *p, int64_t done);

#endif
