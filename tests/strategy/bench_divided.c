/* The bench's ranks under strategy.zero: each updates the shards that it holds, as state/shards.h
 * says.  Buckets of gradients and of parameters are used again for other buckets as early as the
 * strategy allows. */
#include "bench_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "strategy/cut.h"

static int owner_of(const struct rank *k, int h)
{
    return (k->rank - h + k->run->n_ranks) % k->run->n_ranks;
}

static int has_place(const struct rank *k) { return k->ops->promises.gradients_are_divided; }
static int has_params(const struct rank *k) { return k->ops->promises.params_are_divided; }

static float *floats(int64_t n) { return xcalloc((size_t)n + 1, sizeof(float)); }

/* The h-th shard that rank k holds, cut out of a whole array. */
static void cut_out(const struct rank *k, int h, const float *whole, float *shard)
{
    const struct layout *l = &k->layout;
    const int n = k->run->n_ranks, owner = owner_of(k, h);

    for (int b = 0; b < l->n_buckets; b++) {
        const struct coll_span span = cut_span(l, b, n, owner);

        memcpy(shard + cut_before(l, b, n, owner), whole + l->bucket[b].offset + span.at,
               sizeof(float) * (size_t)span.n);
    }
}

int divided_open(struct rank *k, struct err *err)
{
    struct divided *d = &k->d;

    (void)err;
    d->n_held = (int)min_i64(k->ops->promises.n_holders, k->run->n_ranks);
    for (int h = 0; h < d->n_held; h++) {
        const int64_t n = cut_shard(&k->layout, k->run->n_ranks, owner_of(k, h));

        d->sums[h] = floats(n);
        d->momentum[h] = floats(n);
        d->param[h] = floats(n);
        cut_out(k, h, k->w, d->param[h]);
    }
    for (int i = 0; i < BENCH_PLACES; i++) {
        d->place[i] = floats(sim_space.len);
        d->param_place[i] = floats(sim_space.len);
    }
    for (int b = 0; b < k->layout.n_buckets; b++) {
        d->param_bucket[b] = d->param_place[b % BENCH_PLACES];
        if (d->n_held > 0 && has_place(k))
            k->bucket_at[b] = d->place[b % BENCH_PLACES];
    }
    return 0;
}

void divided_close(struct rank *k)
{
    for (int i = 0; i < BENCH_HELD; i++) {
        free(k->d.sums[i]);
        free(k->d.momentum[i]);
        free(k->d.param[i]);
    }
    for (int i = 0; i < BENCH_PLACES; i++) {
        free(k->d.place[i]);
        free(k->d.param_place[i]);
    }
}

/* The next bucket is on its way while this one is waited for. */
int divided_gather(struct rank *k, struct err *err)
{
    const struct layout *l = &k->layout;
    int rc = 0;

    if (k->d.n_held == 0 || !has_params(k))
        return 0;
    for (int b = -1; b < l->n_buckets && rc == 0; b++) {
        if (b + 1 < l->n_buckets)
            rc = reducer_gather(k->reducer, b + 1, err);
        if (b >= 0 && rc == 0)
            rc = reducer_gathered(k->reducer, b, err);
        if (b >= 0 && rc == 0)
            memcpy(k->w + l->bucket[b].offset, k->d.param_bucket[b],
                   sizeof(float) * (size_t)cut_bucket(l, b));
    }
    return rc;
}

int divided_fill(struct rank *k, int bucket, struct err *err)
{
    const struct layout *l = &k->layout;

    if (k->d.n_held == 0 || !has_place(k))
        return 0;
    if (bucket >= BENCH_PLACES && reducer_release(k->reducer, bucket - BENCH_PLACES, err) < 0)
        return err->code;
    memcpy(k->bucket_at[bucket], k->grad + l->bucket[bucket].offset,
           sizeof(float) * (size_t)cut_bucket(l, bucket));
    return 0;
}

static void descend(struct rank *k, float *w, float *m, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = k->run->momentum * m[i] + g[i];
        w[i] = w[i] - SIM_RATE * m[i];
    }
}

void divided_update(struct rank *k)
{
    const struct layout *l = &k->layout;
    const int n = k->run->n_ranks;

    for (int h = 0; h < k->d.n_held; h++)
        for (int b = 0; b < l->n_buckets; b++) {
            const int owner = owner_of(k, h);
            const struct coll_span span = cut_span(l, b, n, owner);
            const int64_t at = l->bucket[b].offset + span.at, in = cut_before(l, b, n, owner);

            descend(k, has_params(k) ? k->d.param[h] + in : k->w + at, k->d.momentum[h] + in,
                    has_place(k) ? k->d.sums[h] + in : k->grad + at, span.n);
        }
}

void divided_show(struct rank *k)
{
    const struct layout *l = &k->layout;
    const int n = k->run->n_ranks;

    for (int h = 0; h < k->d.n_held; h++)
        for (int b = 0; b < l->n_buckets; b++) {
            const int owner = owner_of(k, h);
            const struct coll_span span = cut_span(l, b, n, owner);

            memcpy(k->out->momentum[k->rank][h] + l->bucket[b].offset + span.at,
                   k->d.momentum[h] + cut_before(l, b, n, owner), sizeof(float) * (size_t)span.n);
            memset(k->out->is_held[k->rank][h] + l->bucket[b].offset + span.at, 1, (size_t)span.n);
        }
}
