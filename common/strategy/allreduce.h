/* allreduce - the keys of the plain strategy, and the choice among its methods by these keys.
 *
 * The registry has this strategy twice, as allreduce and as gradient_allreduce.  Both entries have
 * the same keys and functions.  A method is one struct strategy_ops: the plain all-reduce
 * (allreduce.c), a compressing one (compress.h), fixed shares (shares.h) or divided state (zero.h).
 *
 * Threads: any; all of it is constant. */
#ifndef STRATEGY_ALLREDUCE_H
#define STRATEGY_ALLREDUCE_H

#include "strategy/compress.h"
#include "strategy/strategy.h"

/* The parts of the state that a GPU's host keeps in its memory: nothing, what the optimizer keeps,
 * or that and the parameters. */
#define OFFLOAD_LIST(X)               \
    X(OFFLOAD_NONE, "none")           \
    X(OFFLOAD_OPTIMIZER, "optimizer") \
    X(OFFLOAD_ALL, "all")

enum offload { OFFLOAD_LIST(WORD_VALUE) };

struct allreduce_options {
    struct compress_options compress; /* first: compressing methods read the struct as this one */
    int64_t zero;                     /* ZeRO stage, 0 to ZERO_MOST_STAGE */
    enum offload offload;
    int buddy;                     /* with zero > 0: 1 if each shard has two holders */
    int64_t shards, share_threads; /* fixed shares, 0: none; threads of each rank with these */
};

enum { ALLREDUCE_N_ROWS = 8 };

extern const struct option allreduce_rows[ALLREDUCE_N_ROWS]; /* of struct allreduce_options */

/* The functions `check` (struct option_group) and `choose` (struct strategy_ops) of an entry that
 * has these keys.  `options` points to a struct allreduce_options. */
int allreduce_check(const void *options, struct err *err);
struct strategy_choice allreduce_choose(const void *options);

#endif
