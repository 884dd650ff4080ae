/* vocab - hash tables with open addressing, at most half full, so that a text or pair that is not
 * there is known as such after one or two steps. */
#include "tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

static struct vocab_text *vocab_slot(const struct vocab *v, const char *text, size_t len)
{
    for (size_t i = hash_of(text, len).lo;; i++) {
        struct vocab_text *const at = &v->slot[i & (v->n_slots - 1)];

        if (!at->text || (at->len == len && !memcmp(at->text, text, len)))
            return at;
    }
}

static int vocab_grow(struct vocab *v, struct err *err)
{
    struct vocab old = *v;

    v->n_slots = old.n_slots ? 2 * old.n_slots : 64;
    if (try_alloc((void **)&v->slot, v->n_slots * sizeof *v->slot, "a vocabulary", err) < 0) {
        *v = old;
        return err->code;
    }
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slot[i].text)
            *vocab_slot(v, old.slot[i].text, old.slot[i].len) = old.slot[i];
    free(old.slot);
    return 0;
}

int vocab_add(struct vocab *v, const char *text, size_t len, int32_t number, struct err *err)
{
    struct vocab_text *at;

    if (2 * (v->n + 1) > v->n_slots && vocab_grow(v, err) < 0)
        return err->code;
    at = vocab_slot(v, text, len);
    v->n += !at->text;
    *at = (struct vocab_text){text, (uint32_t)len, number};
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    const struct vocab_text *const at = v->n ? vocab_slot(v, text, len) : NULL;

    return at && at->text ? at->number : -1;
}

void vocab_fini(struct vocab *v)
{
    free(v->slot);
    *v = (struct vocab){0};
}

int pairs_init(struct pairs *p, size_t most, struct err *err)
{
    *p = (struct pairs){.n_slots = 64};
    while (p->n_slots < 2 * most)
        p->n_slots *= 2;
    if (try_alloc((void **)&p->slot, p->n_slots * sizeof *p->slot, "a tokenizer's merges", err) < 0)
        return err->code;
    for (size_t i = 0; i < p->n_slots; i++)
        p->slot[i].key = UINT64_MAX;
    return 0;
}

void pairs_put(struct pairs *p, int32_t left, int32_t right, int32_t rank, int32_t number)
{
    const uint64_t key = pairs_key(left, right);
    size_t i = pairs_hash(key) & (p->n_slots - 1);

    while (p->slot[i].key != key && p->slot[i].key != UINT64_MAX)
        i = (i + 1) & (p->n_slots - 1);
    p->slot[i] = (struct pair){key, rank, number};
}

void pairs_fini(struct pairs *p)
{
    free(p->slot);
    *p = (struct pairs){0};
}
