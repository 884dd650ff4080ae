/* xxhash behind our own names, so that no other file sees its headers.
 * struct hasher is XXH3's state. */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/util.h"

static struct hash128 from_xxh(XXH128_hash_t h) { return (struct hash128){h.low64, h.high64}; }

struct hash128 hash_of(const void *data, size_t n_bytes)
{
    return from_xxh(XXH3_128bits(data, n_bytes));
}

void hash_chain(struct hash128 *h, const void *data, size_t n_bytes)
{
    const struct hash128 pair[2] = {*h, hash_of(data, n_bytes)};

    *h = hash_of(pair, sizeof pair);
}

int hash_equal(struct hash128 a, struct hash128 b) { return a.lo == b.lo && a.hi == b.hi; }

void hash_to_text(struct hash128 h, char out[HASH_TEXT_LEN])
{
    snprintf(out, HASH_TEXT_LEN, "%016llx%016llx", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
}

static int is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

/* 16 digits. */
static uint64_t word_of(const char *text)
{
    uint64_t v = 0;

    for (int i = 0; i < 16; i++)
        v = v << 4 | (uint64_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10);
    return v;
}

int hash_from_text(const char *text, struct hash128 *out, struct err *err)
{
    size_t n = 0;

    while (is_hex(text[n]))
        n++;
    if (text[n] || n != HASH_TEXT_LEN - 1)
        return err_set(err, ERR_CORRUPT, "\"%.40s\" is no hash: want %d hex digits", text,
                       HASH_TEXT_LEN - 1);
    *out = (struct hash128){.hi = word_of(text), .lo = word_of(text + 16)};
    return 0;
}

struct hasher *hasher_new(void)
{
    XXH3_state_t *s = XXH3_createState();

    ASSERT(s);
    XXH3_128bits_reset(s);
    return (struct hasher *)s;
}

void hasher_free(struct hasher *h) { XXH3_freeState((XXH3_state_t *)h); }

void hasher_add(struct hasher *h, const void *data, size_t n_bytes)
{
    XXH3_128bits_update((XXH3_state_t *)h, data, n_bytes);
}

void hasher_add_text(struct hasher *h, const char *s) { hasher_add(h, s, strlen(s) + 1); }

void hasher_add_i64(struct hasher *h, int64_t v) { hasher_add(h, &v, sizeof v); }

struct hash128 hasher_end(const struct hasher *h)
{
    return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)h));
}
