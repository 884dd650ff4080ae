/* snapshot - a copy of a state's saved slots in host memory, from which the saver's thread
 * (state/saver.h) writes a checkpoint while training goes on.
 *
 * The copy has as many bytes as the saved slots, but for frozen parameters in host memory: no step
 * changes them, so the files are written from where they are.  snapshot_new takes its memory, or
 * else the first snapshot_take does: if slots are divided among the ranks, because as long as there
 * are several ranks, each of them copies and writes its own part instead (state/joint.h); and if
 * the caller expects no checkpoint but the last one.  For that one, of a state that nobody changes
 * any more, snapshot_borrow needs no copy.
 *
 * Life:    snapshot_new -> take or borrow, save, take or borrow, save ... -> snapshot_free.
 * Threads: one at a time: take, take_first, take_rest, borrow and save must not overlap. */
#ifndef STATE_SNAPSHOT_H
#define STATE_SNAPSHOT_H

#include "state/state.h"

struct snapshot; /* opaque */

/* has_room: 1: take the memory now, unless slots are divided. */
int snapshot_new(const struct state *s, int has_room, struct snapshot **out, struct err *err);
void snapshot_free(struct snapshot *p); /* NULL is fine */

/* 1: a snapshot of s refers to its frozen parameters, which must stay until it is saved. */
int snapshot_borrows_frozen(const struct state *s);

/* Copy the state as it is now, for a checkpoint of n_ranks ranks.  This rank holds all of it.
 * Allocates nothing, but the memory that snapshot_new did not take. */
int snapshot_take(struct snapshot *p, const struct state *s, int n_ranks, struct err *err);
/* The same, but the slots that only an update changes are left to snapshot_take_rest, which copies
 * them on any thread, before the next update.  For a backend that does not queue. */
int snapshot_take_first(struct snapshot *p, const struct state *s, int n_ranks, struct err *err);
void snapshot_take_rest(struct snapshot *p);
/* The same of a state that stays so until the snapshot is saved: host memory is not copied. */
int snapshot_borrow(struct snapshot *p, const struct state *s, int n_ranks, struct err *err);

/* Write the snapshot as a generation of checkpoints under run_dir, and keep the newest `keep`.
 * *path as ckpt_save sets it.  told: whom it tells of damage. */
int snapshot_save(const struct snapshot *p, const char *run_dir, int keep,
                  const struct ckpt_told *told, char **path, struct err *err);

#endif
