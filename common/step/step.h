/* step - the global steps of one rank: queues their work, and reads their results.
 *
 * A stepper has what a step needs: programs, memory, samples, recordings, the update, the strategy
 * and the coll.  Its owner makes these parts by their own headers and puts them here, and replaces
 * them between steps.  step.c shows the parts of a step in their order; flight.c has the steps
 * under way on a device.
 *
 * A step knows nothing of epochs, checkpoints or rebalancing.  It asks their owner by the hooks,
 * and tells it the step_result.
 *
 * Life:    zeroed, then the borrowed members, buffers, update, reducer and feed
 *          -> { coll, programs -> tapes -> step_run ..., step_leave -> step_disband } ...
 *          -> step_close.
 * Threads: the engine's.
 * Errors:  those of the parts.  After a failure of step_run the state is that of the last step that
 *          was done. */
#ifndef STEP_STEP_H
#define STEP_STEP_H

#include "data/sampler.h"
#include "op/control.h"
#include "op/seal.h"
#include "state/loop.h"
#include "state/shards.h"
#include "state/state.h"
#include "step/average.h"
#include "step/buffers.h"
#include "step/faults.h"
#include "step/feed.h"
#include "step/programs.h"
#include "step/sights.h"
#include "step/tape.h"
#include "step/update.h"
#include "step/watch.h"
#include "step/witness.h"
#include "strategy/reducer.h"

/* Functions that a step calls, with `arg`. */
struct step_hooks {
    void *arg;
    /* The rank enters a phase of a step; bucket: the one that it waits for, or -1. */
    void (*at)(void *arg, enum phase phase, int64_t epoch, int64_t step, int64_t bucket);
    unsigned (*requests)(void *arg); /* the requests made on this rank: enum engine_request */
    int (*canceled)(void *arg);      /* 1: leave as soon as possible */
    /* The step is about to change parameters and the optimizer's slots.  A device that repeats a
     * recorded step does not call it. */
    void (*updates)(void *arg);
    /* Tell the user, of a step. */
    void (*warn)(void *arg, int64_t step, const char *text);
    /* 1: all ranks need their state at rest when `step` is done, so no step is queued behind it.
     * The same on all ranks. */
    int (*rests)(void *arg, int64_t step);
    /* The mean loss above which the step's update is left out; HUGE_VAL: none.  The same on all
     * ranks. */
    double (*loss_limit)(void *arg);
    /* 1: this rank alone needs that, so it queues the next step later. */
    int (*looks)(void *arg, int64_t step);
    /* 1: gradients of the step are computed by a second rank, too.  The same on all ranks. */
    int (*audits)(void *arg, int64_t step);
    /* 1: the replicas are compared once `step` is done, so what the update gets is hashed. */
    int (*compares)(void *arg, int64_t step);
    /* An audited step found wrong bits.  All ranks call it alike. */
    void (*found)(void *arg, const struct jury_finding *f);
};

/* A step that was queued and whose result has not been read yet. */
struct flight {
    int64_t step;
    float after;          /* as step_scalars.after */
    struct handed handed; /* the step's entries in the record of collectives, on a device */
    int rc;               /* the result of queueing the step; below 0: err has the reason */
    struct err err;
};

struct stepper {
    /* Borrowed, set once by the owner. */
    struct step_hooks hooks;
    const struct job *job;
    const struct sample_spec *spec;
    const struct dataset *dataset; /* the training set */
    const struct sampler *sampler; /* its bounds may change between steps */
    int64_t steps_per_epoch, total_steps;
    struct faults *faults; /* on purpose; NULL: none */
    struct backend *backend;
    struct layout *layout;
    struct state *state;
    const struct loop *loop; /* of the state */
    struct ring *ring;       /* the record of collectives */

    double live_lr;    /* from live_step on in the place of optimizer.lr; 0: none */
    int64_t live_step; /* before it, state->at.live_lr counts */

    /* The parts, which step_close frees. */
    struct buffers *buffers;
    struct update *update;
    struct average *average; /* NULL: the job averages no weights */
    struct reducer *reducer;
    struct feed *feed;         /* of the training set */
    struct programs *programs; /* NULL until the first formation; made anew for each */
    struct witness witness;    /* of the formation */
    struct sights sights;      /* of the newest step that has them listed */
    struct bucket_watch watch; /* zeroed unless the buckets are measured */
    struct coll *coll;         /* of the formation; NULL between two */
    struct tapes *tapes;       /* likewise */

    /* The steps under way, oldest first (flight.c). */
    struct flight flight[SEALED_SLOTS];
    int n_flights;
    struct flight *queued; /* the step that is being queued, or was queued last */
    int is_batch_held; /* 1: the next step's batch was loaded already, for a step that was void */
    int64_t waited_ns; /* time that a device waited for collectives */

    /* Of the step that is being queued, or was queued last. */
    int64_t n_sent;      /* times that scalars were sent to the device */
    int64_t next_bucket; /* the bucket that backward fills now; -1: none */
    int n_opened;        /* buckets of the micro-batch into which gradients were written */
    double loss_scale;   /* of the next step; 0: not scaled */
    /* Hashes of what the ranks summed in the step before `summed_of`: the gradients of each shard
     * that is held, or one of all; and the control vector.  summed_of 0: there are none. */
    struct hash128 summed[SHARDS_HELD], summed_control;
    int64_t summed_of;
};

/* The result of a step.  It is the same on all ranks, except for has_bad_losses, has_bad_grad and,
 * where ranks update different parameters, n_kept and lowest_kept. */
struct step_result {
    struct control control;
    double grad_norm;    /* of the mean over the targets of all ranks, before clipping */
    int applied;         /* 0: something was not finite */
    int has_bad_losses;  /* 1: one of this rank's losses was not finite */
    int has_bad_grad;    /* 1: the gradient that this rank's update used is not finite */
    int is_spike;        /* 1: not applied because of its loss (train.on_spike) */
    int overflowed;      /* 1: not applied because the loss scale was too large; the scale is
                            lowered, and train.on_nonfinite does not apply */
    int64_t n_kept;      /* parameters that the update left as they were, because their new values
                            would not have been finite */
    int64_t lowest_kept; /* the lowest place of one of these in the space of parameters */
};

/* Make the reducer of this strategy.  options: its own keys, or NULL.  The parts before it are
 * there.  Borrows all. */
int step_make_reducer(struct stepper *t, const struct strategy_ops *strategy, const void *options,
                      struct err *err);

/* A formation ends: frees tapes and coll, and forgets the steps under way. */
void step_disband(struct stepper *t);
/* Frees the parts.  The borrowed members stay; may be called again. */
void step_close(struct stepper *t);

/* Run the step at state->at.step and return its result.  The step is queued unless it was queued
 * before.  On a device the next step is queued, too, if it is below `last`, the step before which
 * training is to stop.  After a failure the state is as it was, and nothing is queued that could
 * change it. */
int step_run(struct stepper *t, int64_t last, struct step_result *out, struct err *err);

/* Training ends before `last`, after the step that step_run returned.  Fails if the next step could
 * not be queued on this rank, because the other ranks queued it and wait for this rank. */
int step_leave(struct stepper *t, struct err *err);

/* On a device: poll until all that was queued is done, or until the coll fails. */
int step_wait(struct stepper *t, struct err *err);

/* Nanoseconds so far in which this rank did nothing but wait for collectives. */
int64_t step_waited_ns(const struct stepper *t);
/* How long the coll's threads were inside collectives since it was made; -1: not measured, as on a
 * device. */
int64_t step_summed_ns(const struct stepper *t);

/* ---- for passes beside the steps, which use the same parts ---- */

/* Where parameters are divided: do the GATHER stage of this set of buckets.  Waits for the set's
 * parameters, and starts to gather those of the next set.  For the first set, whose gathering
 * nobody has started, it starts that, too. */
int step_gather(struct stepper *t, const struct program *p, int set, struct err *err);

/* Gather n_bytes of each rank, the same number on all of them, into `all`, rank by rank.  The
 * collective is on record, as one of the present step and of this phase. */
int step_allgather(struct stepper *t, enum phase phase, const void *mine, size_t n_bytes, void *all,
                   struct err *err);

/* Queue the update of a step whose sums are there, and of the averaged weights. */
int step_update(struct stepper *t, struct err *err);

double step_rate(const struct stepper *t, int64_t step); /* the step's learning rate */

/* The number of this rank's micro-batches of the step. */
int step_n_micros(const struct stepper *t, const struct sampler_step *at);

/* The scalars of b's micro-batch.  Of b only step, first and n_global matter. */
void step_scalars(const struct stepper *t, const struct batch *b, struct step_scalars *out);

#endif
