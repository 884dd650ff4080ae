/* cut - how the parameters are divided among ranks: the spans of each rank's shard.
 *
 * Each bucket's parameters are cut into one span for each rank, as coll_span cuts them.  So the
 * reduce-scatter of a bucket leaves each rank the sums of its own span, and all ranks work on every
 * bucket.  A rank's shard is all its spans, in the order of the buckets.  A span may end inside a
 * parameter, and the spans of the last ranks may be empty.  Nothing is padded.  Where parameters
 * are divided, the frozen ones are, too: their buckets are the last ones (program/layout.h), so
 * their spans are the end of a shard.
 *
 * All offsets and lengths are in elements, unless a comment says bytes.  All strategies use
 * cut_bucket.  The other functions are for divided state (strategy/zero.c, state/shards.c).
 *
 * Threads: pure. */
#ifndef STRATEGY_CUT_H
#define STRATEGY_CUT_H

#include "coll/coll.h"
#include "program/layout.h"

/* The number of parameters (with padding) in a bucket.  The rest of a bucket is the control vector,
 * which only the last one of gradients has. */
static inline int64_t cut_bucket(const struct layout *l, int bucket)
{
    const struct bucket *b = &l->bucket[bucket];
    const int64_t rest = l->n_trained - b->offset;

    return bucket >= l->n_buckets || b->length < rest ? b->length : rest;
}

/* Rank `owner`'s span among `size` ranks, in elements from the start of the bucket. */
static inline struct coll_span cut_span(const struct layout *l, int bucket, int size, int owner)
{
    return coll_span(cut_bucket(l, bucket), size, owner);
}

/* The number of elements of `owner`'s shard that lie in the buckets before `bucket`. */
static inline int64_t cut_before(const struct layout *l, int bucket, int size, int owner)
{
    int64_t n = 0;

    for (int b = 0; b < bucket; b++)
        n += cut_span(l, b, size, owner).n;
    return n;
}

/* The number of trained elements of `owner`'s whole shard. */
static inline int64_t cut_shard(const struct layout *l, int size, int owner)
{
    return cut_before(l, l->n_buckets, size, owner);
}

/* Bytes from the start of the sums of `owner`'s shard to the sums of `bucket`.  Sums are of type
 * l->grad_dtype. */
static inline size_t cut_sums_at(const struct layout *l, int bucket, int size, int owner)
{
    return dtype_size(l->grad_dtype) * (size_t)cut_before(l, bucket, size, owner);
}

#endif
