/* shards - the memory of shards, and the work on them outside of steps: collect them on rank 0
 * before ranks leave, compare copies with originals.
 *
 * reshard.c divides the state anew when a formation begins. */
#include "state/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "state/drain.h"
#include "state/shards_impl.h"
#include "strategy/cut.h"

enum { WINDOW_BYTES = 4 << 20 }; /* for what passes between a device's memory and the host's */

int shard_owner(const struct shard_set *set, int h)
{
    ASSERT(h >= 0 && h < set->n_held && set->n_held <= set->size);
    return (set->rank - h + set->size) % set->size;
}

static size_t shards_element(const struct state *s, int slot)
{
    return dtype_size(s->slot[slot].def->dtype);
}

int shard_n_buckets(const struct state *s, int slot)
{
    const int has_frozen =
        s->slot[slot].is_divided && s->slot[slot].def->scope == SLOT_PER_PARAMETER;

    return has_frozen ? s->layout->n_param_buckets : s->layout->n_buckets;
}

size_t shard_offset(const struct state *s, int slot, int size, int owner, int bucket)
{
    ASSERT(owner >= 0 && owner < size && bucket >= 0 && bucket <= shard_n_buckets(s, slot));
    return shards_element(s, slot) * (size_t)cut_before(s->layout, bucket, size, owner);
}

float *shard_params(const struct state *s, int h, int bucket)
{
    const struct shard_set *set = &s->shards->now;
    const int owner = shard_owner(set, h);
    const int64_t before = cut_before(s->layout, bucket, set->size, owner);

    ASSERT(set->param || h == SHARD_OWN || !backend_queues(s->backend) ||
           s->shards->divides_params); /* shards_equip */
    if (s->shards->divides_params)
        return (float *)set->data[0][h] + before;
    if (h == SHARD_COPY && set->param)
        return set->param + before;
    return (float *)state_data(s, &slot_parameters) + s->layout->bucket[bucket].offset +
           cut_span(s->layout, bucket, set->size, owner).at;
}

static size_t shard_bytes(const struct state *s, int slot, int size, int owner)
{
    return shard_offset(s, slot, size, owner, shard_n_buckets(s, slot));
}

/* ---- what is always true ---- */

static void check_set(const struct state *s, const struct shard_set *set)
{
    ASSERT(set->size >= 0 && set->rank >= 0 && (set->rank < set->size || set->size == 0));
    ASSERT(set->n_held == (int)min_i64(s->shards->n_holders, set->size));
    ASSERT(set->lineage >= 0);
    ASSERT(!set->param || (set->n_held > 1 && !s->shards->divides_params));
    for (int h = 0; h < SHARDS_HELD; h++) {
        ASSERT(!set->sums[h] || (s->shards->divides_gradients && h < set->n_held));
        for (int k = 0; k < s->n_slots; k++)
            ASSERT(!set->data[k][h] || (s->slot[k].is_divided && h < set->n_held));
    }
}

/* Two complete sets are of two formations, unless `next` is the whole that rank 0 collected.  One
 * rank's whole set is the memory of the slots; else a divided slot has none of its own. */
void shards_check(const struct state *s)
{
    const struct shards *sh = s->shards;

    ASSERT(sh->n_holders >= 1 && sh->n_holders <= SHARDS_HELD);
    check_set(s, &sh->now);
    check_set(s, &sh->next);
    ASSERT(sh->next.size == 0 || sh->next.lineage > sh->now.lineage ||
           (sh->next.size == 1 && sh->next.lineage == sh->now.lineage));
    ASSERT(sh->prepared_step >= -1 && sh->prepared_step <= s->at.step);
    ASSERT(sh->prepared_step < 0 || sh->now.size > 0);
    for (int k = 0; k < s->n_slots; k++)
        if (s->slot[k].is_divided)
            ASSERT(s->slot[k].data == (sh->now.size == 1 ? sh->now.data[k][SHARD_OWN] : NULL));
}

/* ---- sets ---- */

void shard_set_free(struct state *s, struct shard_set *set)
{
    for (int h = 0; h < SHARDS_HELD; h++) {
        for (int k = 0; k < STATE_MAX_SLOTS; k++)
            state_release(s, k, set->data[k][h]);
        backend_free(s->backend, set->sums[h]);
    }
    backend_free(s->backend, set->param);
    *set = (struct shard_set){0};
}

int shard_set_new(struct state *s, int size, int rank, struct shard_set *out, struct err *err)
{
    int rc = 0;

    ASSERT(size >= 1 && rank >= 0 && rank < size);
    *out = (struct shard_set){
        .size = size, .rank = rank, .n_held = (int)min_i64(s->shards->n_holders, size)};
    for (int k = 0; k < s->n_slots; k++)
        for (int h = 0; s->slot[k].is_divided && h < out->n_held && rc == 0; h++)
            rc = state_alloc(s, k, shard_bytes(s, k, size, shard_owner(out, h)), &out->data[k][h],
                             err);
    if (rc < 0)
        shard_set_free(s, out);
    return rc;
}

/* If the set is the whole state (one rank), its memory becomes that of the state's slots, as for
 * slots that are not divided. */
void shards_use(struct state *s, const struct shard_set *set)
{
    ASSERT(set->size > 0 || set->n_held == 0);
    s->shards->now = *set;
    for (int k = 0; k < s->n_slots; k++)
        if (s->slot[k].is_divided)
            s->slot[k].data = set->size == 1 ? set->data[k][SHARD_OWN] : NULL;
}

/* Copy the parameters of the shard that this rank has a copy of to memory of their own. */
static int set_params_apart(struct state *s, struct shard_set *set, struct err *err)
{
    const struct layout *l = s->layout;
    const int owner = shard_owner(set, SHARD_COPY);
    const float *from = state_data(s, &slot_parameters);
    int rc = backend_alloc(s->backend, sizeof *from * (size_t)cut_shard(l, set->size, owner),
                           "parameters of a copy", (void **)&set->param, err);

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        const struct coll_span span = cut_span(l, b, set->size, owner);

        rc = backend_copy(s->backend, set->param + cut_before(l, b, set->size, owner),
                          from + l->bucket[b].offset + span.at, sizeof *from * (size_t)span.n, err);
    }
    return rc;
}

int shards_equip(struct state *s, struct err *err)
{
    struct shard_set *set = &s->shards->now;
    int rc = 0;

    shards_check(s);
    ASSERT(set->size > 0 && s->shards->next.size == 0); /* the formation has its shards */
    if (backend_queues(s->backend) && !s->shards->divides_params && set->n_held > 1 && !set->param)
        rc = set_params_apart(s, set, err);
    for (int h = 0; s->shards->divides_gradients && h < set->n_held && rc == 0; h++)
        if (!set->sums[h])
            rc = backend_alloc(
                s->backend,
                cut_sums_at(s->layout, s->layout->n_buckets, set->size, shard_owner(set, h)),
                "sums of gradients", &set->sums[h], err);
    shards_check(s);
    return rc;
}

int shards_new(struct state *s, const struct state_division *d, struct err *err)
{
    struct shard_set set = {0};

    ASSERT(!s->shards && d->n_holders >= 1 && d->n_holders <= SHARDS_HELD);
    s->shards = xcalloc(1, sizeof *s->shards);
    s->shards->n_holders = d->n_holders;
    s->shards->divides_gradients = d->gradients;
    s->shards->divides_params = d->params;
    s->shards->prepared_step = -1;
    if (d->whole && shard_set_new(s, 1, 0, &set, err) < 0)
        return err->code;
    shards_use(s, &set);
    shards_check(s);
    return 0;
}

void shards_free(struct state *s)
{
    if (!s->shards)
        return;
    shard_set_free(s, &s->shards->now);
    shard_set_free(s, &s->shards->next);
    free(s->shards);
}

int shards_hold_all(struct state *s, struct err *err)
{
    struct shard_set set;

    shards_check(s);
    shard_set_free(s, &s->shards->now);
    shard_set_free(s, &s->shards->next);
    s->shards->prepared_step = -1;
    shards_use(s, &s->shards->now);
    if (shard_set_new(s, 1, 0, &set, err) < 0)
        return err->code;
    shards_use(s, &set);
    shards_check(s);
    return 0;
}

static size_t set_bytes(const struct state *s, const struct shard_set *set)
{
    size_t n = 0;

    for (int k = 0; k < s->n_slots; k++)
        for (int h = 0; s->slot[k].is_divided && h < set->n_held; h++)
            n += shard_bytes(s, k, set->size, shard_owner(set, h));
    return n;
}

size_t shards_bytes(const struct state *s)
{
    return set_bytes(s, &s->shards->now) + set_bytes(s, &s->shards->next);
}

/* ---- gathering on rank 0 ---- */

static int shards_wait(struct state *s, struct coll *c, int64_t ticket, struct err *err)
{
    if (ticket < 0 || coll_wait(c, ticket, err) < 0)
        return err->code;
    return drain_device(c, s->backend, err);
}

/* Send a span of an offloaded slot k, or take it.  Messages of a device's collectives are in the
 * device's own memory, so the span passes through a window there. */
static int pass_span(struct state *s, struct coll *c, int k, int sends, struct coll_message span,
                     struct err *err)
{
    const enum dtype dtype = s->slot[k].def->dtype;
    struct coll_message piece = {.rank = span.rank};
    int rc = backend_alloc(s->backend, WINDOW_BYTES, "parts of the state", &piece.x, err);

    for (int64_t i = 0; i < span.n && rc == 0; i += piece.n) {
        char *at = (char *)span.x + shards_element(s, k) * (size_t)i;
        size_t n_bytes;

        piece.n = min_i64(span.n - i, (int64_t)(WINDOW_BYTES / shards_element(s, k)));
        n_bytes = shards_element(s, k) * (size_t)piece.n;
        if (sends)
            rc = backend_copy(s->backend, piece.x, at, n_bytes, err);
        if (rc == 0)
            rc = shards_wait(s, c,
                             sends ? coll_send(c, COLL_BULK, piece, dtype, COLL_TAG_NONE, err)
                                   : coll_recv(c, COLL_BULK, piece, dtype, COLL_TAG_NONE, err),
                             err);
        if (rc == 0 && !sends)
            rc = backend_copy(s->backend, at, piece.x, n_bytes, err);
    }
    if (rc < 0)
        coll_abort(c); /* a device must not write to memory that is about to be freed */
    backend_free(s->backend, piece.x);
    return rc;
}

/* Start to send a span of slot k, or to take it.  Returns a ticket to wait for, or 0 if there is
 * nothing to wait for. */
static int64_t move_span(struct state *s, struct coll *c, int k, int sends,
                         struct coll_message span, struct err *err)
{
    const enum dtype dtype = s->slot[k].def->dtype;

    ASSERT(span.n >= 0 && span.rank >= 0 && span.rank < s->shards->now.size);
    ASSERT(sends ? span.rank == 0 : span.rank > 0 && s->shards->now.rank == 0);
    if (span.n == 0)
        return 0;
    if (s->slot[k].is_offloaded && coll_is_device(c))
        return pass_span(s, c, k, sends, span, err);
    return sends ? coll_send(c, COLL_BULK, span, dtype, COLL_TAG_NONE, err)
                 : coll_recv(c, COLL_BULK, span, dtype, COLL_TAG_NONE, err);
}

static int send_slot(struct state *s, struct coll *c, int k, struct err *err)
{
    const struct shard_set *set = &s->shards->now;
    int64_t last = 0, ticket = 0;

    for (int b = 0; b < shard_n_buckets(s, k) && ticket >= 0; b++) {
        char *at = (char *)set->data[k][SHARD_OWN] + shard_offset(s, k, set->size, set->rank, b);
        const int64_t n = cut_span(s->layout, b, set->size, set->rank).n;

        ticket = move_span(s, c, k, 1, (struct coll_message){at, n, 0}, err);
        last = ticket == 0 ? last : ticket;
    }
    return last > 0 ? shards_wait(s, c, last, err) : (int)last;
}

/* Take rank `from`'s shard to its places in the whole slot. */
static int shards_take_slot(struct state *s, struct coll *c, int k, int from, char *whole,
                            struct err *err)
{
    const int size = s->shards->now.size;
    int64_t last = 0, ticket = 0;

    for (int b = 0; b < shard_n_buckets(s, k) && ticket >= 0; b++) {
        const struct coll_span span = cut_span(s->layout, b, size, from);
        char *at = whole + shards_element(s, k) * (size_t)(s->layout->bucket[b].offset + span.at);

        ticket = move_span(s, c, k, 0, (struct coll_message){at, span.n, from}, err);
        last = ticket == 0 ? last : ticket;
    }
    return last > 0 ? shards_wait(s, c, last, err) : (int)last;
}

static int shards_copy_own(struct state *s, int k, char *whole, struct err *err)
{
    const struct shard_set *set = &s->shards->now;
    int rc = 0;

    for (int b = 0; b < shard_n_buckets(s, k) && rc == 0; b++) {
        const struct coll_span span = cut_span(s->layout, b, set->size, set->rank);

        rc = backend_copy(
            s->backend,
            whole + shards_element(s, k) * (size_t)(s->layout->bucket[b].offset + span.at),
            (char *)set->data[k][SHARD_OWN] + shard_offset(s, k, set->size, set->rank, b),
            shards_element(s, k) * (size_t)span.n, err);
    }
    return rc;
}

static int gather_slot(struct state *s, struct coll *c, int k, char *whole, struct err *err)
{
    int rc;

    if (s->shards->now.rank != 0)
        return send_slot(s, c, k, err);
    rc = shards_copy_own(s, k, whole, err);
    for (int from = 1; from < s->shards->now.size && rc == 0; from++)
        rc = shards_take_slot(s, c, k, from, whole, err);
    return rc;
}

/* Rank 0 gets the whole of each divided slot, into `whole`. */
static int shards_gather(struct state *s, struct coll *c, const struct shard_set *whole,
                         struct err *err)
{
    int rc = 0;

    ASSERT(coll_size(c) == s->shards->now.size);
    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (s->slot[k].is_divided)
            rc = gather_slot(s, c, k, whole->data[k][SHARD_OWN], err);
    if (rc < 0)
        coll_abort(c); /* a device must not write to memory that is about to be freed */
    return rc < 0 ? err_wrap(err, "gathering the shards on rank 0") : 0;
}

int shards_collect(struct state *s, struct coll *c, struct err *err)
{
    struct shard_set whole = {0};
    int rc = 0;

    shards_check(s);
    ASSERT(s->shards->now.size > 0);
    if (s->shards->now.size == 1)
        return 0;
    if (s->shards->now.rank == 0)
        rc = shard_set_new(s, 1, 0, &whole, err);
    if (rc == 0)
        rc = shards_gather(s, c, &whole, err);
    whole.lineage = s->shards->now.lineage;
    shard_set_free(s, &s->shards->next);
    if (rc == 0)
        s->shards->next = whole;
    else
        shard_set_free(s, &whole);
    shards_check(s);
    ASSERT(rc < 0 || s->shards->next.size == (s->shards->now.rank == 0));
    return rc;
}

/* ---- proof ---- */

/* Add n_bytes of the backend's memory to the hash.  `window` [WINDOW_BYTES], for a device's memory,
 * is host memory; else NULL. */
static int hash_memory(const struct state *s, struct hasher *h, const char *p, size_t n_bytes,
                       char *window, struct err *err)
{
    if (!window)
        hasher_add(h, p, n_bytes);
    for (size_t at = 0, n; window && at < n_bytes; at += n) {
        n = n_bytes - at < WINDOW_BYTES ? n_bytes - at : WINDOW_BYTES;
        if (backend_copy_out(s->backend, window, p + at, n, err) < 0)
            return err->code;
        hasher_add(h, window, n);
    }
    return 0;
}

/* Bytes [*from, *to) of the slot's h-th shard are those of the bucket, or with -1 of all. */
static void find_bytes(const struct state *s, int slot, int h, int bucket, size_t *from, size_t *to)
{
    const struct shard_set *set = &s->shards->now;
    const int owner = shard_owner(set, h), n = shard_n_buckets(s, slot);

    *from = bucket < 0 ? 0 : shard_offset(s, slot, set->size, owner, bucket < n ? bucket : n);
    *to = bucket < 0 || bucket >= n ? shard_bytes(s, slot, set->size, owner)
                                    : shard_offset(s, slot, set->size, owner, bucket + 1);
}

static int hash_held(const struct state *s, int h, int bucket, struct hash128 *out, struct err *err)
{
    const struct shard_set *set = &s->shards->now;
    struct hasher *all = hasher_new();
    char *window = backend_is_apart(s->backend) ? xmalloc(WINDOW_BYTES) : NULL;
    size_t from, to;
    int rc = 0;

    for (int k = 0; k < s->n_slots && rc == 0; k++)
        if (s->slot[k].is_divided) {
            find_bytes(s, k, h, bucket, &from, &to);
            if (from < to)
                rc = hash_memory(s, all, (const char *)set->data[k][h] + from, to - from, window,
                                 err);
        }
    *out = hasher_end(all);
    hasher_free(all);
    free(window);
    return rc;
}

/* The collective runs also if each shard has one holder: a rank whose last exchange of parameters
 * failed meets the failure here. */
int shards_compare(struct state *s, struct coll *c, int bucket, int *differs, struct err *err)
{
    const struct shard_set *set = &s->shards->now;
    const int n = set->size;
    struct hash128 mine[SHARDS_HELD] = {{0, 0}}, *all;
    int rc = 0;

    shards_check(s);
    memset(differs, 0, sizeof *differs * (size_t)n);
    if (n == 1)
        return 0;
    ASSERT(coll_size(c) == n && coll_rank(c) == set->rank);
    for (int h = 0; h < set->n_held && rc == 0; h++)
        rc = hash_held(s, h, bucket, &mine[h], err);
    if (rc < 0)
        return rc;
    all = xcalloc((size_t)n, sizeof mine);
    rc = coll_allgather(c, mine, sizeof mine, all, err);
    for (int k = 0; k < n && rc == 0 && set->n_held > 1; k++)
        differs[k] = !hash_equal(all[SHARDS_HELD * ((k + n - 1) % n) + SHARD_OWN],
                                 all[SHARDS_HELD * k + SHARD_COPY]);
    free(all);
    return rc;
}

int shards_prove(struct state *s, struct coll *c, struct err *err)
{
    const struct shard_set *set = &s->shards->now;
    int *differs = xcalloc((size_t)set->size + 1, sizeof *differs);
    int rc = shards_compare(s, c, -1, differs, err);

    if (rc == 0 && differs[set->rank])
        rc = err_set(err, ERR_NUMERIC,
                     "rank %d's copy of rank %d's part of the state differs from the original, and "
                     "which of the two is wrong is not known",
                     set->rank, shard_owner(set, SHARD_COPY));
    free(differs);
    return rc;
}
