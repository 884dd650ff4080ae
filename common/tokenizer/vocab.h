/* vocab - two tables of a tokenizer: from texts to numbers, and from pairs of tokens to the token
 * that they become.
 *
 * Life:    zeroed -> vocab_add ... -> vocab_fini; pairs_init -> pairs_put ... -> pairs_fini.
 * Threads: any may look up.
 * Errors:  ERR_NOMEM. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct vocab_text {
    const char *text; /* borrowed */
    uint32_t len;
    int32_t number;
};

struct vocab {
    struct vocab_text *slot; /* [n_slots], a power of two; text NULL: free */
    size_t n_slots, n;
};

/* Add a text, or give it another number if it is there. */
int vocab_add(struct vocab *v, const char *text, size_t len, int32_t number, struct err *err);
int32_t vocab_find(const struct vocab *v, const char *text, size_t len); /* -1: none */
void vocab_fini(struct vocab *v);

enum { PAIR_NONE = -1 }; /* a rank: these two are not merged */

struct pair {
    uint64_t key; /* left, right; UINT64_MAX: free */
    int32_t rank; /* lower ranks come first */
    int32_t number;
};

struct pairs {
    struct pair *slot; /* [n_slots], a power of two */
    size_t n_slots;
};

int pairs_init(struct pairs *p, size_t most, struct err *err);
void pairs_put(struct pairs *p, int32_t left, int32_t right, int32_t rank, int32_t number);
void pairs_fini(struct pairs *p);

static inline uint64_t pairs_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline size_t pairs_hash(uint64_t key)
{
    key *= UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(key ^ key >> 29);
}

/* The rank of a pair, and the number of what it becomes; PAIR_NONE. */
static inline int32_t pairs_find(const struct pairs *p, int32_t left, int32_t right,
                                 int32_t *number)
{
    const uint64_t key = pairs_key(left, right);

    for (size_t i = pairs_hash(key);; i++) {
        const struct pair *const at = &p->slot[i & (p->n_slots - 1)];

        if (at->key == key) {
            *number = at->number;
            return at->rank;
        }
        if (at->key == UINT64_MAX)
            return PAIR_NONE;
    }
}

#endif
