/* reducer - the engine's side of a strategy: one strategy at work, with its exchange.
 *
 * The engine calls the reducer at fixed places of a step (step/step.c), and the reducer calls the
 * strategy's function for that place.  The reducer and its exchange also do what every strategy
 * needs: measure how long a device waits for other ranks, spoil gradients on purpose (--inject),
 * and note in the control vector that a device's collectives were stopped before their end.
 *
 * Life:    reducer_new -> { reducer_join -> reducer_form -> reducer_met -> steps,
 *          reducer_epoch_end, reducer_met ... -> reducer_leave } ... -> reducer_free.
 *          A step: reducer_begin -> reducer_micro_begin, reducer_sum, reducer_bucket,
 *          reducer_hand_over ...
 *          -> reducer_finish -> (the update) -> reducer_updated -> reducer_end
 *          -> reducer_agree.
 * Threads: the engine's.
 * Errors:  those of the strategy and of coll/. */
#ifndef STRATEGY_REDUCER_H
#define STRATEGY_REDUCER_H

#include "program/program.h"
#include "strategy/exchange.h"
#include "strategy/strategy.h"

struct reducer; /* opaque */

struct reducer_hooks {
    struct exchange_hooks exchange;
    /* Called for each bucket before (is_reduced 0) and after (1) its reduction, so that a fault on
     * purpose may change the gradients. */
    int (*spoil)(void *arg, int bucket, int is_reduced, struct err *err);
};

struct reducer_options {
    const struct strategy_ops *strategy;
    const void *options; /* the strategy's own keys; borrowed, as is all that follows */
    struct backend *backend;
    const struct layout *layout;
    /* From here to n_shares and accumulate: as in struct strategy_site. */
    void *grad;
    void *const *bucket;
    void *const *sums;
    float *param;
    void *copy;
    void *const *param_bucket, *const *copy_bucket;
    void *const *own_params;
    const double *check;
    const struct step_scalars *scalars;
    void *slot[STRATEGY_MAX_SLOTS];
    const struct optimizer_options *optimizer;
    void *moment[OPTIMIZER_MAX_SLOTS];
    float *control;
    float *shadow;
    int n_shares, accumulate;
    int64_t *waits; /* [2], for backend_stopwatch: the time that a device waits for collectives */
    struct ring *ring;
    struct reducer_hooks hooks;
};

int reducer_new(const struct reducer_options *o, struct reducer **out, struct err *err);
void reducer_free(struct reducer *r); /* NULL is fine */

const struct strategy_ops *reducer_strategy(const struct reducer *r);
const struct strategy_promises *reducer_promises(const struct reducer *r);
struct exchange *reducer_exchange(struct reducer *r);

/* Other buckets, between steps, where the strategy promises buckets_may_change: reducer_uncut, then
 * the layout is cut anew, then reducer_recut.  If that fails, both are to be called again before
 * the next step. */
void reducer_uncut(struct reducer *r);
int reducer_recut(struct reducer *r, struct err *err);

/* reducer_join: a formation begins; `c` is borrowed until reducer_leave and need not be connected
 * yet.  reducer_form: the ranks are connected, and rank `source` holds the newest step.
 * reducer_leave: the formation is over. */
void reducer_join(struct reducer *r, struct coll *c);
int reducer_form(struct reducer *r, int source, struct err *err);
void reducer_leave(struct reducer *r);

/* ---- the places of a step, in the order of their calls ---- */

/* n_updates: as in struct strategy.  Returns 1 if the strategy changed parameters. */
int reducer_begin(struct reducer *r, int64_t step, int64_t n_updates, struct err *err);
int reducer_variant(const struct reducer *r); /* of the step that was begun: strategy_ops.variant */
/* 1: this rank is ready for what the strategy begins when all ranks are (CONTROL_READY). */
int reducer_is_ready(const struct reducer *r);
/* A micro-batch begins.  is_first, is_last: 1 for the step's first, last one. */
int reducer_micro_begin(struct reducer *r, int is_first, int is_last, struct err *err);
/* Sum the statistics at the end of stage `s` (synchronised batch norm) over all ranks, at once. */
int reducer_sum(struct reducer *r, const struct stage *s, struct err *err);
/* This rank's gradients in `bucket` are complete. */
int reducer_bucket(struct reducer *r, int bucket, struct err *err);
/* The same without a fault on purpose.  For buckets that had theirs before they were hashed, and
 * where gradients are divided for a micro-batch that is not the step's last one. */
int reducer_hand_over(struct reducer *r, int bucket, struct err *err);
/* For divided gradients: the bucket's memory is needed for other gradients.  Wait until its sums
 * have been moved out. */
int reducer_release(struct reducer *r, int bucket, struct err *err);
/* These two are for divided parameters.  reducer_gather starts to gather the parameters of `bucket`
 * from all ranks.  reducer_gathered waits for them. */
int reducer_gather(struct reducer *r, int bucket, struct err *err);
int reducer_gathered(struct reducer *r, int bucket, struct err *err);
/* The collectives that are started from now on belong to a validation, not to a step.  reducer_end
 * returns their entries. */
void reducer_validate(struct reducer *r);
/* Before the update: afterwards the buckets hold the gradients that the update is to use, and the
 * control vector is summed.  On a device the control vector then also shows whether a collective
 * was stopped before its end (CONTROL_VOID). */
int reducer_finish(struct reducer *r, struct err *err);
/* Forget the micro-batches of the step under way whose buckets were handed over, because all of
 * them are computed again.  The last one's were not; or, where gradients are divided, all were, and
 * their sums have been moved out. */
void reducer_forget(struct reducer *r);
/* If state is divided, after reducer_finish: replace check[2], of this rank's own shard, by its sum
 * over all ranks.  On a device the control vector then also shows whether this sum was stopped. */
int reducer_sum_check(struct reducer *r, double *check, struct err *err);
/* The update has been made, or queued on a device.  Returns 1 if the strategy changes parameters.
 */
int reducer_updated(struct reducer *r, struct err *err);
/* The step, or work of a validation, is queued completely.  Returns the record's entries of its
 * collectives on a device. */
struct handed reducer_end(struct reducer *r);

/* The factor by which this rank's loss in `step` is multiplied.  `part` is this rank's part of the
 * step's samples, from 0 to 1. */
double reducer_loss_factor(const struct reducer *r, int64_t step, double part);

/* `step` has ended on this rank and counts; on a device the next one may be queued.  n_ready ranks
 * said in it that they are ready. */
void reducer_agree(struct reducer *r, int64_t step, int n_ready);

/* All ranks hold the same state, after reducer_form or after they met (train/meet.h). */
int reducer_met(struct reducer *r, struct err *err);

/* The epoch's last step has ended on all ranks, or the ranks are about to meet. */
int reducer_epoch_end(struct reducer *r, struct err *err);

#endif
