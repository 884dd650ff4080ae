/* saver - writes checkpoints while training goes on: rank 0's engine copies its state, and the
 * saver's thread writes the copy, fsyncs and renames.
 *
 * One checkpoint is under way at a time.  Inside an epoch the engine asks saver_under_way before it
 * begins a checkpoint.  While one is under way, the engine asks again after each step.  So all
 * checkpoints that fall due meanwhile become one newer checkpoint, and a slow disk never holds up
 * steps.  saver_begin and saver_save, which the end of an epoch calls, wait until the checkpoint
 * before is written.  A step that is being written, or that was written last, is not written again.
 * A step whose checkpoint failed is written again.
 *
 * Inside an epoch the saver's thread copies what only an update changes, while the engine computes
 * the next step's gradients (saver_begin_beside).  The engine calls saver_copied before it changes
 * that: before an update, and when it leaves the epoch for any reason.
 *
 * The last checkpoint of a job (saver_save, saver_begin_last) is written from the state itself,
 * where that lies in host memory, so such a checkpoint takes no memory.  Before the state changes
 * again, or is freed, the engine calls saver_settle or saver_finish.  So it does with frozen
 * parameters, which no step changes, but a formation may.
 *
 * A file that the disk does not give back as it was written is told as REPORT_CORRUPTION, from the
 * saver's thread, too (ckpt/ckpt.h).
 *
 * The outcome of a checkpoint (REPORT_CHECKPOINT, is_unasked) goes to the hook `report` from the
 * saver's thread, before a newer checkpoint begins and before a wait for this one ends.  Only
 * saver_save returns the outcome of its own checkpoint in its report instead.
 *
 * Life:    saver_new -> saver_open (the memory and the thread) -> begin, save ... ->
 *          saver_free, which waits until the checkpoint under way is finished.
 * Threads: one, the engine's; saver_interrupt may come from any. */
#ifndef STATE_SAVER_H
#define STATE_SAVER_H

#include "session/command.h"
#include "state/state.h"

struct saver; /* opaque */

struct saver_hooks {
    void *arg;
    void (*report)(void *arg, struct report *r); /* takes r; from the saver's thread */
    int (*canceled)(void *arg);                  /* 1: leave a wait */
    struct spans_track *track;                   /* of the saver's thread; NULL: it has none */
};

struct saver *saver_new(const char *run_dir, const struct saver_hooks *hooks); /* copies both */
void saver_free(struct saver *v);                                              /* NULL is fine */

/* For checkpoints of `s`, which outlives the saver.  Keeps `keep` generations.  has_room: 1: take
 * the memory for a copy of s now (state/snapshot.h), because saver_begin will need it. */
int saver_open(struct saver *v, const struct state *s, int keep, int has_room, struct err *err);

/* Wait until nothing is under way.  *wants: 1 if the state's step is not on disk yet, so that
 * saver_begin and saver_save would write it.  Fails as saver_begin does. */
int saver_wants(struct saver *v, int *wants, struct err *err);

/* Copy the state, once nothing is under way, and have it written.  Fails when it cannot be copied,
 * and with ERR_CANCELED if the hook says so during a wait. */
int saver_begin(struct saver *v, int n_ranks, struct err *err);
/* The same of a state that stays as it is until saver_copied has returned, for a backend that does
 * not queue. */
int saver_begin_beside(struct saver *v, int n_ranks, struct err *err);
/* Wait until the state is copied; such a wait counts as time in which training stood still. */
void saver_copied(struct saver *v);
/* The same of a state that stays as it is until saver_settle or saver_finish has returned. */
int saver_begin_last(struct saver *v, int n_ranks, struct err *err);

/* The same, and wait until the checkpoint is on disk.  Fills r->checkpoint's path, or its error.
 * If both are NULL, the saver's thread had reported that step before.  A canceled wait leaves the
 * checkpoint under way: saver_settle. */
int saver_save(struct saver *v, int n_ranks, struct report *r, struct err *err);

/* A checkpoint of the state's step that all ranks write together (state/joint.h) is under way from
 * saver_hold until saver_deliver, which any thread may call.  deliver takes `path`, or `error` if
 * the checkpoint failed; both NULL: it was given up, and there is no report.  is_awaited:
 * saver_await waits for the outcome and fills r, as saver_save does; saver_disown gives that up,
 * and the outcome goes to the hook.  generation: of the formation whose ranks write. */
void saver_hold(struct saver *v, int is_awaited, int64_t generation);
void saver_deliver(struct saver *v, char *path, char *error, double exposed_s);
int saver_await(struct saver *v, int64_t since_ns, struct report *r, struct err *err);
void saver_disown(struct saver *v);
/* Warn the user, at the first time, that a checkpoint has no link.  For the thread that has written
 * the checkpoint, before it delivers it. */
void saver_warn_unlinked(struct saver *v, int64_t step, const char *why);
/* Tell that the disk gave back other bytes than `rank` wrote for the checkpoint under way.  For the
 * same thread.  file: NULL: it is not known which one.  is_mended: as in ckpt/ckpt.h. */
void saver_tell_damaged(const struct saver *v, int rank, const char *file, int is_mended);

/* Wait until no checkpoint is written from the state itself, which may change then.  Fails with
 * ERR_CANCELED if the hook says so. */
int saver_settle(struct saver *v, struct err *err);

/* Wait, whatever the hook says, until nothing is under way. */
void saver_finish(struct saver *v);

/* 1: a checkpoint is under way, of *step and for *seconds (either may be NULL); 0: none is. */
int saver_under_way(struct saver *v, int64_t *step, double *seconds);

void saver_interrupt(struct saver *v); /* make a wait ask the hook again */

#endif
