/* solo - what strategies share in which each rank updates its parameters by its own gradients.
 *
 * In such a strategy no gradients travel.  In each step the control vector alone is summed, because
 * the ranks agree on a step by it: whether the step is applied, and what was requested.  A gradient
 * that is not finite on one rank must keep all ranks from applying the step, so each rank counts
 * itself in the control vector if its gradients are not finite.
 *
 * The update takes this rank's gradients for those of the whole batch, so the rank's loss is
 * multiplied by the number of ranks.  Where all ranks have equally many samples that is the mean
 * over the rank's own samples.  Where they have not, the mean of all ranks' gradients still is the
 * gradient of the global batch.
 *
 * A strategy embeds struct solo as its first member.  Threads: the engine's. */
#ifndef STRATEGY_SOLO_H
#define STRATEGY_SOLO_H

#include "strategy/strategy.h"

struct solo {
    struct strategy base; /* first */
    int is_bad;           /* 1: a gradient of this step is not finite */
    float *aside;         /* [n_trained]: parameters on their way */
};

int solo_new(const struct strategy_site *site, size_t size, struct solo **out, struct err *err);
void solo_free(struct strategy *s);

/* These may stand in a strategy's table. */
int solo_bucket_ready(struct strategy *s, int bucket, struct err *err);
int solo_before_update(struct strategy *s, struct err *err);
double solo_loss_factor(const struct strategy *s, int64_t step, double part);

int solo_n_ranks(const struct strategy *s);

/* Start the sum of each bucket of `aside` over all ranks. */
int solo_sum_aside(struct strategy *s, struct err *err);

/* Wait for the collectives of all buckets. */
int solo_wait_buckets(struct strategy *s, struct err *err);

#endif
