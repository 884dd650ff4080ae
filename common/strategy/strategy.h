/* strategy - the registry of strategies: the values of `strategy.name`, and the interface that each
 * strategy implements.
 *
 * A strategy decides how the ranks of a run combine their work.  Most strategies sum the gradients,
 * bucket by bucket; others average the parameters now and then.
 *
 * A strategy stands between the program's buckets and the collectives of coll/.  The engine calls
 * it through a reducer (strategy/reducer.h) at the same places of every step:
 *
 *     between, overlap, forward, backward ... bucket_ready(0) ... bucket_ready(1) ...
 *     before_update, settled, update, after_update
 *
 * Outside steps the engine calls `form` when a new set of ranks begins, epoch_end, and met.  The
 * places and their order are the same on CPUs and on devices, and so are a strategy's computations:
 * they are programs of operators (program/sketch.h), which every backend runs.  A
 * strategy reaches the other ranks only through an exchange (strategy/exchange.h).  So the record
 * of collectives, the display of the phase and faults on purpose work for every strategy alike.
 *
 * A strategy must ensure two things by the time that before_update returns:
 *   - each bucket holds the gradient that the update is to use (if state is divided: at least in
 *     the ranges that this rank updates);
 *   - the control vector at the end of the last bucket (op/control.h) is summed over all ranks,
 *     because the ranks agree on a step by it.
 *
 * Own updates (updates_are_own below) mean that each rank updates its parameters by the gradients
 * of its own samples, so the replicas differ.  Then the ranks meet now and then (train/meet.h): all
 * take the mean of their parameters, running statistics and optimizer's slots.  They meet at an
 * epoch's end, before a checkpoint, and after a rank was lost.
 *
 * On a device all functions from overlap to after_update only queue work, and a step may be
 * recorded and launched again without calls to them.  So they must queue the same work in every
 * step of one variant (struct strategy_ops), whatever the values of gradients and parameters.
 *
 * With fixed shares (struct strategy_shares) and with divided gradients a rank may compute several
 * micro-batches of a step.  Then bucket_ready is called for each micro-batch, and the bucket holds
 * the gradient of that micro-batch alone.
 *
 * To add a strategy: a word in strategy/meson.build, and strategy/WORD.c with `strategy_WORD`.  The
 * entry brings its name, its help and its own keys of the job file, as every entry of a registry
 * does (config/option.h).
 *
 * Threads: the engine's. */
#ifndef STRATEGY_STRATEGY_H
#define STRATEGY_STRATEGY_H

#include "backend/backend.h"
#include "config/option.h"
#include "optim/optimizer.h"
#include "optim/slot.h"
#include "program/layout.h"

#include "strategy/strategy_list.h" /* generated: STRATEGY_LIST(X) with X(name) for each entry */

struct exchange;

enum { STRATEGY_MAX_SLOTS = 4 };

/* The memory and the objects that a strategy works with, borrowed as long as it lives. */
struct strategy_site {
    const void *options; /* the strategy's own keys: its own struct */
    struct backend *backend;
    const struct layout *layout;
    /* The gradients, of layout->grad_dtype; bucket b begins layout->bucket[b].at bytes from here.
     * NULL if gradients_are_divided (a promise below). */
    void *grad;
    void *const *bucket; /* [layout->n_buckets]: the address of each bucket, in grad or apart */
    /* [2], if gradients_are_divided: the summed gradients of the shards that this rank holds, its
     * own shard first (cut_sums_at says where a bucket's sums are).  The addresses change with the
     * formation. */
    void *const *sums;
    float *param; /* [layout->n_total]; NULL if params_are_divided */
    /* [layout->n_total] of layout->copy_dtype: their working copies, or NULL.  If
     * layout->awaits_params the strategy makes those of the parameters that come. */
    void *copy;
    /* If params_are_divided.  param_bucket [layout->n_param_buckets]: the address of each bucket's
     * parameters while these are gathered.  own_params [1]: this rank's own shard of the
     * parameters.  copy_bucket [layout->n_param_buckets]: the address of each bucket's working
     * copies, which the strategy makes of the gathered parameters; NULL if programs read none.  The
     * addresses change like those of sums. */
    void *const *param_bucket, *const *copy_bucket;
    void *const *own_params;
    const double *check; /* [2]: the result of operator grad_check, valid after the update */
    const struct step_scalars *scalars;
    float *control; /* [CONTROL_LEN]: the control vector, in grad or apart */
    float
        *shadow; /* [layout->n_state_total]: the next running statistics, as backward leaves them */
    int n_shares, accumulate;       /* number of fixed shares, or 0; micro-batches of a share */
    void *slot[STRATEGY_MAX_SLOTS]; /* memory of the strategy's own slots, in their order */
    const struct optimizer_options *optimizer; /* the job's */
    void *moment[OPTIMIZER_MAX_SLOTS];         /* memory of the optimizer's slots, in their order */
    struct exchange *exchange;
};

struct strategy {
    const struct strategy_ops *ops; /* set by the reducer once the strategy is made */
    /* Updates before the step that is queued, if each step under way is applied.  If one is not,
     * that step counts as nothing, and is queued again.  Set by the reducer. */
    int64_t n_updates;
    /* 1: the micro-batch that is queued is the first one of its step, the last one.  Set by the
     * reducer. */
    int is_first_micro, is_last_micro;
    /* For `between`. */
    int begins_round; /* 1: what begins when all ranks are ready begins here.  Set by the reducer */
    int is_ready;     /* 1: this rank is ready.  Set by the strategy */
    struct strategy_site at;
};

/* The ranks whose state is needed to go on after a rank was lost. */
enum strategy_recovery {
    /* Any one rank, because each holds the whole state.  All ranks, a new one included, take the
     * state of the rank with the newest step. */
    STRATEGY_NEEDS_ONE_RANK,
    /* Every rank, because each holds a part of the state that others may not have.  If n_holders is
     * above 0, the engine brings all ranks to one state; else `form` has to. */
    STRATEGY_NEEDS_ALL_RANKS,
};

/* Promises that the engine relies on. */
struct strategy_promises {
    /* 1: at an epoch's end all ranks hold the same bytes.  The ranks then compare hashes of these.
     */
    int replicas_are_equal;
    /* 1: all ranks start the same collectives in the same order in every step.  Only then are steps
     * recorded where ranks are on devices, and is a step queued before the one ahead of it has
     * ended. */
    int collectives_are_equal;
    /* 1: between two meetings each rank's parameters, running statistics and optimizer's slots are
     * its own.  Only with STRATEGY_NEEDS_ONE_RANK. */
    int updates_are_own;
    /* 1: after before_update the buckets hold the sum over all samples of the step, up to rounding,
     * however the samples are distributed over the ranks. */
    int sum_is_linear;
    /* 1: while gradients are computed and summed, the strategy changes neither parameters nor slots
     * that have an element for each of them, so a checkpoint may be copied meanwhile. */
    int state_rests;
    /* 1: the sums of before_update do not depend on how the gradients are cut into buckets, and
     * nothing is kept by buckets from step to step: the strategy may be made anew between steps,
     * for other buckets (reducer_recut).  It has no `form`. */
    int buckets_may_change;
    enum strategy_recovery recovery;
    /* The number of ranks that hold each shard of the state.  0: the state is not divided.
     * Otherwise the optimizer's slots are divided among the ranks (strategy/cut.h), and each rank
     * updates the shards that it holds.  1: only the owner holds a shard; 2: its owner and the next
     * rank, the buddy.  When ranks form anew, the engine moves the shards (state/shards.h). */
    int n_holders;
    /* 1: the gradients are divided, too: a rank keeps the sums of the shards that it holds, and no
     * more.  The memory of a bucket is used for other buckets once its sums have been moved out
     * (divided->release).  Each micro-batch is summed over the ranks by itself.  Only with
     * n_holders > 0. */
    int gradients_are_divided;
    /* 1: the parameters are divided, too.  A bucket's parameters have memory only while they are
     * used: divided->gather and gathered fill it.  Only with gradients_are_divided. */
    int params_are_divided;
};

/* Fixed shares (strategy.shards): the global batch is cut into n shares, which are always computed
 * as batches of their own, whatever the number of ranks.  So the bits of a step do not depend on
 * the number of ranks. */
struct strategy_shares {
    int n;         /* 0: no fixed shares; each rank then has one share of the batch */
    int n_threads; /* with n > 0: threads of the kernels on every rank; the bits depend on it */
};

/* The choice that the options of an entry make. */
struct strategy_choice {
    const struct strategy_ops *ops; /* the method */
    struct strategy_shares shares;
};

/* How buckets come and go of which a rank does not keep the whole. */
struct strategy_divided {
    /* If gradients_are_divided: the bucket's memory is needed for other gradients.  Wait for the
     * bucket's sums and move them out, unless that has been done. */
    int (*release)(struct strategy *s, int bucket, struct err *err);
    /* If params_are_divided, or if a step may begin before all parameters of the step before have
     * come (layout.awaits_params): start to gather the bucket's parameters from all ranks, unless
     * that was done; and wait until they are there.  Also called between steps, for a validation.
     */
    int (*gather)(struct strategy *s, int bucket, struct err *err);
    int (*gathered)(struct strategy *s, int bucket, struct err *err);
};

/* An entry whose keys choose among several methods has one struct strategy_ops for each method.
 * Only the registered one has the keys and `choose`.
 *
 * new, bucket_ready, before_update and free are required.  Any other function may be NULL if there
 * is nothing to do, but gradients_are_divided and layout.awaits_params require `divided`. */
struct strategy_ops {
    struct option_group group;
    int wants_float32; /* 1: buckets must be of F32 (train.grad_dtype float32) */
    /* The key (OPT_INT, of the strategy's own) with the number of updates after which the buckets
     * hold Adam's first moment, the running mean of the gradient, in place of gradients
     * (optim/adamw.h).  The optimizer must be Adam or AdamW, and gradients are not clipped.  NULL:
     * the buckets always hold gradients. */
    const struct option *means_from;
    struct strategy_promises promises;
    const struct slot_def *const *slot; /* [n_slots]: state that the strategy keeps across steps */
    int n_slots;

    /* NULL if there is only this method, without fixed shares.  Read in registered entries only. */
    struct strategy_choice (*choose)(const void *options);
    int (*new)(const struct strategy_site *site, struct strategy **out, struct err *err);
    /* A formation begins, and its ranks are connected.  Rank `source` holds the newest step. */
    int (*form)(struct strategy *s, int source, struct err *err);
    /* This rank's gradients in `bucket` are complete; those in other buckets may still change. */
    int (*bucket_ready)(struct strategy *s, int bucket, struct err *err);
    /* The step's micro-batches so far are computed again, all but the last one: forget their
     * buckets. NULL if only the last micro-batch's are handed over. */
    void (*forget)(struct strategy *s);
    const struct strategy_divided *divided; /* NULL if buckets always have all of their memory */
    /* The gradients are about to be read by the update: make the two things true that the head of
     * this file states. */
    int (*before_update)(struct strategy *s, struct err *err);
    /* The control vector tells from now on whether the step is void, so parameters may be changed
     * where it is not. */
    int (*settled)(struct strategy *s, struct err *err);
    /* The update has been made, or skipped.  The step counts even if this fails because a rank was
     * lost; the parameters of this rank then are those that the update left, or the changed ones.
     * Returns 1 if it changes parameters. */
    int (*after_update)(struct strategy *s, struct err *err);

    /* The number of this step's variant.  Steps of one variant queue the same work, and on a device
     * they share a recording.  All ranks must return the same number for a step.  NULL: all steps
     * queue the same work. */
    int (*variant)(const struct strategy *s);
    /* The forward and backward passes overlap the work that is queued here.  Called in the step's
     * first micro-batch; on a device in its last one, because a recording cannot wait for
     * collectives that another recording started. */
    int (*overlap)(struct strategy *s, struct err *err);
    /* Between two steps: a step is about to be queued, perhaps not for the first time; on a device
     * the last step before it may be under way.  Work that is queued here runs between the two
     * steps, and is not recorded.  If it has collectives, all ranks must queue the same ones ahead
     * of the same step.  The strategy says in is_ready whether this rank is ready for what begins
     * when all ranks are; the control vector of the step counts the ranks that are (CONTROL_READY).
     * If all are, begins_round says so ahead of one later step, the same one on all ranks, unless
     * an epoch ends before.  Returns 1 if it changes parameters. */
    int (*between)(struct strategy *s, struct err *err);
    /* All ranks hold the same state, after form or after they met. */
    int (*met)(struct strategy *s, struct err *err);

    /* The factor by which this rank's loss, and so its gradients, are multiplied in `step`.  `part`
     * is this rank's part of the step's samples, from 0 to 1.  NULL: 1. */
    double (*loss_factor)(const struct strategy *s, int64_t step, double part);
    /* The last step of an epoch, or of training, has ended on all ranks; or, with updates_are_own,
     * the ranks are about to meet inside an epoch.  May block. */
    int (*epoch_end)(struct strategy *s, struct err *err);
    void (*free)(struct strategy *s);
};

#define X(name) extern const struct strategy_ops strategy_##name;
STRATEGY_LIST(X)
#undef X

extern const struct option_group *const strategies[]; /* all of them; NULL at the end */

/* The section `strategy` of a job. */
struct strategy_options {
    const struct strategy_ops *kind;
    const void *options; /* of kind: its own struct */
};

/* The method that the options ask for: its functions and promises. */
const struct strategy_ops *strategy_choose(const struct strategy_options *o);

struct strategy_shares strategy_shares(const struct strategy_options *o);

/* The value of ops->means_from, which must not be NULL. */
int64_t strategy_means_from(const struct strategy_ops *ops, const void *options);

#endif
