/* strategy - the registry of strategies: what `strategy.name` may be, and what each one does.
 *
 * A strategy decides how the ranks of a run combine their work: what happens to each bucket of
 * gradients.
 *
 * A strategy stands between the program's buckets and coll/'s primitives.  The engine calls it
 * through a reducer (strategy/reducer.h) at the same places of every step:
 *
 *     backward ... bucket_ready(0) ... bucket_ready(1) ... before_update, update, after_update
 *
 * and at two places between steps: form, when a new set of ranks begins, and epoch_end.  It talks
 * to the other ranks through an exchange (strategy/exchange.h) only, so that the record of
 * collectives, the display of the phase and faults on purpose work for every strategy alike.
 *
 * Every strategy has one duty: when before_update returns, each bucket holds the gradient that the
 * update is to use, and the control vector at the end of the last bucket (op/control.h) is summed
 * over all ranks, because the ranks agree on a step by it.
 *
 * On a device bucket_ready, before_update and after_update only queue work, and what they queue is
 * recorded: they queue the same every time, and decide nothing by the numbers.
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
    void *grad; /* of layout->grad_dtype: bucket b lies layout->bucket[b].at bytes from its start */
    float *param;                   /* [layout->n_total] */
    void *slot[STRATEGY_MAX_SLOTS]; /* memory of the strategy's own slots, in their order */
    struct exchange *exchange;
};

struct strategy {
    const struct strategy_ops *ops;
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
    enum strategy_recovery recovery;
};

/* All functions but new, bucket_ready, before_update and free may be NULL: nothing to do. */
struct strategy_ops {
    struct option_group group;
    struct strategy_promises promises;
    const struct slot_def *const *slot; /* [n_slots]: what the strategy keeps from step to step */
    int n_slots;

    int (*new)(const struct strategy_site *site, struct strategy **out, struct err *err);
    /* A formation begins, and its ranks are connected.  `source` holds the newest step. */
    int (*form)(struct strategy *s, int source, struct err *err);
    /* This rank's gradients in `bucket` are complete; the other buckets may still change. */
    int (*bucket_ready)(struct strategy *s, int bucket, struct err *err);
    int (*before_update)(struct strategy *s, struct err *err);
    int (*after_update)(struct strategy *s, struct err *err);
    /* The last step of an epoch, or of training, has ended on all ranks.  May block. */
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

#endif
