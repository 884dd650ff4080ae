/* trainer - what an engine does, without its thread: one rank's training, call by call.
 *
 * engine.c turns commands into these calls and their results into reports; tests call them
 * directly, with several ranks as threads over coll/local.
 *
 * Life:    trainer_new -> open -> { prepare -> take_coll -> form -> train, validate, checkpoint
 *          ... } -> free.
 *          After a failure in form, train or validate the state held is that of the last applied
 *          step, and prepare may follow (another generation).
 * Threads: one, and on rank 0 the saver's.  The hooks are called on the first, but for reports of
 *          checkpoints.
 * Errors:  each names its phase's cause; ERR_CANCELED and ERR_PEER come out of collectives. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "backend/plugin.h"
#include "coll/coll.h"
#include "job/job.h"
#include "session/command.h"

struct faults;
struct strategy_ops;
struct trainer;

/* How a trainer talks to its caller. */
struct trainer_hooks {
    void *arg;
    /* Takes r: steps, warnings; and checkpoints, these from the saver's thread. */
    void (*report)(void *arg, struct report *r);
    unsigned (*requests)(void *arg); /* enum engine_request, or-ed: made on this rank */
    int (*canceled)(void *arg);      /* 1: leave as soon as possible */
    void (*at)(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket);
    void (*stepped)(void *arg, int64_t wall_ns, int64_t busy_ns); /* busy: not in collectives */
};

struct trainer_options {
    int n_threads;                       /* 0: cores / ranks of this host */
    const char *run_dir;                 /* rank 0: for checkpoints; else NULL */
    struct faults *faults;               /* on purpose; borrowed; NULL: none */
    const struct plugin *plugin;         /* whose backend computes; NULL: the CPU */
    const struct strategy_ops *strategy; /* for tests; NULL: the job's */
    int gpu;                             /* the GPU's number */
    size_t bucket_bytes; /* a bucket of gradients is closed once it holds this much; 0: 4 MiB */
    int64_t keep_bytes;  /* data sets up to this size stay on the GPU; <0: by its free memory */
};

struct trainer *trainer_new(const struct trainer_options *o, const struct trainer_hooks *hooks);
/* Give back the device, the coll and all memory, on the thread that trained; after it only
 * trainer_free, trainer_ring, trainer_step and trainer_interrupt may be called. */
void trainer_close(struct trainer *t);
void trainer_free(struct trainer *t);                     /* closes it first */
struct backend *trainer_backend(const struct trainer *t); /* once opened */
const struct job *trainer_job(const struct trainer *t);   /* once opened */
const char *trainer_job_name(const struct trainer *t);    /* once opened */

/* Build the layout, open the data, and on rank 0 make or load the state. */
int trainer_open(struct trainer *t, const struct cmd *c, struct report *opened, struct err *err);

/* Make programs for `rank` of `n_ranks`, sharing this host with n_local ranks. */
int trainer_prepare(struct trainer *t, int rank, int n_ranks, int n_local, struct err *err);

/* Hand over the collective for these ranks, which need not be connected yet.  Takes it: it is freed
 * by the next prepare, or trainer_free. */
void trainer_take_coll(struct trainer *t, struct coll *coll);

/* Over the collective, now connected, all ranks take the state of rank `source`. */
int trainer_form(struct trainer *t, int source, struct err *err);

/* Train the rest of `epoch`.  If the state already holds its last step, only report its sums once
 * more: a fault may have come after the epoch's end and before the driver knew of it. */
int trainer_train(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
int trainer_validate(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* The same, and rank 0 writes the logits of all samples to the file that CMD_OPEN named. */
int trainer_predict(struct trainer *t, int64_t epoch, struct report *done, struct err *err);
/* Rank 0 copies its state, to be written beside what comes next (train/saver.h); is_last: waits
 * until it is on disk.  A failure to write is in a report, not in *err. */
int trainer_checkpoint(struct trainer *t, int is_last, struct report *done, struct err *err);
/* Let a checkpoint that is being written be finished.  With `saves` the step held is written, too,
 * unless a checkpoint has it; REPORT_CHECKPOINT (is_unasked) tells. */
void trainer_finish(struct trainer *t, int saves);
/* From any thread: a wait for a checkpoint asks hooks.canceled again. */
void trainer_interrupt(struct trainer *t);

int64_t trainer_step(const struct trainer *t); /* steps done so far, skipped ones included */

/* The record of its collectives; borrowed.  The caller calls ring_begin after trainer_prepare. */
struct ring *trainer_ring(struct trainer *t);

#endif
