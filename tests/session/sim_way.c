/* The ranks that wait for each other, and the step that is left whole: pure functions of a
 * strategy's kind. */
#include "sim_way.h"

struct way way_of_seed(uint64_t seed)
{
    return (struct way){.kind = (enum way_kind)(seed / 2 % WAY_COUNT),
                        .has_buddies = seed / (2 * WAY_COUNT) % 4 != 0};
}

const char *way_name(const struct way *w)
{
    static const char *const names[] = {"all", "pairs", "ring", "shards"};
    return w->kind == WAY_SHARDS && !w->has_buddies ? "shards without buddies" : names[w->kind];
}

int way_has(const struct way *w, enum way_part part)
{
    switch (part) {
    case PART_BEFORE:
        return w->kind == WAY_PAIRS || w->kind == WAY_SHARDS;
    case PART_AFTER:
        return w->kind == WAY_RING || w->kind == WAY_SHARDS;
    default:
        return 1;
    }
}

int way_is_of_all(const struct way *w, enum way_part part)
{
    return part == PART_SUM || (part == PART_AFTER && w->kind == WAY_SHARDS);
}

/* The peer of rank r of n in this round, or n if it rests: each rank of the lower half meets one of
 * the upper half, another one in each round. */
static int peer_of(int n, int r, int64_t round)
{
    int half = (n + 1) / 2, shift = (int)(round % half);
    int peer = r < half ? half + (r + shift) % half : (r - half - shift + half) % half;
    return peer < n ? peer : n;
}

int way_meets(const struct way *w, enum way_part part, int64_t step, int n, int a, int b)
{
    int is_neighbour = b == (a + 1) % n || b == (a + n - 1) % n;
    if (a == b)
        return 0;
    if (part == PART_BEFORE)
        return w->kind == WAY_PAIRS ? b == peer_of(n, a, step) : is_neighbour;
    return part == PART_AFTER && w->kind == WAY_RING ? is_neighbour : 1;
}

/* ---- the state ---- */

/* 1: the rank holds the shard of `owner` of the state that `of` holds, or can still make the update
 * that leads to it. */
static int holds(const struct way *w, const struct way_rank *r, const struct way_rank *of,
                 int owner)
{
    const struct shard *h = &r->shard, *want = &of->shard;
    if (h->size != want->size || h->lineage != want->lineage ||
        (r->step != of->step && !(r->step == of->step - 1 && h->prepared == r->step)))
        return 0;
    return h->rank == owner || (w->has_buddies && h->rank == (owner + 1) % h->size);
}

static int is_whole(const struct way *w, const struct way_rank *rank, int n,
                    const struct way_rank *of)
{
    for (int owner = 0; owner < of->shard.size; owner++) {
        int n_holders = 0;
        for (int r = 0; r < n; r++)
            n_holders += holds(w, &rank[r], of, owner);
        if (n_holders == 0)
            return 0;
    }
    return of->shard.size > 0;
}

int way_newest_whole(const struct way *w, const struct way_rank *rank, int n)
{
    int best = -1;
    for (int r = 0; r < n; r++) {
        const struct way_rank *b = &rank[best < 0 ? 0 : best];
        int is_better = best < 0 || rank[r].step > b->step ||
                        (rank[r].step == b->step && rank[r].shard.lineage > b->shard.lineage);
        if (is_better && is_whole(w, rank, n, &rank[r]))
            best = r;
    }
    return best;
}
