/* trainer - one rank's training, call by call: what an engine does, without the engine's thread.
 *
 * engine.c turns commands into these calls and their results into reports.  Tests call them
 * directly, with several ranks as threads over tests/coll/local.  The files behind this header are
 * open.c (open), trainer.c (prepare, form, leave), epoch.c (epochs), validate.c, checkpoint.c and
 * steps.c, the trainer's side of step/, which makes the steps.
 *
 * Life:    trainer_new -> trainer_open -> { trainer_prepare -> trainer_take_coll -> trainer_form
 *          -> trainer_train, trainer_validate, trainer_checkpoint ... } -> trainer_close
 *          -> trainer_free.
 *          After a failure in form, train or validate the trainer holds the state of the last
 *          applied step, and prepare may follow (another generation).
 * Threads: one, and on rank 0 the saver's.  Hooks are called on the first one.  Reports of
 *          checkpoints alone come from the thread that wrote them.
 * Errors:  ERR_CANCELED and ERR_PEER come from collectives, and are consequences of a failure
 *          elsewhere.  Any other error is a cause. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "backend/plugin.h"
#include "coll/coll.h"
#include "job/job.h"
#include "session/command.h"

struct faults;
struct strategy_ops;
struct trainer;

/* Functions that a trainer calls, with `arg`. */
struct trainer_hooks {
    void *arg;
    /* Takes r: steps, warnings, spans; and checkpoints, these from the saver's thread. */
    void (*report)(void *arg, struct report *r);
    unsigned (*requests)(
        void *arg);             /* the requests made on this rank: enum engine_request, or-ed */
    int (*canceled)(void *arg); /* 1: leave as soon as possible */
    /* The trainer enters a phase; bucket: the one that it waits for, or -1. */
    void (*at)(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket);
    /* A step took wall_ns, of which busy_ns were not spent waiting for collectives. */
    void (*stepped)(void *arg, int64_t wall_ns, int64_t busy_ns);
    /* All ranks have acted on a request for a checkpoint, so it is no more; NULL: nobody is told.
     */
    void (*saved)(void *arg);
};

struct trainer_options {
    int n_threads;                       /* 0: cores / ranks of this host */
    const char *run_dir;                 /* rank 0: for checkpoints; else NULL */
    struct faults *faults;               /* on purpose; borrowed; NULL: none */
    const struct plugin *plugin;         /* whose backend computes; NULL: the CPU */
    const struct strategy_ops *strategy; /* for tests; NULL: the job's */
    int gpu;                             /* the GPU's number */
    size_t bucket_bytes;                 /* for tests; 0: the job's */
    size_t bucket_choice;                /* for tests: what auto decides; 0: by measurements */
    int64_t moment_ms;                   /* for tests: as joint_options */
    size_t window_bytes; /* for tests: as joint_options.  Above 0, ranks but rank 0 do not see rank
                            0's disk */
    int64_t keep_bytes;  /* data sets up to this size stay on the GPU; <0: by its free memory */
};

struct trainer *trainer_new(const struct trainer_options *o, const struct trainer_hooks *hooks);
/* Give back the device, the coll and all memory.  Call it on the thread that trained.  Afterwards
 * only trainer_free, trainer_ring, trainer_step and trainer_interrupt may be called. */
void trainer_close(struct trainer *t);
void trainer_free(struct trainer *t);                     /* closes it first */
struct backend *trainer_backend(const struct trainer *t); /* once opened */
const struct job *trainer_job(const struct trainer *t);   /* once opened */
const char *trainer_job_name(const struct trainer *t);    /* once opened */

/* Build the layout, open the data, and on rank 0 make or load the state. */
int trainer_open(struct trainer *t, const struct cmd *c, struct report *opened, struct err *err);

/* Make programs for `rank` of `n_ranks`.  n_local ranks, this one included, share this host, and
 * n_container of them this container. */
int trainer_prepare(struct trainer *t, int rank, int n_ranks, int n_local, int n_container,
                    struct err *err);

/* Give the trainer the coll of these ranks, which need not be connected yet.  Takes it: the next
 * prepare, or trainer_free, frees it. */
void trainer_take_coll(struct trainer *t, struct coll *coll);

/* The coll is connected now: all ranks take the state of rank `source`, which has the newest step.
 */
int trainer_form(struct trainer *t, int source, struct err *err);
/* On rank 0, after trainer_form: 1: the ranks' newest state was not whole, so all ranks hold that
 * of the newest checkpoint. */
int trainer_took_checkpoint(const struct trainer *t);

/* Train the rest of `epoch`.  If the state already holds the epoch's last step, only report its
 * sums once more: a fault may have come between the epoch's end and the driver's receipt of the
 * report. */
int trainer_train(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* From this step on `lr` is in the place of optimizer.lr, and the schedule's rates are multiplied
 * accordingly; 0: nothing is.  Call it before trainer_train, alike on all ranks. */
void trainer_set_rate(struct trainer *t, double lr, int64_t step);
int trainer_validate(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* The same, and rank 0 writes the logits of all samples to the file that CMD_OPEN named. */
int trainer_predict(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* The same, and rank 0 only judges the logits, if it can (judge/judge.h). */
int trainer_judge(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* Rank 0 copies its state, and the saver's thread writes the copy while training goes on
 * (state/saver.h).  If the state is divided, all ranks do so with their parts (state/joint.h).
 * is_last: wait until the checkpoint is on disk.  A failure to write is in a report, not in *err.
 */
int trainer_checkpoint(struct trainer *t, int is_last, struct report *done, struct err *err);
/* Wait until the checkpoint that is being written is finished.  With `saves` 1 the state held is
 * written, too, unless a checkpoint has its step.  A REPORT_CHECKPOINT (is_unasked) has the
 * outcome. */
void trainer_finish(struct trainer *t, int saves);
/* Wake a wait for a checkpoint, so that it asks hooks.canceled again.  Any thread. */
void trainer_interrupt(struct trainer *t);

/* Record a timeline from the next step on, for this long.  Any thread. */
void trainer_trace(struct trainer *t, int64_t number, int64_t duration_ns);
/* The track of the thread that trains (base/spans.h); borrowed. */
struct spans_track *trainer_track(struct trainer *t);

int64_t trainer_step(const struct trainer *t); /* steps done so far, skipped ones included */

/* The record of this rank's collectives; borrowed.  The caller calls ring_begin after
 * trainer_prepare. */
struct ring *trainer_ring(struct trainer *t);

#endif
