/* saver - writes checkpoints beside training: rank 0's engine copies its state, a thread of the
 * saver's own writes the copy, fsyncs and renames.
 *
 * One checkpoint is under way at a time. Inside an epoch the engine asks saver_under_way before it
 * begins a checkpoint.  While one is under way the engine asks again after each step, so all that
 * falls due meanwhile becomes one newer checkpoint, and the disk's pace never holds up training.
 * saver_begin and saver_save, for the end of an epoch, wait until the one before is written.  The
 * step that is being written, or that was written last, is not written again; a step that failed
 * is.
 *
 * The outcome of a checkpoint (REPORT_CHECKPOINT, is_unasked) goes to the hook from the saver's
 * thread, before a newer one begins and before a wait for it ends; saver_save alone returns the
 * outcome of its own checkpoint in its report instead.
 *
 * Life:    saver_new -> saver_open (the memory and the thread) -> begin, save ... ->
 *          saver_free, which lets what is under way be finished.
 * Threads: one, the engine's; saver_interrupt may come from any. */
#ifndef TRAIN_SAVER_H
#define TRAIN_SAVER_H

#include "session/command.h"
#include "train/state.h"

struct saver; /* opaque */

struct saver_hooks {
    void *arg;
    void (*report)(void *arg, struct report *r); /* takes r; from the saver's thread */
    int (*canceled)(void *arg);                  /* 1: leave a wait */
};

struct saver *saver_new(const char *run_dir, const struct saver_hooks *hooks); /* copies both */
void saver_free(struct saver *v);                                              /* NULL is fine */

/* Memory for a copy of `s`, which outlives the saver.  Keeps `keep` generations. */
int saver_open(struct saver *v, const struct state *s, int keep, struct err *err);

/* Wait until nothing is under way.  *wants: 1 if the state's step is not on disk yet, so that
 * saver_begin and saver_save would write it.  Fails as saver_begin does. */
int saver_wants(struct saver *v, int *wants, struct err *err);

/* The place of a divided slot in the copy; nothing is under way.  shards_gather fills it before
 * saver_begin or saver_save. */
void *saver_room(void *saver, int slot);

/* Copy the state, once nothing is under way, and have it written.  Fails when it cannot be copied,
 * and with ERR_CANCELED if the hook says so during a wait. */
int saver_begin(struct saver *v, int n_ranks, struct err *err);

/* The same, and wait until it is on disk.  The report's checkpoint says where, or why not; with
 * neither, the saver's thread had reported that step already. */
int saver_save(struct saver *v, int n_ranks, struct report *r, struct err *err);

/* Wait, whatever the hook says, until nothing is under way. */
void saver_finish(struct saver *v);

/* 1: a checkpoint is under way, of *step and for *seconds (either may be NULL); 0: none is. */
int saver_under_way(struct saver *v, int64_t *step, double *seconds);

void saver_interrupt(struct saver *v); /* make a wait ask the hook again */

#endif
