/* allreduce - the plain strategy: every bucket is summed over all ranks as soon as it is ready.
 *
 * The sums run while backward goes on, and every rank then makes the same update of the same
 * parameters. */
#include <stdlib.h>

#include "base/alloc.h"
#include "strategy/exchange.h"
#include "strategy/strategy.h"

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    (void)err;
    *out = xcalloc(1, sizeof **out);
    (*out)->at = *site;
    return 0;
}

static int sum(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];

    return exchange_allreduce(s->at.exchange, bucket, (char *)s->at.grad + b->at, b->length,
                              b->dtype, err);
}

static int wait_for_sums(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = exchange_wait(s->at.exchange, b, err);
    return rc;
}

static void free_it(struct strategy *s) { free(s); }

const struct strategy_ops strategy_allreduce = {
    .group = {.name = "allreduce",
              .help = "gradients are summed over all ranks, and every rank makes the same update"},
    .promises = {.replicas_are_equal = 1,
                 .collectives_are_equal = 1,
                 .recovery = STRATEGY_NEEDS_ONE_RANK},
    .new = new,
    .bucket_ready = sum,
    .before_update = wait_for_sums,
    .free = free_it,
};
