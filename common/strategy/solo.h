/* solo - the common part of strategies in which each rank updates its parameters by its own
 * gradients: async, decentralized, local_sgd and low_precision_decentralized.
 *
 * In such a strategy no gradients travel.  In each step only the control vector is summed, because
 * the ranks agree by it whether the step is applied, and what was requested.  A gradient that is
 * not finite on one rank must keep all ranks from applying the step.  So a rank whose gradients are
 * not finite counts itself in the control vector (CONTROL_NONFINITE).
 *
 * The update uses this rank's gradients as if they were those of the whole batch, so the rank's
 * loss is multiplied by the number of ranks.  If all ranks have equally many samples, the result is
 * the mean over the rank's own samples.  Otherwise the mean of all ranks' gradients still is the
 * gradient of the global batch.
 *
 * A strategy embeds struct solo as its first member.  Threads: the engine's. */
#ifndef STRATEGY_SOLO_H
#define STRATEGY_SOLO_H

#include "strategy/strategy.h"

struct solo {
    struct strategy base; /* first */
    int is_bad;           /* 1: a gradient of this rank in this step is not finite */
    float *aside;         /* [n_trained]: a buffer for parameters that travel between ranks */
};

/* Make a strategy whose own struct has `size` bytes and begins with a struct solo.  The rest is
 * zeroed.  Fails with ERR_NOMEM. */
int solo_new(const struct strategy_site *site, size_t size, struct solo **out, struct err *err);
void solo_free(struct strategy *s);

/* The slots bucket_ready, before_update and loss_factor of struct strategy_ops.  The last bucket's
 * solo_bucket_ready starts the sum of the control vector, and solo_before_update waits for it. */
int solo_bucket_ready(struct strategy *s, int bucket, struct err *err);
int solo_before_update(struct strategy *s, struct err *err);
double solo_loss_factor(const struct strategy *s, int64_t step, double part);

/* The number of ranks of the formation. */
int solo_n_ranks(const struct strategy *s);

/* Start the sum of `aside` over all ranks, bucket by bucket; solo_wait_buckets waits for it. */
int solo_sum_aside(struct strategy *s, struct err *err);

/* Wait for the collectives of all buckets. */
int solo_wait_buckets(struct strategy *s, struct err *err);

#endif
