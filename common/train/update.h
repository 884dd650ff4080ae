/* update - the end of a step: control vector, sum of micro-batches, check, clipping, optimizer.
 *
 * These are small programs over the flat spaces, the same for every batch size, so a backend runs
 * them as it runs any kernel and nothing waits for the host.
 *
 * Where slots are divided among the ranks, an update is of the shards that this rank holds now, one
 * program for each bucket and shard; after another division a new update is made.
 *
 * Life:    update_new -> pack, accumulate, apply ... -> update_free.
 * Threads: the engine's. */
#ifndef TRAIN_UPDATE_H
#define TRAIN_UPDATE_H

#include "job/job.h"
#include "train/buffers.h"

struct update; /* opaque */

int update_new(const struct job *job, struct backend *b, const struct state *s,
               const struct buffers *m, struct update **out, struct err *err);
void update_free(struct update *u); /* NULL is fine */

/* metrics and requests -> the control vector at the end of the gradients. */
int update_pack(struct update *u, struct err *err);

/* sum += micro over one bucket's range (without the control vector). */
int update_accumulate(struct update *u, int bucket, struct err *err);

/* grad = sum, rounded to its type, over one bucket's range; after the last micro-batch. */
int update_round(struct update *u, int bucket, struct err *err);

/* The working copies from the parameters, after these came from elsewhere than update_apply. */
int update_refresh(struct update *u, struct err *err);

/* Of shards, after all reductions: the check of this rank's own shard, in buffers->numbers->check.
 * Its sum over all ranks is to be there when update_apply is called.  CPUs only. */
int update_check(struct update *u, struct err *err);

/* After all reductions: check (but of shards), clip, optimizer and working copies, commit of the
 * running statistics; nothing of these changes if anything is not finite, or the step is void. Then
 * the next loss scale; and what came out goes to buffers->results. */
int update_apply(struct update *u, struct err *err);

#endif
