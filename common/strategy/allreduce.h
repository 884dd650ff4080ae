/* allreduce - the keys of the plain strategy, and what they choose.
 *
 * The strategy is an entry under two names, allreduce and gradient_allreduce, with the same keys.
 *
 * Threads: any; all of it is constant. */
#ifndef STRATEGY_ALLREDUCE_H
#define STRATEGY_ALLREDUCE_H

#include "strategy/compress.h"
#include "strategy/strategy.h"

struct allreduce_options {
    struct compress_options compress; /* first: its ways of working read it */
    int64_t zero;
    int offload; /* by `offloads` */
    int buddy;
    int64_t shards, share_threads;
};

enum { ALLREDUCE_N_ROWS = 8 };

extern const struct option allreduce_rows[ALLREDUCE_N_ROWS]; /* of struct allreduce_options */

/* The functions of an entry that has these keys (option_group, strategy_ops); `options` is a struct
 * allreduce_options. */
int allreduce_check(const void *options, struct err *err);
const struct strategy_ops *allreduce_choose(const void *options);
struct strategy_shares allreduce_shares(const void *options);

#endif
