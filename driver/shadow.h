/* shadow - a run directory that is the past of another one: as that was when a checkpoint had just
 * been written.  A driver that resumes it does the same steps again, and writes nothing to the run.
 *
 * Threads: main's. */
#ifndef DRIVER_SHADOW_H
#define DRIVER_SHADOW_H

#include <stdint.h>

#include "base/err.h"
#include "ckpt/plan.h"

/* The step of the newest checkpoint of `run` that was written before `step` was done; 0: there is
 * none.  plan: only its checkpoints count, because a shadow has none before the one with which it
 * begins, and must not go back to that one unless the run did; NULL: all count.  Nothing is said
 * about its content. */
int64_t shadow_checkpoint(const char *run, int64_t step, const struct ckpt_plan *plan);

/* Fails with ERR_CORRUPT, ERR_IO if the checkpoint of that step is damaged; *err names the file. */
int shadow_check(const char *run, int64_t step, struct err *err);

/* The newest step that events and checkpoints of `run` tell of; 0: they tell of none. */
int64_t shadow_last_step(const char *run);

/* Make the folder `path`: job and network of `run`, its events up to `step`, and links to the files
 * of its checkpoint of that step (0: none).  Fails with ERR_IO, ERR_CONFIG. */
int shadow_make(const char *run, int64_t step, const char *path, struct err *err);

/* Fails with ERR_CONFIG if the run went back (train.on_spike) from a step from which its shadow in
 * the folder `path` went back, too, but to another checkpoint: what followed is not the run's then;
 * with ERR_IO if either's events cannot be read. */
int shadow_check_backs(const char *run, const char *path, struct err *err);

/* A rate of --set-live that a run had from the step on that follows `step` done ones. */
struct shadow_rate {
    int64_t step;
    double lr;
};

/* The rates of `run` that came after `from` steps and before `to` were done, by rising step, for
 * free(); *n: how many.  Fails with ERR_IO. */
int shadow_rates(const char *run, int64_t from, int64_t to, struct shadow_rate **out, int *n,
                 struct err *err);

/* The driver that goes on with the folder `path` from `step` on gives this rate. */
int shadow_give_rate(const char *path, int64_t step, const struct shadow_rate *rate,
                     struct err *err);

#endif
