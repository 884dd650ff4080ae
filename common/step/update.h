/* update - the end of a step: control vector, rounding of sums, check, clipping, optimizer.
 *
 * These are small programs over the flat parameter space, the same for every batch size.  A backend
 * runs them like any other kernels, so a device does not wait for the host.
 *
 * If slots are divided among the ranks, an update belongs to the shards that this rank holds now,
 * with one program for each bucket and shard.  When the state is divided anew, a new update is
 * made.
 *
 * Life:    update_new -> pack, round, apply ... -> update_free.
 * Threads: the engine's. */
#ifndef STEP_UPDATE_H
#define STEP_UPDATE_H

#include "job/job.h"
#include "step/buffers.h"

struct update; /* opaque */

int update_new(const struct job *job, struct backend *b, const struct state *s,
               const struct buffers *m, struct update **out, struct err *err);
void update_free(struct update *u); /* NULL is fine */

/* Write this rank's metrics and requests to the control vector at the end of the gradients. */
int update_pack(struct update *u, struct err *err);

/* grad = sum, rounded to its type, over one bucket's range (without the control vector); after the
 * last micro-batch. */
int update_round(struct update *u, int bucket, struct err *err);

/* Make the working copies anew, after something other than update_apply changed the parameters. */
int update_refresh(struct update *u, struct err *err);

/* With shards, after all reductions: write the check of this rank's own shard to
 * buffers->numbers->check.  The caller replaces it by its sum over all ranks before update_apply.
 */
int update_check(struct update *u, struct err *err);

/* After all reductions: check the gradient (with shards update_check has done that), clip it,
 * update parameters, slots and working copies, and commit the running statistics.  None of these
 * change if anything is not finite, or if the step is void.  Then compute the next loss scale, and
 * write the step's results to buffers->results. */
int update_apply(struct update *u, struct err *err);

#endif
