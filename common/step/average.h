/* average - train.average: the slots of averaged weights and their running statistics, what updates
 * the weights in each step, and how they take the parameters' place while they are validated.
 *
 * The average has an element for each trained parameter.  It is state like the parameters: hashed,
 * broadcast, saved (ckpt/ckpt.h: model_average.safetensors), resumed and recovered.  It is updated
 * right behind the parameters, and before an exchange that follows (local_sgd,
 * low_precision_decentralized), so it belongs to the step that counts even if the exchange breaks
 * off.
 *
 * Where the strategy divides the state, the average is divided, too (state/shards.h).  It is made
 * anew in each formation, and updated together with the optimizer's slots.
 *
 * Life:    average_new -> average_update in each step; { average_enter -> ... -> average_leave } ->
 *          average_free.
 * Threads: the engine's. */
#ifndef STEP_AVERAGE_H
#define STEP_AVERAGE_H

#include "coll/coll.h"
#include "job/job.h"
#include "state/state.h"
#include "step/buffers.h"

extern const struct slot_def slot_average;            /* F32 [n_trained] */
extern const struct slot_def slot_average_statistics; /* F32 [n_state_total] */

int average_is_wanted(const struct job *job); /* 1: the job has the first slot */
/* 1: it has the second one, too: the mean of weights of a network with running statistics, which
 * statistics_renew computes. */
int average_has_statistics(const struct job *job, const struct layout *l);

/* The slots of the job, to slot[]; returns how many. */
enum { AVERAGE_MOST_SLOTS = 2 };
int average_list_slots(const struct job *job, const struct layout *l,
                       const struct slot_def *slot[AVERAGE_MOST_SLOTS]);

struct average; /* opaque */

/* steps_per_epoch, total_steps: those by which train.average counts epochs and all steps.  If the
 * state's average has begun, its first step stays. */
int average_new(const struct job *job, struct state *s, const struct buffers *m,
                int64_t steps_per_epoch, int64_t total_steps, struct average **out,
                struct err *err);
void average_free(struct average *a); /* NULL is fine */

/* Queue this step's part; all of the step's values are in place. */
int average_update(struct average *a, struct err *err);

/* The step, counted from 1, with whose weights the average of a job begins that trains so many
 * steps. */
int64_t average_first_step(const struct job *job, int64_t steps_per_epoch, int64_t total_steps);

/* Note in the state, after a step, that the average has begun.  From then on its first step stays,
 * also in a run that goes on with other limits: the mean knows by it how many weights are in it. */
void average_note(const struct average *a);

/* 1: the state, which came from elsewhere, has an average that has begun at another step.  The
 * owner makes the average anew then. */
int average_is_stale(const struct average *a);

/* 1: weights after two steps or more may be in the mean, or those after the first one. */
int average_has_begun(const struct average *a);

/* The parameters become the averaged ones, and back again; with_statistics: the running statistics
 * likewise, if the average has its own.  Nothing may be queued.  The caller refreshes the working
 * copies (update_refresh) after each.  Between the two the state is not the run's: it must be
 * neither saved nor handed over.
 *
 * If the average is divided, all ranks call average_enter together, and it gathers by `c`.  If it
 * fails, average_leave makes the parameters the trained ones again. */
int average_enter(struct average *a, int with_statistics, struct coll *c, struct err *err);
int average_leave(struct average *a, struct err *err);

#endif
