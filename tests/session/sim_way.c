/* Strategies, as the protocol sees them: the ranks that an engine waits for in the parts of a step,
 * and the ranks without which the state is lost.
 *
 * Where state is divided, a formation goes on from the newest step of which every shard is left, on
 * its owner or on its buddy.  If there is none, it goes on from the newest checkpoint. */
#include "base/util.h"
#include "sim_impl.h"

static const char *const names[] = {"all", "pairs", "ring", "shards"};

void way_choose(struct sim *s)
{
    s->way = (enum sim_way)(s->seed / 2 % WAY_COUNT);
    s->has_buddies = s->seed / (2 * WAY_COUNT) % 4 != 0;
    sim_say(s, "a step's collectives: %s%s", names[s->way],
            s->way == WAY_SHARDS && !s->has_buddies ? ", without buddies" : "");
}

int way_has(const struct sim *s, enum sim_part part)
{
    switch (part) {
    case PART_BEFORE:
        return s->way == WAY_PAIRS || s->way == WAY_SHARDS;
    case PART_AFTER:
        return s->way == WAY_RING || s->way == WAY_SHARDS;
    default:
        return 1;
    }
}

/* The peer of rank r of n in this round, or n if it rests: each rank of the lower half meets one of
 * the upper half, another one in each round. */
static int peer_of(int n, int r, int64_t round)
{
    int half = (n + 1) / 2, shift = (int)(round % half);
    int peer = r < half ? half + (r + shift) % half : (r - half - shift + half) % half;
    return peer < n ? peer : n;
}

int way_meets(const struct sim *s, enum sim_part part, int64_t step, int n, int a, int b)
{
    int is_neighbour = b == (a + 1) % n || b == (a + n - 1) % n;
    if (a == b)
        return 0;
    if (part == PART_BEFORE)
        return s->way == WAY_PAIRS ? b == peer_of(n, a, step) : is_neighbour;
    return part == PART_AFTER && s->way == WAY_RING ? is_neighbour : 1;
}

/* ---- the state ---- */

static struct fake_engine *member(struct sim *s, int64_t g, int rank)
{
    return &s->nodes[s->group[g][rank]].e;
}

/* 1: the engine holds the shard of `owner` of the state that `of` holds, or can still make the
 * update that leads to it. */
static int holds(const struct sim *s, const struct fake_engine *e, const struct fake_engine *of,
                 int owner)
{
    const struct shard *h = &e->shard, *want = &of->shard;
    if (h->size != want->size || h->lineage != want->lineage ||
        (e->step != of->step && !(e->step == of->step - 1 && h->prepared == e->step)))
        return 0;
    return h->rank == owner || (s->has_buddies && h->rank == (owner + 1) % h->size);
}

static int is_whole(struct sim *s, int64_t g, const struct fake_engine *of)
{
    for (int owner = 0; owner < of->shard.size; owner++) {
        int n = 0;
        for (int r = 0; r < s->group_size[g]; r++)
            n += holds(s, member(s, g, r), of, owner);
        if (n == 0)
            return 0;
    }
    return of->shard.size > 0;
}

/* Rank 0 loads the newest checkpoint; one that is being written is waited for. */
static const struct weights *load(struct sim *s, int64_t g)
{
    const struct fake_engine *zero = member(s, g, 0);
    return !s->is_disk_full && zero->copied.n > s->run.saved.n ? &zero->copied : &s->run.saved;
}

static void take_shards(struct sim *s, int64_t g, struct weights *out)
{
    const struct fake_engine *best = NULL;
    int64_t newest = s->newest_step - 1; /* the step after it may be lost with one rank */
    for (int r = 0; r < s->group_size[g]; r++) {
        const struct fake_engine *e = member(s, g, r);
        int is_better = !best || e->step > best->step ||
                        (e->step == best->step && e->shard.lineage > best->shard.lineage);
        if (is_better && is_whole(s, g, e))
            best = e;
        newest = max_i64(newest, e->step);
    }
    *out = best ? best->w : *load(s, g);
    if (newest > out->n) { /* epochs after it are told again */
        sim_say(s, "no step newer than %d is whole", out->n);
        s->is_back = 1;
        s->n_epoch_events = (int)min_i64(s->n_epoch_events, out->n / s->spe);
    }
}

void way_take_state(struct sim *s, int64_t g, struct weights *out)
{
    int n = s->group_size[g];
    if (s->way == WAY_SHARDS)
        take_shards(s, g, out);
    else
        *out = member(s, g, member(s, g, 0)->source)->w;
    for (int r = 0; r < n; r++)
        member(s, g, r)->shard = (struct shard){.lineage = g, .size = n, .rank = r, .prepared = -1};
}
