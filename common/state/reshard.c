/* reshard - a formation begins: the ranks agree on the newest step that is left whole, and divide
 * its state anew.  state/shards.h explains why that is possible after any loss.
 *
 * Happy path: every rank holds the same step, and all claims are of one lineage.  The owner of each
 * shard sends it, span by span, to all ranks, and each rank keeps what belongs to its new shards.
 * That takes as many bytes as a broadcast of the slots.  The slots and the parameters come in
 * windows of bounded size, and a window is kept only once it has come as a whole.
 *
 * Failure modes:
 *   - An owner was lost: its buddy sends the shard.
 *   - A rank and its buddy were lost: SHARDS_LOST.  Rank 0 then loads the newest checkpoint, unless
 *     one rank holds a newer step as a whole, such as a rank 0 that has just resumed.
 *   - Only some ranks made the last step: the others make its update now (roll).
 *   - The formation breaks off: each rank still has the sets `now` and `next`. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/util.h"
#include "config/cluster.h"
#include "state/shards_impl.h"
#include "strategy/cut.h"

enum { WINDOW_BYTES = 1 << 20 };

/* ---- claims ---- */

/* A claim describes one set of shards, as its rank sends it to all others. */
struct claim {
    int64_t step, lineage;
    int64_t size, rank, n_held; /* of the set; size 0: there is none */
    int64_t is_prepared;        /* 1: of the step after `step` only the check is missing */
};

enum { CLAIMS = 2 }; /* of each rank: now, next */

static struct claim claim_of(const struct state *s, const struct shard_set *set)
{
    return (struct claim){
        .step = s->at.step,
        .lineage = set->lineage,
        .size = set->size,
        .rank = set->rank,
        .n_held = set->n_held,
        .is_prepared = set == &s->shards->now && s->shards->prepared_step == s->at.step,
    };
}

/* 1: the claim is about the state `want`, or about the step before it, and the update that leads to
 * `want` is prepared. */
static int is_of(const struct claim *c, const struct claim *want)
{
    return c->size == want->size && c->lineage == want->lineage && c->size > 0 &&
           (c->step == want->step || (c->step == want->step - 1 && c->is_prepared));
}

static void note_holders(const struct claim *claim, int n_claims, const struct claim *want, int h,
                         struct shard_source *from)
{
    for (int i = n_claims - 1; i >= 0; i--)
        if (is_of(&claim[i], want) && h < claim[i].n_held) {
            const int owner = (int)((claim[i].rank - h + want->size) % want->size);

            ASSERT(owner >= 0 && owner < from->size);
            from->holder[owner] = i / CLAIMS;
            from->is_next[owner] = i % CLAIMS;
        }
}

/* Find the ranks that hold the shards of `want`: the owner where it is left, or else its buddy.
 * Returns the first shard that no rank holds, or -1. */
static int find_holders(const struct claim *claim, int n_claims, const struct claim *want,
                        struct shard_source *from)
{
    ASSERT(want->size > 0 && want->size <= CLUSTER_MAX_RANKS);
    from->size = (int)want->size;
    from->holder = xrealloc(from->holder, sizeof *from->holder * (size_t)from->size);
    from->is_next = xrealloc(from->is_next, sizeof *from->is_next * (size_t)from->size);
    for (int o = 0; o < from->size; o++)
        from->holder[o] = -1;
    for (int h = SHARDS_HELD - 1; h >= 0; h--)
        note_holders(claim, n_claims, want, h, from);
    for (int o = 0; o < from->size; o++)
        if (from->holder[o] < 0)
            return o;
    return -1;
}

/* > 0: a is better than b, because its step is newer, or else its lineage, or else because fewer
 * ranks take the state: one rank that holds all is best. */
static int reshard_compare(const struct claim *a, const struct claim *b)
{
    if (a->step != b->step)
        return a->step > b->step ? 1 : -1;
    if (a->lineage != b->lineage)
        return a->lineage > b->lineage ? 1 : -1;
    return (b->size > a->size) - (a->size > b->size);
}

static int is_sound(const struct claim *c)
{
    if (c->lineage < 0 || c->lineage == INT64_MAX)
        return 0;
    return c->size == 0 || (c->size > 0 && c->size <= CLUSTER_MAX_RANKS && c->rank >= 0 &&
                            c->rank < c->size && c->n_held > 0 && c->n_held <= SHARDS_HELD);
}

/* Gather the claims of all ranks, [size * CLAIMS], for free(). */
static struct claim *take_claims(struct state *s, struct coll *c, struct err *err)
{
    const struct claim mine[CLAIMS] = {claim_of(s, &s->shards->now), claim_of(s, &s->shards->next)};
    struct claim *all = xcalloc((size_t)coll_size(c), sizeof mine);

    int rc = coll_allgather(c, mine, sizeof mine, all, err);

    for (int i = 0; i < CLAIMS * coll_size(c) && rc == 0; i++)
        if (!is_sound(&all[i]))
            rc = err_set(err, ERR_PROTO, "rank %d claims a shard that cannot be", i / CLAIMS);
    if (rc == 0)
        return all;
    free(all);
    return NULL;
}

/* *best: the best claim whose shards are all left; *newest: the best claim of all. */
static void reshard_choose(const struct claim *claim, int n, struct shard_source *from,
                           struct claim *best, struct claim *newest)
{
    *best = *newest = (struct claim){.step = -1};
    for (int i = 0; i < n; i++) {
        if (claim[i].size == 0)
            continue;
        if (reshard_compare(&claim[i], newest) > 0)
            *newest = claim[i];
        if (reshard_compare(&claim[i], best) > 0 && find_holders(claim, n, &claim[i], from) < 0)
            *best = claim[i];
    }
}

/* Every rank fails alike, since all have the same claims. */
static int reshard_explain_loss(const struct claim *claim, int n, const struct claim *newest,
                                struct shard_source *from, struct err *err)
{
    const int o = newest->size > 0 ? find_holders(claim, n, newest, from) : 0;

    if (newest->size == 0)
        err_set(err, ERR_PEER, "no rank holds a state");
    else if (newest->n_held > 1)
        err_set(err, ERR_PEER,
                "the optimizer's state of step %lld is not whole any more: the part of rank %d was "
                "held by the ranks %d and %d of %d, and both were lost",
                (long long)newest->step, o, o, (int)((o + 1) % newest->size), (int)newest->size);
    else
        err_set(err, ERR_PEER,
                "the optimizer's state of step %lld is not whole any more: rank %d of %d was lost, "
                "and no other rank held its part (strategy.buddy: true keeps a copy)",
                (long long)newest->step, o, (int)newest->size);
    return SHARDS_LOST;
}

/* ---- agreeing ---- */

/* If neither set of this rank is of the state `best`, drop both: the rank's other parameters are
 * about to become those of `best`, and the sets would not fit these. */
static void drop_others(struct state *s, const struct claim mine[CLAIMS], const struct claim *best)
{
    const struct shard_set none = {0};

    if (is_of(&mine[0], best) || is_of(&mine[1], best))
        return;
    shard_set_free(s, &s->shards->now);
    shard_set_free(s, &s->shards->next);
    shards_use(s, &none);
    s->shards->prepared_step = -1;
}

/* Make the update that the other ranks have made already, by which they are at step `to`. */
static int reshard_roll(struct state *s, struct coll *c, int root, int64_t to, int is_behind,
                        struct err *err)
{
    struct ckpt_state at = s->at;
    double check[2] = {s->shards->check[0], s->shards->check[1]};
    int rc = coll_broadcast(c, &at, sizeof at, root, err);

    if (rc == 0)
        rc = coll_broadcast(c, check, sizeof check, root, err);
    if (rc == 0 && at.step != to) /* all ranks see it */
        rc = err_set(err, ERR_PROTO, "rank %d sent the position of step %lld, want step %lld", root,
                     (long long)at.step, (long long)to);
    if (rc < 0 || !is_behind)
        return rc;
    ASSERT(s->shards->prepared_step == s->at.step && s->shards->roll);
    rc = s->shards->roll(s->shards->roll_arg, check, err);
    if (rc == 0)
        s->at = at;
    return rc;
}

static int reshard_settle(struct state *s, struct coll *c, const struct claim *claim,
                          const struct claim *best, struct shard_source *from, struct err *err)
{
    const struct claim *mine = &claim[CLAIMS * coll_rank(c)];
    int any_behind = 0;

    from->step = best->step;
    from->root = -1;
    for (int i = CLAIMS * coll_size(c) - 1; i >= 0; i--) {
        from->lineage = max_i64(from->lineage, claim[i].lineage + 1);
        if (!is_of(&claim[i], best))
            continue;
        if (claim[i].step == best->step)
            from->root = i / CLAIMS;
        else
            any_behind = 1;
    }
    ASSERT(from->root >= 0 && from->lineage > s->shards->now.lineage);
    drop_others(s, mine, best);
    return any_behind ? reshard_roll(s, c, from->root, best->step,
                                     is_of(&mine[0], best) && mine[0].step < best->step, err)
                      : 0;
}

int shards_agree(struct state *s, struct coll *c, struct shard_source *out, struct err *err)
{
    const int n = CLAIMS * coll_size(c);
    struct claim *claim = take_claims(s, c, err), best, newest;
    int rc, lacks;

    shards_check(s);
    *out = (struct shard_source){0};
    if (!claim)
        return err->code;
    reshard_choose(claim, n, out, &best, &newest);
    s->shards->older_step = best.step;
    if (best.step < 0 || (best.step < newest.step && !s->shards->takes_older)) {
        rc = reshard_explain_loss(claim, n, &newest, out, err);
    } else {
        lacks = find_holders(claim, n, &best, out);
        ASSERT(lacks < 0);
        rc = reshard_settle(s, c, claim, &best, out, err);
        ASSERT(rc < 0 || s->shards->now.size == 0 || s->at.step == out->step);
    }
    free(claim);
    shards_check(s);
    return rc;
}

void shard_source_fini(struct shard_source *from)
{
    free(from->holder);
    free(from->is_next);
}

/* ---- shards ---- */

/* A piece of a slot: elements [at, at + n) of a bucket.  The parameters are sent in the same way
 * as divided slots, also if they are not divided: then each rank keeps all of them. */
struct piece {
    int slot, bucket;
    int64_t at, n;
};

/* Where pieces come from, and where they go. */
struct transfer {
    struct state *s;
    struct coll *c;
    const struct shard_source *from;
    const struct shard_set *set; /* the rank's new shards */
    char *window;                /* [WINDOW_BYTES] of the backend's memory, for what is received */
};

static size_t reshard_element(const struct state *s, const struct piece *p)
{
    return dtype_size(s->slot[p->slot].def->dtype);
}

/* The address of the piece in a slot that is not divided. */
static char *at_whole(const struct state *s, const struct piece *p)
{
    return (char *)s->slot[p->slot].data +
           reshard_element(s, p) * (size_t)(s->layout->bucket[p->bucket].offset + p->at);
}

/* The address of the piece in the shard of `owner`, which this rank holds. */
static char *at_source(const struct transfer *x, int owner, const struct piece *p)
{
    const struct state *s = x->s;
    const struct shard_set *set = x->from->is_next[owner] ? &s->shards->next : &s->shards->now;
    const int h = set->rank == owner ? SHARD_OWN : SHARD_COPY;
    const struct coll_span span = cut_span(s->layout, p->bucket, set->size, owner);
    const size_t at = shard_offset(s, p->slot, set->size, owner, p->bucket) +
                      reshard_element(s, p) * (size_t)(p->at - span.at);

    ASSERT(owner == shard_owner(set, h)); /* this rank has told all that it holds the shard */
    ASSERT(p->at >= span.at && p->at + p->n <= span.at + span.n);
    if (s->slot[p->slot].is_divided)
        return (char *)set->data[p->slot][h] + at;
    return h == SHARD_COPY && set->param ? (char *)set->param + at : at_whole(s, p);
}

/* Copy the part of the piece that belongs to this rank's new shards. */
static int keep_in_shards(const struct transfer *x, const struct piece *p, const char *bytes,
                          struct err *err)
{
    const struct shard_set *set = x->set;
    const size_t e = reshard_element(x->s, p);
    int rc = 0;

    for (int h = 0; h < set->n_held && rc == 0; h++) {
        const int owner = shard_owner(set, h);
        const struct coll_span span = cut_span(x->s->layout, p->bucket, set->size, owner);
        const int64_t first = max_i64(p->at, span.at);
        const int64_t end = min_i64(p->at + p->n, span.at + span.n);

        if (first < end)
            rc = backend_copy(x->s->backend,
                              (char *)set->data[p->slot][h] +
                                  shard_offset(x->s, p->slot, set->size, owner, p->bucket) +
                                  e * (size_t)(first - span.at),
                              bytes + e * (size_t)(first - p->at), e * (size_t)(end - first), err);
    }
    return rc;
}

static int reshard_keep(const struct transfer *x, const struct piece *p, const char *bytes,
                        struct err *err)
{
    char *whole;

    if (x->s->slot[p->slot].is_divided)
        return keep_in_shards(x, p, bytes, err);
    whole = at_whole(x->s, p);
    return whole == bytes ? 0
                          : backend_copy(x->s->backend, whole, bytes,
                                         reshard_element(x->s, p) * (size_t)p->n, err);
}

/* *out: the address of the piece on the rank that sends it.  A piece that is offloaded is copied to
 * the window, because all ranks must do a broadcast in the same kind of memory. */
static int reshard_offer(const struct transfer *x, int owner, const struct piece *p, char **out,
                         struct err *err)
{
    *out = at_source(x, owner, p);
    if (!x->s->slot[p->slot].is_offloaded)
        return 0;
    if (backend_copy(x->s->backend, x->window, *out, reshard_element(x->s, p) * (size_t)p->n, err) <
        0)
        return err->code;
    *out = x->window;
    return 0;
}

/* Send one span of a slot, window by window. */
static int send_span(const struct transfer *x, int owner, struct piece p, struct err *err)
{
    const int root = x->from->holder[owner];
    const int64_t end = p.at + p.n, most = (int64_t)(WINDOW_BYTES / reshard_element(x->s, &p));
    int rc = 0;

    for (; p.at < end && rc == 0; p.at += p.n) {
        char *bytes = x->window;

        p.n = min_i64(most, end - p.at);
        ASSERT(p.n > 0 && root >= 0 && root < coll_size(x->c));
        if (coll_rank(x->c) == root)
            rc = reshard_offer(x, owner, &p, &bytes, err);
        if (rc == 0)
            rc = coll_broadcast(x->c, bytes, reshard_element(x->s, &p) * (size_t)p.n, root, err);
        if (rc == 0)
            rc = reshard_keep(x, &p, bytes, err);
    }
    return rc;
}

static int send_slots(const struct transfer *x, struct err *err)
{
    const struct state *s = x->s;
    int rc = 0;

    for (int k = 0; k < s->n_slots; k++)
        for (int o = 0;
             (s->slot[k].is_divided || s->slot[k].def == &slot_parameters) && o < x->from->size;
             o++)
            for (int b = 0; b < shard_n_buckets(s, k) && rc == 0; b++) {
                const struct coll_span span = cut_span(s->layout, b, x->from->size, o);

                rc = send_span(x, o, (struct piece){k, b, span.at, span.n}, err);
            }
    return rc;
}

/* This rank has all of its new shards.  If all other ranks say the same, drop the old shards. */
static int reshard_commit(struct state *s, struct coll *c, const struct shard_set *set,
                          const struct ckpt_state *at, struct err *err)
{
    const uint8_t mine = 1;
    uint8_t *all = xcalloc((size_t)coll_size(c), 1);
    const int rc = coll_allgather(c, &mine, 1, all, err);

    ASSERT(set->lineage > s->shards->now.lineage && set->lineage > s->shards->next.lineage);
    ASSERT(set->size == coll_size(c) && set->rank == coll_rank(c));
    free(all);
    s->at = *at;
    shard_set_free(s, &s->shards->next);
    if (rc < 0) {
        s->shards->next = *set;
        shards_check(s);
        return rc;
    }
    shard_set_free(s, &s->shards->now);
    shards_use(s, set);
    s->shards->prepared_step = -1;
    ASSERT(s->shards->next.size == 0);
    shards_check(s);
    return 0;
}

int shards_exchange(struct state *s, struct coll *c, const struct shard_source *from,
                    const struct ckpt_state *at, struct err *err)
{
    struct shard_set set;
    struct transfer x = {.s = s, .c = c, .from = from, .set = &set};
    int rc;

    if (at->step != from->step)
        return err_set(err, ERR_PROTO, "rank %d sent the position of step %lld, want step %lld",
                       from->root, (long long)at->step, (long long)from->step);
    rc = shard_set_new(s, coll_size(c), coll_rank(c), &set, err);
    if (rc < 0)
        return rc;
    ASSERT(s->shards->now.size == 0 || s->at.step == at->step);
    set.lineage = from->lineage;
    rc = backend_alloc(s->backend, WINDOW_BYTES, "parts of the state", (void **)&x.window, err);
    if (rc == 0)
        rc = send_slots(&x, err);
    if (rc < 0)
        coll_abort(c); /* a device must not write to memory that is about to be freed */
    backend_free(s->backend, x.window);
    if (rc < 0)
        shard_set_free(s, &set);
    return rc == 0 ? reshard_commit(s, c, &set, at, err) : rc;
}
