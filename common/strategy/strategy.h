/* strategy - the registry of strategies: what `strategy.name` may be, and what each one does.
 *
 * A strategy decides how the ranks of a run combine their work: what happens to each bucket of
 * gradients, or to the parameters.
 *
 * A strategy stands between the program's buckets and coll/'s primitives.  The engine calls it
 * through a reducer (strategy/reducer.h) at the same places of every step:
 *
 *     step_begin, forward, backward ... bucket_ready(0) ... bucket_ready(1) ... before_update,
 *     update, after_update ... step_end
 *
 * and between steps: form, when a new set of ranks begins, epoch_end, and met.  It talks
 * to the other ranks through an exchange (strategy/exchange.h) only, so that the record of
 * collectives, the display of the phase and faults on purpose work for every strategy alike.
 *
 * Every strategy has one duty: when before_update returns, each bucket holds the gradient that the
 * update is to use (of a strategy that shards: in the ranges that this rank updates), and the
 * control vector at the end of the last bucket (op/control.h) is summed over all ranks, because the
 * ranks agree on a step by it.
 *
 * Where updates are own (a promise below) each rank updates its parameters by the gradients of its
 * own samples, and the replicas differ.  Then the ranks meet now and then (train/meet.h): all take
 * the mean of their parameters, running statistics and optimizer's slots.  They meet at an epoch's
 * end, before a checkpoint, and after a rank was lost.
 *
 * On a device bucket_ready, before_update and after_update only queue work, and what they queue is
 * recorded: they queue the same every time, and decide nothing by the numbers.
 *
 * With fixed shares (struct strategy_shares) a rank may compute several micro-batches of a step,
 * and bucket_ready is called for each of them; the bucket then holds that micro-batch's gradient
 * alone.
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
    /* Of layout->grad_dtype: bucket b lies layout->bucket[b].at bytes from its start.  NULL where
     * gradients are divided (a promise below). */
    void *grad;
    void *const *bucket; /* [layout->n_buckets]: the address of each bucket, in grad or apart */
    /* [2]: where gradients are divided, the sums of the shards that this rank holds, its own first
     * (strategy/cut.h says where a bucket's are).  The addresses change with the formation. */
    void *const *sums;
    float *param; /* [layout->n_total]; NULL where parameters are divided */
    /* Where parameters are divided: [layout->n_buckets], the address of each bucket's parameters
     * while they are gathered; and [1], this rank's own shard of them, as in sums. */
    void *const *param_bucket;
    void *const *own_params;
    const double *check; /* [2]: grad_check's result, once the update is made */
    const struct step_scalars *scalars;
    float *control; /* [CONTROL_LEN]: the control vector, in grad or apart */
    float
        *shadow; /* [layout->n_state_total]: the next running statistics, as backward leaves them */
    int n_shares, accumulate;       /* fixed shares, or 0; micro-batches of a share */
    void *slot[STRATEGY_MAX_SLOTS]; /* memory of the strategy's own slots, in their order */
    const struct optimizer_options *optimizer; /* the job's */
    void *moment[OPTIMIZER_MAX_SLOTS];         /* memory of the optimizer's slots, in their order */
    struct exchange *exchange;
};

struct strategy {
    const struct strategy_ops *ops; /* set by the reducer once the strategy is made */
    struct strategy_site at;
};

/* The ranks whose state recovery needs after a rank was lost; a new rank's state comes from them.
 */
enum strategy_recovery {
    /* One rank: what any rank holds is whole.  All ranks take the state of the rank with the newest
     * step. */
    STRATEGY_NEEDS_ONE_RANK,
    /* Every rank: each holds a part that no other has.  `form` brings all ranks to one state. */
    STRATEGY_NEEDS_ALL_RANKS,
};

/* Promises that the engine relies on. */
struct strategy_promises {
    /* 1: at an epoch's end all ranks hold the same bytes.  The engine has them compared. */
    int replicas_are_equal;
    /* 1: all ranks start the same collectives in the same order in every step.  Only then are steps
     * recorded where ranks are on devices, and is a step queued before the one ahead of it has
     * ended. */
    int collectives_are_equal;
    /* 1: between two meetings each rank's parameters, running statistics and optimizer's slots are
     * its own.  Only with STRATEGY_NEEDS_ONE_RANK, and only on CPUs. */
    int updates_are_own;
    /* 1: the buckets of before_update hold the sum over all samples, up to rounding, whichever rank
     * has which of them. */
    int sum_is_linear;
    enum strategy_recovery recovery;
    /* The optimizer's slots are divided among the ranks (strategy/cut.h), and each rank updates its
     * own shard of the parameters.  So many ranks hold each shard: 0: slots are not divided; 1: its
     * owner; 2: its owner and its buddy.  The engine brings all ranks to one state itself. */
    int n_holders;
    /* 1: of the gradients, too, a rank keeps the sums of the shards that it holds, and no more. The
     * memory of a bucket is used for others once its sums have left it (bucket_release).  Each
     * micro-batch is summed over the ranks by itself.  Only with n_holders > 0. */
    int gradients_are_divided;
    /* 1: parameters, too.  A bucket's parameters have memory only while they are used: after
     * bucket_gather and bucket_gathered.  Only with gradients_are_divided. */
    int params_are_divided;
};

/* The global batch is cut into fixed shares, and all ranks together compute these whatever their
 * number: so the bits of a step do not depend on it. */
struct strategy_shares {
    int n;         /* 0: none, but one share for each rank */
    int n_threads; /* with shares: of the kernels of every rank, since the bits depend on it */
};

/* An entry whose keys choose among several ways of working has one struct strategy_ops for each,
 * and `choose` in the registered one, whose group all of them share.
 *
 * All functions but new, bucket_ready, before_update and free may be NULL: nothing to do.  Where
 * gradients are divided there are micro_ready and bucket_release, too. */
struct strategy_ops {
    struct option_group group;
    int is_for_cpus;   /* 1: it computes in host memory, so a job of it is refused on GPUs */
    int wants_float32; /* 1: buckets must be of F32 (train.grad_dtype float32) */
    /* The number of updates after which the buckets hold means of the gradient (op/adamw.c); the
     * optimizer must be Adam or AdamW, and nothing is clipped.  NULL: they hold gradients. */
    int64_t (*means_from)(const void *options);
    struct strategy_promises promises;
    const struct slot_def *const *slot; /* [n_slots]: what the strategy keeps from step to step */
    int n_slots;

    /* The way that the options ask for; NULL: there is this one alone.  Of the entry alone. */
    const struct strategy_ops *(*choose)(const void *options);
    /* NULL: no fixed shares.  Of the entry alone. */
    struct strategy_shares (*shares)(const void *options);
    int (*new)(const struct strategy_site *site, struct strategy **out, struct err *err);
    /* A formation begins, and its ranks are connected.  `source` holds the newest step. */
    int (*form)(struct strategy *s, int source, struct err *err);
    /* This rank's gradients in `bucket` are complete; the other buckets may still change. */
    int (*bucket_ready)(struct strategy *s, int bucket, struct err *err);
    /* The same of a micro-batch that is not the step's last one. */
    int (*micro_ready)(struct strategy *s, int bucket, struct err *err);
    /* The bucket's memory is needed for other gradients: wait until its sums have left it.  Nothing
     * is done if they have. */
    int (*bucket_release)(struct strategy *s, int bucket, struct err *err);
    /* Where parameters are divided: begin to gather the bucket's; and wait until they are there.
     * Also between steps, for a validation. */
    int (*bucket_gather)(struct strategy *s, int bucket, struct err *err);
    int (*bucket_gathered)(struct strategy *s, int bucket, struct err *err);
    int (*before_update)(struct strategy *s, struct err *err);
    int (*after_update)(struct strategy *s, struct err *err);

    /* The next three are called on CPUs only. */

    /* A step begins, whose number is exchange_step. */
    int (*step_begin)(struct strategy *s, struct err *err);
    /* The step has ended on this rank, and counts, whatever becomes of the ranks from now on.  May
     * block.  Returns 1 if it changed parameters. */
    int (*step_end)(struct strategy *s, struct err *err);
    /* All ranks hold the same state, after form or after they met. */
    int (*met)(struct strategy *s, struct err *err);
    /* A factor on this rank's loss, and so on its gradients, in `step`, of whose samples it has
     * `part`, from 0 to 1; NULL: 1. */
    double (*loss_factor)(const struct strategy *s, int64_t step, double part);

    /* The last step of an epoch, or of training, has ended on all ranks; or where updates are own,
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

/* The functions and promises that the options ask for. */
const struct strategy_ops *strategy_choose(const struct strategy_options *o);

struct strategy_shares strategy_shares(const struct strategy_options *o);

#endif
