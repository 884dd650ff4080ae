/* snapshot - a copy of a state's saved slots in host memory, from which the saver's thread
 * (train/saver.h) writes a checkpoint while training goes on.
 *
 * snapshot_new takes all memory: as many bytes as the saved slots have.
 *
 * Life:    snapshot_new -> take, save, take, save ... -> snapshot_free.
 * Threads: one at a time: take and save must not overlap. */
#ifndef TRAIN_SNAPSHOT_H
#define TRAIN_SNAPSHOT_H

#include "train/state.h"

struct snapshot; /* opaque */

int snapshot_new(const struct state *s, struct snapshot **out, struct err *err);
void snapshot_free(struct snapshot *p); /* NULL is fine */

/* The place for the whole of a slot that is divided among the ranks (train/shards.h).
 * snapshot_take does not copy such a slot; shards_gather fills the place. */
void *snapshot_room(struct snapshot *p, int slot);

/* Copy the state as it is now, for a checkpoint of n_ranks ranks.  Allocates nothing. */
int snapshot_take(struct snapshot *p, const struct state *s, int n_ranks, struct err *err);

/* Write the snapshot as a generation of checkpoints under run_dir, and keep the newest `keep`.
 * *path as ckpt_save sets it. */
int snapshot_save(const struct snapshot *p, const char *run_dir, int keep, char **path,
                  struct err *err);

#endif
