/* joint - a checkpoint of a divided state, which all ranks write together while training goes on.
 *
 * Happy path.  joint_begin: each rank copies its own part of the checkpoint (state/part.h).  Then
 * a thread on each rank works, and the engines call joint_poll after each step, all at the same
 * step, to learn whether the threads of all ranks are done with
 *   1. preparing: rank 0 makes the folder and the files (ckpt/draft.h);
 *   2. writing:   each rank writes its copy to these files, and fsyncs;
 *   3. passing:   a rank that does not see rank 0's disk sends rank 0 a window of its part in each
 *                 poll, and rank 0's thread writes the window;
 *   4. checking:  rank 0's thread reads the files back, and compares what it reads with the hash of
 *                 each rank's part;
 *   5. placing:   rank 0's thread puts the checkpoint in place.  For the other ranks the checkpoint
 *                 is over when this begins.
 * No rank ever holds more than its own part, and rank 0 one window more.  A disk that hangs holds
 * up the threads, but no step.
 *
 * Failure modes:
 *   - A rank has no memory for its copy, or cannot write (a full disk): it says so after 2, and all
 *     ranks drop the checkpoint.  Rank 0 reports the failure.
 *   - A rank is lost: the formation ends, and joint_give_up drops the checkpoint.  It is not
 *     reported as failed: the next formation writes a newer one.  In 4 all parts are written, so
 *     rank 0 goes on alone, and places the checkpoint if it is right.
 *   - The disk gives back other bytes than a rank wrote: all ranks write their parts to new files,
 *     from 1 on, and rank 0 reports that rank (REPORT_CORRUPTION).  If the second files are wrong,
 *     too, rank 0 reports the failure and drops the checkpoint.
 *
 * On rank 0 the saver (state/saver.h) is busy from joint_begin until the outcome is reported.
 *
 * Life:    joint_new -> joint_open (starts the thread)
 *          -> { joint_begin -> joint_poll ..., joint_finish or joint_give_up } ... -> joint_free.
 * Threads: the engine's; joint_interrupt may come from any. */
#ifndef STATE_JOINT_H
#define STATE_JOINT_H

#include "state/saver.h"

struct joint; /* opaque */

struct joint_options {
    const struct state *state; /* divided; outlives the joint's use */
    struct saver *saver;       /* rank 0's, opened, which outlives the joint; else NULL */
    const char *run_dir;       /* rank 0's; borrowed */
    int keep;                  /* generations */
    size_t window_bytes;       /* for tests; 0: the default */
    int64_t moment_ms;         /* for tests: how long a poll waits for a disk; 0: the default */
    int is_apart;              /* for tests; 1: this rank is not to see rank 0's disk */
};

/* canceled(arg) 1: leave a wait. */
struct joint *joint_new(void *arg, int (*canceled)(void *arg));
int joint_open(struct joint *j, const struct joint_options *o, struct err *err);
void joint_free(struct joint *j); /* gives up what is under way; NULL is fine */

/* All ranks call these together, with the coll of the state's formation.  They fail as collectives
 * do; a checkpoint that cannot be written is no failure here. */

/* Begin a checkpoint, and poll.  None is under way, nor on rank 0 in the saver.  is_awaited and
 * generation: as for saver_hold. */
int joint_begin(struct joint *j, struct coll *c, int is_awaited, int64_t generation,
                struct err *err);
/* Go on with the checkpoint under way, if its threads are done.  Waits for a disk at most some
 * milliseconds. */
int joint_poll(struct joint *j, struct coll *c, struct err *err);
/* Poll until the checkpoint is over, but for rank 0's placing.  Waits for disks.  Fails with
 * ERR_CANCELED, too, if the hook says so during a wait. */
int joint_finish(struct joint *j, struct coll *c, struct err *err);

/* The formation has ended: drop the checkpoint under way, unless all parts of it are written.  Does
 * not wait.  1: one was dropped. */
int joint_give_up(struct joint *j);

int joint_is_under_way(const struct joint *j); /* the same on all ranks */

void joint_interrupt(struct joint *j); /* make a wait ask the hook again */

#endif
