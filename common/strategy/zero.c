/* zero - the all-reduce in two halves, between which each rank updates only its own shard (ZeRO,
 * stages 1 to 3).
 *
 * Rajbhandari and others 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models".  n is the number of ranks.  Before a change of the order of calls read train/shards.h:
 * it explains why a rank may be lost at any moment.
 *
 * For each bucket, as soon as it is ready:
 *   1. Reduce-scatter: each rank gets the sums of its own span (strategy/cut.h).  Sums are in rank
 *      order, so they have the same bits as those of an all-reduce.
 *   2. With a buddy: each rank sends its sums to the next rank, which holds a copy of its shard.
 * With the last bucket, the control vector is summed over all ranks.  Then each rank updates the
 * shards that it holds, and
 *   3. All-gather: each rank sends the parameters of its own spans to all ranks.  Where
 *      layout.awaits_params says so, the forward pass of the next step begins meanwhile, and waits
 *      for the parameters of a bucket where it reads them first.
 *
 * With P parameters a rank sends 2 (n-1)/n P numbers in a step, as for an all-reduce, and P/n more
 * to its buddy.
 *
 * Stage 1 divides the optimizer's slots.  The gradients have their whole buffer, and the sums stay
 * there.
 *
 * Stage 2 divides the gradients, too.  Once the collectives 1 and 2 of a bucket have ended, the
 * sums of the shards that this rank holds are moved out, and the bucket's memory is used for other
 * buckets.  The engine asks for that by bucket_release; before_update does the rest.  With several
 * micro-batches the collectives 1 and 2 are done for each of them, as in DeepSpeed, and the sums
 * are added up.  So with m micro-batches a rank sends (m+1) (n-1)/n P numbers, and m P/n to its
 * buddy.  The order of additions, and so the rounding, differs from stage 1, which adds
 * micro-batches before it sums over the ranks.
 *
 * Stage 3 divides the parameters, too.  No all-gather follows the update.  Instead a bucket's
 * parameters are gathered, in the same way, whenever the forward or the backward pass needs them,
 * and their memory is used for other buckets afterwards.  A rank sends 3 (n-1)/n P numbers in a
 * step, and P/n to its buddy; with m micro-batches it sends m times as many. */
#include "strategy/zero.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

struct zero {
    struct strategy strategy;
    /* [n_buckets] each.  is_out: the bucket's collectives were started, and its sums have not been
     * moved out.  has_sums: `sums` holds those of an earlier micro-batch of this step, so that the
     * next ones are to be added.  is_coming: the bucket's parameters were on their way after the
     * update, and nothing has waited for them. */
    uint8_t *is_out, *has_sums, *is_coming;
};

static struct zero *of(struct strategy *s) { return container_of(s, struct zero, strategy); }

static int new (const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct zero *z = xcalloc(1, sizeof *z);
    const size_t n = (size_t)site->layout->n_buckets;

    (void)err;
    z->strategy.at = *site;
    z->is_out = xcalloc(n, sizeof *z->is_out);
    z->has_sums = xcalloc(n, sizeof *z->has_sums);
    z->is_coming = xcalloc(n, sizeof *z->is_coming);
    *out = &z->strategy;
    return 0;
}

static int has_buddy(const struct strategy *s) { return s->ops->promises.n_holders > 1; }
static int has_stage_2(const struct strategy *s) { return s->ops->promises.gradients_are_divided; }

static int n_ranks(const struct strategy *s) { return coll_size(exchange_coll(s->at.exchange)); }
static int rank(const struct strategy *s) { return coll_rank(exchange_coll(s->at.exchange)); }

/* The sums of rank `owner`'s span in the bucket, as a message to or from rank `peer`. */
static struct coll_message sums_of(const struct strategy *s, int bucket, int owner, int peer)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const struct coll_span span = cut_span(s->at.layout, bucket, n_ranks(s), owner);

    return (struct coll_message){
        (char *)s->at.bucket[bucket] + dtype_size(b->dtype) * (size_t)span.at, span.n, peer};
}

static int pass_to_buddy(struct strategy *s, int bucket, struct err *err)
{
    const int n = n_ranks(s), after = (rank(s) + 1) % n, before = (rank(s) - 1 + n) % n;

    if (n == 1)
        return 0;
    return exchange_messages(s->at.exchange, bucket, sums_of(s, bucket, rank(s), after),
                             sums_of(s, bucket, before, before), cut_bucket(s->at.layout, bucket),
                             s->at.layout->bucket[bucket].dtype, err);
}

static int sum_control(struct strategy *s, struct err *err)
{
    return exchange_allreduce(s->at.exchange, s->at.layout->n_buckets - 1, s->at.control,
                              CONTROL_LEN, DTYPE_F32, err);
}

static int scatter(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const int64_t n = cut_bucket(s->at.layout, bucket);
    int rc = 0;

    of(s)->is_out[bucket] = 1;
    if (n > 0)
        rc =
            exchange_reduce_scatter(s->at.exchange, bucket, s->at.bucket[bucket], n, b->dtype, err);
    return rc == 0 && n > 0 && has_buddy(s) ? pass_to_buddy(s, bucket, err) : rc;
}

static int scatter_last(struct strategy *s, int bucket, struct err *err)
{
    const int rc = scatter(s, bucket, err);

    return rc == 0 && bucket == s->at.layout->n_buckets - 1 ? sum_control(s, err) : rc;
}

/* ---- sums that leave their bucket ---- */

static void add(float *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += x[i];
}

/* Copy the bucket's sums to the sums of the h-th shard that this rank holds, or add them if an
 * earlier micro-batch has put sums there. */
static void take_sums(struct strategy *s, int bucket, int h)
{
    const int n = n_ranks(s), owner = (rank(s) - h + n) % n;
    const struct coll_message from = sums_of(s, bucket, owner, 0);
    const enum dtype dtype = s->at.layout->bucket[bucket].dtype;
    char *to = (char *)s->at.sums[h] + cut_sums_at(s->at.layout, bucket, n, owner);

    ASSERT(!of(s)->has_sums[bucket] || dtype == DTYPE_F32);
    if (of(s)->has_sums[bucket])
        add((float *)to, from.x, from.n);
    else
        memcpy(to, from.x, dtype_size(dtype) * (size_t)from.n);
}

static int release(struct strategy *s, int bucket, struct err *err)
{
    const int n_held = (int)min_i64(s->ops->promises.n_holders, n_ranks(s));
    int rc;

    if (!of(s)->is_out[bucket])
        return 0;
    rc = exchange_wait(s->at.exchange, bucket, err);
    if (rc < 0)
        return rc;
    for (int h = 0; h < n_held && has_stage_2(s) && cut_bucket(s->at.layout, bucket) > 0; h++)
        take_sums(s, bucket, h);
    of(s)->is_out[bucket] = 0;
    of(s)->has_sums[bucket] = 1;
    return 0;
}

/* Forget the marks of the step before, which may have broken off half way. */
static int begin(struct strategy *s, struct err *err)
{
    const size_t n = (size_t)s->at.layout->n_buckets;

    (void)err;
    memset(of(s)->is_out, 0, n);
    memset(of(s)->has_sums, 0, n);
    return 0;
}

static int release_all(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = release(s, b, err);
    return rc;
}

/* ---- parameters ---- */

static int wait_for_all(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = exchange_wait(s->at.exchange, b, err);
    return rc;
}

/* Stage 3: start to gather the parameters of one bucket.  In the other stages that was done after
 * the update.  This rank's own span of the bucket comes from its shard. */
static int gather_bucket(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;
    const struct coll_span own = cut_span(l, bucket, n_ranks(s), rank(s));
    const int64_t before = cut_before(l, bucket, n_ranks(s), rank(s));
    float *to;

    if (!s->ops->promises.params_are_divided || cut_bucket(l, bucket) == 0)
        return 0;
    to = s->at.param_bucket[bucket];
    memcpy(to + own.at, (const float *)s->at.own_params[0] + before, sizeof *to * (size_t)own.n);
    return exchange_allgather_spans(s->at.exchange, bucket, to, cut_bucket(l, bucket), DTYPE_F32,
                                    err);
}

/* Where parameters are not divided, a step waits once for those of a bucket.  A later wait, in the
 * backward pass, would be for the sums of the bucket's gradients. */
static int wait_for_bucket(struct strategy *s, int bucket, struct err *err)
{
    const int is_needed = s->ops->promises.params_are_divided || of(s)->is_coming[bucket];

    of(s)->is_coming[bucket] = 0;
    return is_needed ? exchange_wait(s->at.exchange, bucket, err) : 0;
}

static int gather(struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;
    int rc = 0;

    if (s->ops->promises.params_are_divided)
        return 0;
    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        of(s)->is_coming[b] = 1;
        if (cut_bucket(l, b) > 0)
            rc = exchange_allgather_spans(s->at.exchange, b, s->at.param + l->bucket[b].offset,
                                          cut_bucket(l, b), DTYPE_F32, err);
    }
    return rc == 0 && !l->awaits_params ? wait_for_all(s, err) : rc;
}

static void free_it(struct strategy *s)
{
    free(of(s)->is_out);
    free(of(s)->has_sums);
    free(of(s)->is_coming);
    free(of(s));
}

#define WAY(stage, holders)                                                                       \
    {                                                                                             \
        .group = {.name = "allreduce"},                                                           \
        .promises = {.replicas_are_equal = 1,                                                     \
                     .collectives_are_equal = 1,                                                  \
                     .sum_is_linear = 1,                                                          \
                     .recovery = STRATEGY_NEEDS_ALL_RANKS,                                        \
                     .n_holders = (holders),                                                      \
                     .gradients_are_divided = (stage) >= 2,                                       \
                     .params_are_divided = (stage) >= 3},                                         \
        .new = new, .step_begin = begin, .bucket_ready = scatter_last, .micro_ready = scatter,    \
        .bucket_release = release, .bucket_gather = gather_bucket,                                \
        .bucket_gathered = wait_for_bucket, .before_update = release_all, .after_update = gather, \
        .epoch_end = wait_for_all, .free = free_it                                                \
    }

static const struct strategy_ops ways[ZERO_MOST_STAGE][2] = {
    {WAY(1, 1), WAY(1, 2)}, {WAY(2, 1), WAY(2, 2)}, {WAY(3, 1), WAY(3, 2)}};

const struct strategy_ops *zero_choose(int stage, int buddy) { return &ways[stage - 1][buddy]; }
