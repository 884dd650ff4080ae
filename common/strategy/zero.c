/* zero - the all-reduce in two halves, between which each rank updates only its own shard (ZeRO,
 * stages 1 to 3).
 *
 * Rajbhandari and others 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models".  n is the number of ranks.  Before a change of the order of calls read state/shards.h:
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
 *      for the parameters of a bucket where it reads them first.  Once these are there, their
 *      working copies are made, if the network reads such.
 *
 * With P parameters a rank sends 2 (n-1)/n P numbers in a step, as for an all-reduce, and P/n more
 * to its buddy.
 *
 * Stage 1 divides the optimizer's slots.  The gradients have their whole buffer, and the sums stay
 * there.
 *
 * Stage 2 divides the gradients, too.  Once the collectives 1 and 2 of a bucket have ended, the
 * sums of the shards that this rank holds are moved out, and the bucket's memory is used for other
 * buckets.  The engine asks for that by divided->release; before_update does the rest.  With
 * several micro-batches the collectives 1 and 2 are done for each of them, as in DeepSpeed, and the
 * sums are added up.  So with m micro-batches a rank sends (m+1) (n-1)/n P numbers, and m P/n to
 * its buddy.  The order of additions, and so the rounding, differs from stage 1, which adds
 * micro-batches before it sums over the ranks.
 *
 * Stage 3 divides the parameters, too.  No all-gather follows the update.  Instead a bucket's
 * parameters are gathered, in the same way, whenever the forward or the backward pass needs them,
 * and their memory is used for other buckets afterwards.  A rank sends 3 (n-1)/n P numbers in a
 * step, and P/n to its buddy; with m micro-batches it sends m times as many.  In half precision
 * the parameters travel as float32, too, because norms read them so.  Once a bucket is there, its
 * working copies are made.
 *
 * In stage 3 frozen parameters are divided and gathered like the others, in buckets of their own,
 * and nothing else is done with them: they have neither gradients nor an update.  F frozen ones
 * cost 2 (n-1)/n F numbers, or half of that if the backward pass does not read them. */
#include "strategy/zero.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "op/control.h"
#include "program/sketch.h"
#include "strategy/cut.h"
#include "strategy/exchange.h"

enum { N_HELD = 2 }; /* shards that a rank holds at most */

/* The way in which a bucket's sums leave it, once its collectives have ended.  In a step's first
 * micro-batch they are copied to the shard; later they are added to the sums there. */
enum { NOTHING, TO_COPY, TO_ADD };

struct zero {
    struct strategy strategy;
    /* [n_buckets]: NOTHING, or the bucket's collectives were started, and its sums leave it in this
     * way. */
    uint8_t *is_out;
    /* [n_param_buckets]: 1: the bucket's parameters are on their way, and nothing has waited for
     * them. */
    uint8_t *is_coming;
    /* [n_param_buckets]: makes a bucket's working copies; NULL where programs read none, or the
     * engine makes them.  Each formation has its own, with scratch in round_arena. */
    struct program **round;
    /* [N_HELD * n_buckets]: adds a bucket's sums to those in the h-th shard that this rank holds.
     * NULL where nothing is ever added.  Likewise, with scratch in `arena`. */
    struct program **add;
    void *arena, *round_arena;
};

static struct zero *zero_of(struct strategy *s) { return container_of(s, struct zero, strategy); }

static int zero_new(const struct strategy_site *site, struct strategy **out, struct err *err)
{
    struct zero *z = xcalloc(1, sizeof *z);
    const size_t n = (size_t)site->layout->n_buckets;
    const size_t n_params = (size_t)site->layout->n_param_buckets;

    (void)err;
    z->strategy.at = *site;
    z->is_out = xcalloc(n, sizeof *z->is_out);
    z->is_coming = xcalloc(n_params, sizeof *z->is_coming);
    z->round = xcalloc(n_params, sizeof *z->round);
    z->add = xcalloc(N_HELD * n, sizeof(struct program *));
    *out = &z->strategy;
    return 0;
}

static int has_buddy(const struct strategy *s) { return s->ops->promises.n_holders > 1; }
static int has_stage_2(const struct strategy *s) { return s->ops->promises.gradients_are_divided; }
static int has_stage_3(const struct strategy *s) { return s->ops->promises.params_are_divided; }

static int zero_n_ranks(const struct strategy *s)
{
    return coll_size(exchange_coll(s->at.exchange));
}
static int zero_rank(const struct strategy *s) { return coll_rank(exchange_coll(s->at.exchange)); }

/* The sums of rank `owner`'s span in the bucket, as a message to or from rank `peer`. */
static struct coll_message zero_sums_of(const struct strategy *s, int bucket, int owner, int peer)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const struct coll_span span = cut_span(s->at.layout, bucket, zero_n_ranks(s), owner);

    return (struct coll_message){
        (char *)s->at.bucket[bucket] + dtype_size(b->dtype) * (size_t)span.at, span.n, peer};
}

static int pass_to_buddy(struct strategy *s, int bucket, struct err *err)
{
    const int n = zero_n_ranks(s), after = (zero_rank(s) + 1) % n,
              before = (zero_rank(s) - 1 + n) % n;

    if (n == 1)
        return 0;
    return exchange_messages(s->at.exchange, bucket, zero_sums_of(s, bucket, zero_rank(s), after),
                             zero_sums_of(s, bucket, before, before),
                             cut_bucket(s->at.layout, bucket), s->at.layout->bucket[bucket].dtype,
                             err);
}

static int sum_control(struct strategy *s, struct err *err)
{
    return exchange_allreduce(s->at.exchange, s->at.layout->n_buckets - 1, s->at.control,
                              CONTROL_LEN, DTYPE_F32, err);
}

static int zero_scatter(struct strategy *s, int bucket, struct err *err)
{
    const struct bucket *b = &s->at.layout->bucket[bucket];
    const int64_t n = cut_bucket(s->at.layout, bucket);
    int rc = 0;

    ASSERT(zero_of(s)->is_out[bucket] == NOTHING);
    zero_of(s)->is_out[bucket] = s->is_first_micro ? TO_COPY : TO_ADD;
    if (n > 0)
        rc =
            exchange_reduce_scatter(s->at.exchange, bucket, s->at.bucket[bucket], n, b->dtype, err);
    return rc == 0 && n > 0 && has_buddy(s) ? pass_to_buddy(s, bucket, err) : rc;
}

static int zero_bucket_ready(struct strategy *s, int bucket, struct err *err)
{
    const int is_last = s->is_last_micro && bucket == s->at.layout->n_buckets - 1;
    const int rc = zero_scatter(s, bucket, err);

    return rc == 0 && is_last ? sum_control(s, err) : rc;
}

/* ---- sums that leave their bucket ---- */

/* The sums in a bucket that belong to the h-th shard which this rank holds, and their place there.
 */
struct leaving {
    struct coll_message from;
    void *to;
};

static struct leaving zero_find_leaving(const struct strategy *s, int bucket, int h)
{
    const int n = zero_n_ranks(s), owner = (zero_rank(s) - h + n) % n;

    return (struct leaving){zero_sums_of(s, bucket, owner, 0),
                            (char *)s->at.sums[h] + cut_sums_at(s->at.layout, bucket, n, owner)};
}

static int n_held(const struct strategy *s)
{
    return (int)min_i64(s->ops->promises.n_holders, zero_n_ranks(s));
}

static struct program **zero_adder(struct strategy *s, int bucket, int h)
{
    return &zero_of(s)->add[h * s->at.layout->n_buckets + bucket];
}

/* Copy the bucket's sums to those of the h-th shard, or add them, as is_out says. */
static int take_sums(struct strategy *s, int bucket, int h, struct err *err)
{
    const size_t size = dtype_size(s->at.layout->bucket[bucket].dtype);
    const struct leaving l = zero_find_leaving(s, bucket, h);

    if (zero_of(s)->is_out[bucket] == TO_ADD)
        return sketch_run(*zero_adder(s, bucket, h), err);
    return l.from.n == 0
               ? 0
               : backend_copy(s->at.backend, l.to, l.from.x, size * (size_t)l.from.n, err);
}

static int zero_release(struct strategy *s, int bucket, struct err *err)
{
    int rc;

    if (zero_of(s)->is_out[bucket] == NOTHING)
        return 0;
    rc = exchange_wait(s->at.exchange, bucket, err);
    for (int h = 0; h < n_held(s) && has_stage_2(s) && rc == 0; h++)
        rc = take_sums(s, bucket, h, err);
    if (rc == 0)
        zero_of(s)->is_out[bucket] = NOTHING;
    return rc;
}

static int make_adder(struct strategy *s, int bucket, int h, struct err *err)
{
    const struct leaving l = zero_find_leaving(s, bucket, h);
    struct sketch k;
    int in[2];

    if (l.from.n <= 0)
        return 0;
    ASSERT(s->at.layout->bucket[bucket].dtype == DTYPE_F32);
    k = sketch_begin(err);
    in[0] = sketch_place(&k, DTYPE_F32, SHAPE(l.from.n), l.to, "sums");
    in[1] = sketch_place(&k, DTYPE_F32, SHAPE(l.from.n), l.from.x, "more");
    sketch_node(&k, OP_add, NULL, in, 2, &in[0], "add");
    return sketch_end(&k, s->at.backend, NULL, zero_adder(s, bucket, h));
}

static int make_adders(struct strategy *s, struct err *err)
{
    const int n = s->at.layout->n_buckets;
    int rc = 0;

    for (int h = 0; h < n_held(s); h++)
        for (int b = 0; b < n && rc == 0; b++)
            rc = make_adder(s, b, h, err);
    return rc == 0
               ? sketch_bind(zero_of(s)->add, N_HELD * n, s->at.backend, &zero_of(s)->arena, err)
               : rc;
}

static void zero_drop_programs(struct program **p, int n)
{
    for (int i = 0; i < n; i++) {
        program_free(p[i]);
        p[i] = NULL;
    }
}

static void drop_adders(struct strategy *s)
{
    zero_drop_programs(zero_of(s)->add, N_HELD * s->at.layout->n_buckets);
    backend_free(s->at.backend, zero_of(s)->arena);
    zero_of(s)->arena = NULL;
}

/* ---- working copies of gathered parameters ---- */

/* The address of the bucket's parameters. */
static float *params_of(const struct strategy *s, int bucket)
{
    return has_stage_3(s) ? s->at.param_bucket[bucket]
                          : s->at.param + s->at.layout->bucket[bucket].offset;
}

static void *copies_of(const struct strategy *s, int bucket)
{
    const struct layout *l = s->at.layout;

    return has_stage_3(s)
               ? s->at.copy_bucket[bucket]
               : (char *)s->at.copy + dtype_size(l->copy_dtype) * (size_t)l->bucket[bucket].offset;
}

static int make_rounder(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;

    return sketch_cast(s->at.backend, cut_bucket(l, bucket), params_of(s, bucket),
                       copies_of(s, bucket), l->copy_dtype, &zero_of(s)->round[bucket], err);
}

/* The number of buckets whose parameters are gathered. */
static int n_gathered(const struct strategy *s)
{
    return has_stage_3(s) ? s->at.layout->n_param_buckets : s->at.layout->n_buckets;
}

static int wants_rounders(const struct strategy *s)
{
    return s->at.copy_bucket || (s->at.copy && s->at.layout->awaits_params);
}

static int make_rounders(struct strategy *s, struct err *err)
{
    const int n = n_gathered(s);
    int rc = 0;

    for (int b = 0; b < n && rc == 0; b++)
        rc = make_rounder(s, b, err);
    return rc == 0 ? sketch_bind(zero_of(s)->round, n, s->at.backend, &zero_of(s)->round_arena, err)
                   : rc;
}

static void drop_rounders(struct strategy *s)
{
    zero_drop_programs(zero_of(s)->round, s->at.layout->n_param_buckets);
    backend_free(s->at.backend, zero_of(s)->round_arena);
    zero_of(s)->round_arena = NULL;
}

/* Forget the marks of a step that broke off half way, too: steps break off only where the formation
 * ends. */
static int zero_form(struct strategy *s, int source, struct err *err)
{
    int rc = 0;

    ASSERT(source >= 0 && source < zero_n_ranks(s));
    drop_adders(s);
    drop_rounders(s);
    memset(zero_of(s)->is_out, NOTHING, (size_t)s->at.layout->n_buckets);
    memset(zero_of(s)->is_coming, 0, (size_t)s->at.layout->n_param_buckets);
    if (rc == 0 && wants_rounders(s))
        rc = make_rounders(s, err);
    return rc == 0 && has_stage_2(s) && s->at.accumulate > 1 ? make_adders(s, err) : rc;
}

static int release_all(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < s->at.layout->n_buckets && rc == 0; b++)
        rc = zero_release(s, b, err);
    return rc;
}

/* ---- parameters ---- */

/* Stage 3: start to gather the parameters of one bucket.  In the other stages that was done after
 * the update.  This rank's own span of the bucket comes from its shard. */
static int gather_bucket(struct strategy *s, int bucket, struct err *err)
{
    const struct layout *l = s->at.layout;
    const struct coll_span own = cut_span(l, bucket, zero_n_ranks(s), zero_rank(s));
    const int64_t before = cut_before(l, bucket, zero_n_ranks(s), zero_rank(s));
    float *to;

    if (!has_stage_3(s) || cut_bucket(l, bucket) == 0)
        return 0;
    ASSERT(!zero_of(s)->is_coming[bucket]);
    zero_of(s)->is_coming[bucket] = 1;
    to = s->at.param_bucket[bucket];
    if (own.n > 0 &&
        backend_copy(s->at.backend, to + own.at, (const float *)s->at.own_params[0] + before,
                     sizeof *to * (size_t)own.n, err) < 0)
        return err->code;
    return exchange_allgather_spans(s->at.exchange, bucket, to, cut_bucket(l, bucket), DTYPE_F32,
                                    err);
}

/* Parameters that came are waited for once.  A later wait, in the backward pass, might be for the
 * sums of the bucket's gradients. */
static int wait_for_bucket(struct strategy *s, int bucket, struct err *err)
{
    int rc;

    if (!zero_of(s)->is_coming[bucket])
        return 0;
    zero_of(s)->is_coming[bucket] = 0;
    rc = exchange_wait(s->at.exchange, bucket, err);
    return rc == 0 ? sketch_run(zero_of(s)->round[bucket], err) : rc;
}

static int wait_for_all(struct strategy *s, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < n_gathered(s) && rc == 0; b++)
        rc = wait_for_bucket(s, b, err);
    return rc;
}

static int zero_gather(struct strategy *s, struct err *err)
{
    const struct layout *l = s->at.layout;
    int rc = 0;

    for (int b = 0; b < l->n_buckets; b++)
        ASSERT(zero_of(s)->is_out[b] == NOTHING);
    if (has_stage_3(s))
        return 0;
    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        zero_of(s)->is_coming[b] = 1;
        if (cut_bucket(l, b) > 0)
            rc = exchange_allgather_spans(s->at.exchange, b, s->at.param + l->bucket[b].offset,
                                          cut_bucket(l, b), DTYPE_F32, err);
    }
    return rc == 0 && !l->awaits_params ? wait_for_all(s, err) : rc;
}

static void zero_free(struct strategy *s)
{
    drop_adders(s);
    drop_rounders(s);
    free(zero_of(s)->add);
    free(zero_of(s)->round);
    free(zero_of(s)->is_out);
    free(zero_of(s)->is_coming);
    free(zero_of(s));
}

static const struct strategy_divided comes_and_goes = {
    .release = zero_release, .gather = gather_bucket, .gathered = wait_for_bucket};

#define WAY(stage, holders)                                                                    \
    {                                                                                          \
        .group = {.name = "allreduce"},                                                        \
        .promises = {.replicas_are_equal = 1,                                                  \
                     .collectives_are_equal = 1,                                               \
                     .sum_is_linear = 1,                                                       \
                     .recovery = STRATEGY_NEEDS_ALL_RANKS,                                     \
                     .n_holders = (holders),                                                   \
                     .gradients_are_divided = (stage) >= 2,                                    \
                     .params_are_divided = (stage) >= 3},                                      \
        .new = zero_new, .form = zero_form, .bucket_ready = zero_bucket_ready,                 \
        .divided = &comes_and_goes, .before_update = release_all, .after_update = zero_gather, \
        .epoch_end = wait_for_all, .free = zero_free                                           \
    }

static const struct strategy_ops ways[ZERO_MOST_STAGE][2] = {
    {WAY(1, 1), WAY(1, 2)}, {WAY(2, 1), WAY(2, 2)}, {WAY(3, 1), WAY(3, 2)}};

const struct strategy_ops *zero_choose(int stage, int buddy)
{
    ASSERT(stage >= 1 && stage <= ZERO_MOST_STAGE && (buddy == 0 || buddy == 1));
    return &ways[stage - 1][buddy];
}
