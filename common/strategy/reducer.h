/* reducer - the engine's side of a strategy: one strategy at work, with its exchange.
 *
 * The engine calls the reducer at fixed places of a step (train/step.c), and the reducer calls the
 * strategy.  Everything that is to happen around a strategy, whatever it does, is here or in its
 * exchange: a device's clock for time spent waiting, gradients spoilt on purpose, and the verdict
 * on collectives that were stopped half way.
 *
 * Life:    reducer_new -> { reducer_join -> reducer_form -> reducer_met -> steps,
 *          reducer_epoch_end, reducer_met ... -> reducer_leave } ... -> reducer_free.
 *          A step: reducer_begin -> reducer_sum, reducer_micro, reducer_bucket ...
 *          -> reducer_finish
 *          -> reducer_updated -> reducer_end -> reducer_step_end.
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
    /* A fault on purpose may change the gradients of `bucket`, before or after they are reduced. */
    int (*spoil)(void *arg, int bucket, int is_reduced, struct err *err);
};

struct reducer_options {
    const struct strategy_ops *strategy;
    const void *options; /* the strategy's own keys; borrowed, as is all that follows */
    struct backend *backend;
    const struct layout *layout;
    void *grad; /* as in strategy_site, as are the next eleven */
    void *const *bucket;
    void *const *sums;
    float *param;
    void *const *param_bucket;
    void *const *own_params;
    const double *check;
    const struct step_scalars *scalars;
    void *slot[STRATEGY_MAX_SLOTS];
    const struct optimizer_options *optimizer;
    void *moment[OPTIMIZER_MAX_SLOTS];
    float *control;
    float *shadow;
    int n_shares, accumulate;
    int64_t *waits; /* [2]: of backend_stopwatch: how long a device waits for collectives */
    struct ring *ring;
    struct reducer_hooks hooks;
};

int reducer_new(const struct reducer_options *o, struct reducer **out, struct err *err);
void reducer_free(struct reducer *r); /* NULL is fine */

const struct strategy_ops *reducer_strategy(const struct reducer *r);
const struct strategy_promises *reducer_promises(const struct reducer *r);
struct exchange *reducer_exchange(struct reducer *r);

/* A formation.  reducer_join takes its collectives, which need not be connected yet. reducer_form
 * begins it, once they are connected. */
void reducer_join(struct reducer *r, struct coll *c);
int reducer_form(struct reducer *r, int source, struct err *err);
void reducer_leave(struct reducer *r);

/* A step is queued.  reducer_sum sums a stage's statistics at once.  reducer_bucket takes a bucket
 * when it is ready.  After reducer_finish the gradients are those that the update is to use.  On a
 * device the control vector shows whether a collective was stopped before it was complete. */
int reducer_begin(struct reducer *r, int64_t step, struct err *err);
int reducer_sum(struct reducer *r, const struct stage *s, struct err *err);
int reducer_bucket(struct reducer *r, int bucket, struct err *err);
/* Where gradients are divided: a bucket of a micro-batch that is not the step's last one; and the
 * bucket's memory is needed for other gradients. */
int reducer_micro(struct reducer *r, int bucket, struct err *err);
int reducer_release(struct reducer *r, int bucket, struct err *err);
/* Where parameters are divided: begin to gather a bucket's parameters, and wait for them. */
int reducer_gather(struct reducer *r, int bucket, struct err *err);
int reducer_gathered(struct reducer *r, int bucket, struct err *err);
/* The collectives that are started from now on belong to a validation, not to a step. */
void reducer_validate(struct reducer *r);
int reducer_finish(struct reducer *r, struct err *err);
int reducer_updated(struct reducer *r, struct err *err);
struct handed reducer_end(struct reducer *r);

/* The factor on this rank's loss in `step`, of whose samples it has `part`, from 0 to 1. */
double reducer_loss_factor(const struct reducer *r, int64_t step, double part);

/* The step counts.  Returns 1 if parameters were changed. */
int reducer_step_end(struct reducer *r, struct err *err);

/* All ranks hold the same state. */
int reducer_met(struct reducer *r, struct err *err);

int reducer_epoch_end(struct reducer *r, struct err *err);

#endif
