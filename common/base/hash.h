/* hash - 128-bit XXH3 (xxhash), for replicas, layouts, data and checkpoints.
 *
 * Not cryptographic: it finds accidents, not attackers.
 * Threads: hash_of may be called from any; a hasher is used by one at a time. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct hash128 {
    uint64_t lo, hi;
};

enum { HASH_TEXT_LEN = 33 }; /* 32 hex digits and NUL */

struct hash128 hash_of(const void *data, size_t n_bytes);
/* *h becomes a hash of what it was and of these bytes.  Allocates nothing. */
void hash_chain(struct hash128 *h, const void *data, size_t n_bytes);
int hash_equal(struct hash128 a, struct hash128 b);
void hash_to_text(struct hash128 h, char out[HASH_TEXT_LEN]); /* high word first, lower case */

/* Read what hash_to_text wrote: 0, or ERR_CORRUPT if `text` is not 32 hex digits. */
int hash_from_text(const char *text, struct hash128 *out, struct err *err);

struct hasher; /* opaque: hash in pieces */
struct hasher *hasher_new(void);
void hasher_free(struct hasher *h);
void hasher_add(struct hasher *h, const void *data, size_t n_bytes);
void hasher_add_text(struct hasher *h, const char *s); /* with its NUL */
void hasher_add_i64(struct hasher *h, int64_t v);
struct hash128 hasher_end(const struct hasher *h); /* of all so far; more may follow */

#endif
