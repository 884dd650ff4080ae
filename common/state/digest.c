/* digest - adds up the words of the slots, each with a weight of its own.
 *
 * The weight of the word at place p of a tensor is the product of two odd numbers: one of
 * p % KEYS, from a table, and one of the tensor's name and p / KEYS.  So the inner loop is one
 * multiplication and one addition a word.  An odd weight maps different words to different
 * products, which is why a change of one word is always found. */
#include "state/digest.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/util.h"
#include "state/loop.h"
#include "state/shards.h"
#include "strategy/cut.h"

enum { KEYS = 1024, DIGEST_WINDOW = 4 << 20 };

struct digest {
    const struct state *state;
    uint64_t key[KEYS];
    char *window; /* [DIGEST_WINDOW] for a device's memory; NULL: the host can read the state */
    uint64_t sum;
};

/* splitmix64's function of the n-th state; odd. */
static uint64_t digest_weight(uint64_t n)
{
    uint64_t z = n * 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) | 1;
}

static uint64_t word_sum4(const uint64_t *key, const char *p, size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t w;

        memcpy(&w, p + 4 * i, sizeof w);
        sum += key[i] * w;
    }
    return sum;
}

/* Words of `size` bytes, 1, 2 or 4. */
static uint64_t word_sum(const uint64_t *key, const char *p, size_t n, size_t size)
{
    uint64_t sum = 0;

    if (size == 4)
        return word_sum4(key, p, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t w = 0;

        memcpy(&w, p + size * i, size);
        sum += key[i] * w;
    }
    return sum;
}

/* Add n words at p, which begin at the word `at` of the tensor. */
static void digest_add_words(struct digest *d, uint64_t tensor, const char *p, size_t at, size_t n,
                             size_t size)
{
    for (size_t next; n > 0; at += next, p += next * size, n -= next) {
        const size_t from = at % KEYS;

        next = n < KEYS - from ? n : KEYS - from;
        d->sum += digest_weight(tensor + at / KEYS) * word_sum(d->key + from, p, next, size);
    }
}

/* Add n_bytes of the backend's memory at p, which begin at the byte `at` of the tensor. */
static int digest_add(struct digest *d, uint64_t tensor, const char *p, size_t at, size_t n_bytes,
                      size_t size, struct err *err)
{
    if (!d->window)
        digest_add_words(d, tensor, p, at / size, n_bytes / size, size);
    for (size_t done = 0, n; d->window && done < n_bytes; done += n) {
        n = n_bytes - done < DIGEST_WINDOW ? n_bytes - done : DIGEST_WINDOW;
        if (backend_copy_out(d->state->backend, d->window, p + done, n, err) < 0)
            return err->code;
        digest_add_words(d, tensor, d->window, (at + done) / size, n / size, size);
    }
    return 0;
}

/* Add the bytes [from, to) of slot k, which lie at p. */
static int digest_range(struct digest *d, int k, size_t from, size_t to, const char *p,
                        struct err *err)
{
    const struct slot_def *def = d->state->slot[k].def;
    const size_t size = dtype_size(def->dtype) < 4 ? dtype_size(def->dtype) : 4;
    int rc = 0;

    for (int i = 0; i < slot_n_tensors(d->state->layout, def) && rc == 0; i++) {
        const struct slot_tensor t = slot_tensor(d->state->layout, def, i);
        const size_t begin = t.at > from ? t.at : from;
        const size_t end = t.at + t.n_bytes < to ? t.at + t.n_bytes : to;

        if (begin < end) {
            char *name = xasprintf("%s%s", t.base, def->suffix);
            const uint64_t seed = hash_of(name, strlen(name)).lo;

            free(name);
            rc = digest_add(d, seed, p + (begin - from), begin - t.at, end - begin, size, err);
        }
    }
    return rc;
}

/* The shard that this rank holds of slot k: a span of each bucket. */
static int digest_shard(struct digest *d, int k, struct err *err)
{
    const struct state *s = d->state;
    const struct shard_set *set = &s->shards->now;
    const int owner = shard_owner(set, SHARD_OWN);
    const size_t size = dtype_size(s->slot[k].def->dtype);
    int rc = 0;

    for (int b = 0; b < shard_n_buckets(s, k) && rc == 0; b++) {
        const struct coll_span span = cut_span(s->layout, b, set->size, owner);
        const size_t from = size * (size_t)(s->layout->bucket[b].offset + span.at);
        const char *p = set->data[k][SHARD_OWN];

        rc = digest_range(d, k, from, from + size * (size_t)span.n,
                          p + shard_offset(s, k, set->size, owner, b), err);
    }
    return rc;
}

/* Every rank holds all parameters, but those of other ranks' shards may still be on their way
 * (strategy/zero.c).  So this rank adds its own shard, and rank 0 the frozen ones. */
static int digest_own_params(struct digest *d, int k, int rank, struct err *err)
{
    const struct state *s = d->state;
    const struct layout *l = s->layout;
    const size_t size = dtype_size(s->slot[k].def->dtype);
    const size_t trained = size * (size_t)l->n_trained;
    const char *p = s->slot[k].data;
    int rc = 0;

    for (int b = 0; b < l->n_buckets && rc == 0; b++) {
        const struct coll_span span = cut_span(l, b, s->shards->now.size, rank);
        const size_t from = size * (size_t)(l->bucket[b].offset + span.at);

        rc = digest_range(d, k, from, from + size * (size_t)span.n, p + from, err);
    }
    if (rc == 0 && rank == 0)
        rc = digest_range(d, k, trained, s->slot[k].n_bytes, p + trained, err);
    return rc;
}

/* Add up what this rank holds: its shards, and on rank 0 the slots that all ranks hold. */
static int digest_held(struct digest *d, int rank, struct err *err)
{
    const struct state *s = d->state;
    const int has_shards = s->shards && s->shards->now.size > 1;
    int rc = 0;

    for (int k = 0; k < s->n_slots && rc == 0; k++) {
        const struct slot *slot = &s->slot[k];

        if (!slot_is_hashed(slot->def) || slot->def == &slot_loop)
            continue;
        if (slot->is_divided && has_shards)
            rc = digest_shard(d, k, err);
        else if (slot->def == &slot_parameters && has_shards)
            rc = digest_own_params(d, k, rank, err);
        else if (rank == 0)
            rc = digest_range(d, k, 0, slot->n_bytes, slot->data, err);
    }
    return rc;
}

/* The sum of all ranks' sums. */
static int digest_gather(uint64_t mine, struct coll *c, uint64_t *out, struct err *err)
{
    uint64_t *all = xcalloc((size_t)coll_size(c), sizeof *all);
    const int rc = coll_allgather(c, &mine, sizeof mine, all, err);

    *out = 0;
    for (int r = 0; r < coll_size(c); r++)
        *out += all[r];
    free(all);
    return rc;
}

int state_digest(const struct state *s, struct coll *c, uint64_t *out, struct err *err)
{
    const int is_divided = s->shards && s->shards->now.size > 1;
    struct digest d = {.state = s};
    struct hasher *all;
    int rc = 0;

    for (uint64_t i = 0; i < KEYS; i++)
        d.key[i] = digest_weight(i + 1);
    if (backend_is_apart(s->backend))
        rc = try_alloc((void **)&d.window, DIGEST_WINDOW, "a part of the state", err);
    if (rc == 0)
        rc = digest_held(&d, is_divided ? s->shards->now.rank : 0, err);
    free(d.window);
    if (rc == 0 && is_divided)
        rc = digest_gather(d.sum, c, &d.sum, err);
    if (rc < 0)
        return rc;
    all = hasher_new();
    hasher_add_i64(all, s->at.step);
    hasher_add_i64(all, s->at.n_updates);
    hasher_add(all, &d.sum, sizeof d.sum);
    *out = hasher_end(all).lo;
    hasher_free(all);
    return 0;
}
