/* bpe - byte pair encoding: of all neighbours the pair of the lowest rank is merged, the leftmost
 * of several, until no neighbours are a pair.
 *
 * Texts repeat their words, so the tokens of short pieces are kept, and most pieces are one look at
 * the cache.  Others take the plain way, which looks at all ranks for each merge; long ones, whose
 * time would grow with the square of their length, a heap of pairs.
 *
 * Tokenizers in SentencePiece's manner do not cut a text into words, but mark where words begin by
 * U+2581.  If no merge makes a token in which the mark follows another character (Llama's has
 * none), merges left and right of such a place do not meet, so the text is cut there all the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

enum { CACHE_SIZE = 1 << 15, MOST_PLAIN = 64 };

static const char mark[] = "\xe2\x96\x81";

enum { MARK_LEN = sizeof mark - 1 };

/* ---- a few units ---- */

/* token[n] -> what is left, at the same place; returns how many. */
static size_t bpe_merge_few(const struct pairs *pairs, int32_t *token, size_t n)
{
    int32_t rank[MOST_PLAIN], becomes[MOST_PLAIN];

    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = pairs_find(pairs, token[i], token[i + 1], &becomes[i]);
    while (n > 1) {
        int32_t least = INT32_MAX;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++)
            if (rank[i] != PAIR_NONE && rank[i] < least) {
                least = rank[i];
                at = i;
            }
        if (least == INT32_MAX)
            break;
        token[at] = becomes[at];
        n--;
        memmove(token + at + 1, token + at + 2, (n - at - 1) * sizeof *token);
        memmove(rank + at + 1, rank + at + 2, (n - at - 1) * sizeof *rank);
        memmove(becomes + at + 1, becomes + at + 2, (n - at - 1) * sizeof *becomes);
        if (at + 1 < n)
            rank[at] = pairs_find(pairs, token[at], token[at + 1], &becomes[at]);
        if (at > 0)
            rank[at - 1] = pairs_find(pairs, token[at - 1], token[at], &becomes[at - 1]);
    }
    return n;
}

/* ---- many units ---- */

/* A unit, in a list by place; token -1: it was merged into the one before. */
struct bpe_unit {
    int32_t token, next, before; /* -1: none */
};

/* A pair that may have changed since: then its number is another one. */
struct bpe_candidate {
    uint64_t order; /* rank, place */
    int32_t number;
};

struct bpe_heap {
    struct bpe_unit *unit;
    struct bpe_candidate *item;
    size_t n;
    const struct pairs *pairs;
};

static void bpe_push(struct bpe_heap *h, int32_t at)
{
    const int32_t next = at < 0 ? -1 : h->unit[at].next;
    struct bpe_candidate new = {0};
    int32_t rank;
    size_t i;

    if (next < 0)
        return;
    rank = pairs_find(h->pairs, h->unit[at].token, h->unit[next].token, &new.number);
    if (rank == PAIR_NONE)
        return;
    new.order = pairs_key(rank, at);
    for (i = h->n++; i > 0 && h->item[(i - 1) / 2].order > new.order; i = (i - 1) / 2)
        h->item[i] = h->item[(i - 1) / 2];
    h->item[i] = new;
}

static struct bpe_candidate bpe_pop(struct bpe_heap *h)
{
    const struct bpe_candidate top = h->item[0], last = h->item[--h->n];
    size_t i = 0;

    for (size_t child = 1; child < h->n; child = 2 * i + 1) {
        child += child + 1 < h->n && h->item[child + 1].order < h->item[child].order;
        if (h->item[child].order >= last.order)
            break;
        h->item[i] = h->item[child];
        i = child;
    }
    h->item[i] = last;
    return top;
}

static void bpe_merge_at(struct bpe_heap *h, int32_t at, int32_t number)
{
    struct bpe_unit *const u = &h->unit[at], *const next = &h->unit[u->next];

    u->token = number;
    u->next = next->next;
    if (u->next >= 0)
        h->unit[u->next].before = at;
    next->token = -1;
    bpe_push(h, u->before);
    bpe_push(h, at);
}

/* Each merge takes one unit away and adds two candidates, so there are fewer than 3 * n. */
static int bpe_merge_many(struct tokenizer_work *w, const int32_t *token, size_t n, struct err *err)
{
    struct bpe_heap h = {.pairs = &w->t->pairs};
    int rc = try_alloc((void **)&h.unit, n * sizeof *h.unit, "the units of a text", err);

    if (rc == 0)
        rc = try_alloc((void **)&h.item, 3 * n * sizeof *h.item, "the pairs of a text", err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        h.unit[i] = (struct bpe_unit){token[i], i + 1 < n ? (int32_t)i + 1 : -1, (int32_t)i - 1};
    for (size_t i = 0; rc == 0 && i < n; i++)
        bpe_push(&h, (int32_t)i);
    while (rc == 0 && h.n > 0) {
        const struct bpe_candidate c = bpe_pop(&h);
        const int32_t at = (int32_t)(uint32_t)c.order;
        const struct bpe_unit *const u = &h.unit[at];
        int32_t number;

        if (u->token >= 0 && u->next >= 0 &&
            pairs_find(h.pairs, u->token, h.unit[u->next].token, &number) != PAIR_NONE &&
            number == c.number)
            bpe_merge_at(&h, at, number);
    }
    for (int32_t i = 0; rc == 0 && i >= 0; i = h.unit[i].next)
        rc = tokenizer_put(w, h.unit[i].token, err);
    free(h.unit);
    free(h.item);
    return rc;
}

/* ---- units ---- */

struct bpe_units {
    int32_t *token;
    size_t n;
    int32_t unknown; /* seen, and not yet among `token`; -1: none */
};

static void bpe_end_unknown(struct bpe_units *u)
{
    if (u->unknown >= 0)
        u->token[u->n++] = u->unknown;
    u->unknown = -1;
}

/* A character that is no token: its bytes, if each has one; or the unknown token, one for
 * neighbours if the model fuses them; or nothing.  As in the library, bytes do not end a run of
 * unknown characters. */
static void bpe_add_stranger(const struct tokenizer *t, struct bpe_units *u, const char *s,
                             size_t len)
{
    int is_whole = t->has_fallback;

    for (size_t i = 0; i < len && is_whole; i++)
        is_whole = t->byte[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; i < len && is_whole; i++)
        u->token[u->n++] = t->byte[(uint8_t)s[i]];
    if (is_whole || t->unknown < 0)
        return;
    if (!t->fuses_unknown)
        bpe_end_unknown(u);
    u->unknown = t->unknown;
}

/* The units of s[0..n), at most n. */
static void bpe_find_units(const struct tokenizer *t, const char *s, size_t n, struct bpe_units *u)
{
    for (size_t at = 0, len = 1; at < n; at += len) {
        int32_t token = t->byte[(uint8_t)s[at]];

        if (!t->is_bytes) {
            len = utf8_len(s[at]);
            token = vocab_find(&t->vocab, s + at, len);
        }
        if (token >= 0) {
            bpe_end_unknown(u);
            u->token[u->n++] = token;
        } else if (!t->is_bytes) {
            bpe_add_stranger(t, u, s + at, len);
        } else if (t->unknown >= 0) {
            if (!t->fuses_unknown)
                bpe_end_unknown(u);
            u->unknown = t->unknown;
        }
    }
    bpe_end_unknown(u);
}

static int bpe_put_all(struct tokenizer_work *w, const int32_t *token, size_t n, struct err *err)
{
    buf_append(&w->tokens, token, n * sizeof *token);
    return tokenizer_hand_on(w, TOKENIZER_TAKEN, err);
}

static int bpe_encode_long(struct tokenizer_work *w, const char *s, size_t n, struct err *err)
{
    struct bpe_units u = {.unknown = -1};

    if (n > INT32_MAX / 2)
        return err_set(
            err, ERR_CORRUPT,
            "a piece of %zu bytes that the tokenizer does not cut, want at most %d; give "
            "the text in several files or lines",
            n, INT32_MAX / 2);
    buf_clear(&w->units);
    if (try_realloc((void **)&w->units.data, max_i64((int64_t)w->units.cap, (int64_t)(n * 4)),
                    "the units of a text", err) < 0)
        return err->code;
    w->units.cap = (size_t)max_i64((int64_t)w->units.cap, (int64_t)(n * 4));
    u.token = (int32_t *)w->units.data;
    bpe_find_units(w->t, s, n, &u);
    if (u.n == 0)
        return 0;
    if (u.n > MOST_PLAIN)
        return bpe_merge_many(w, u.token, u.n, err);
    return bpe_put_all(w, u.token, bpe_merge_few(&w->t->pairs, u.token, u.n), err);
}

static struct bpe_cached *bpe_cache_slot(const struct tokenizer_work *w, const char *s, size_t n)
{
    uint64_t word[3] = {n}, hash;

    memcpy((char *)word + 1, s, n);
    hash = (word[0] ^ word[1] * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    hash = (hash ^ hash >> 32 ^ word[2]) * UINT64_C(0xd6e8feb86659fd93);
    return &w->cache[(hash ^ hash >> 32) & (CACHE_SIZE - 1)];
}

static int bpe_encode_short(struct tokenizer_work *w, const char *s, size_t n, struct err *err)
{
    struct bpe_cached *const c = bpe_cache_slot(w, s, n);
    int32_t token[TOKENIZER_CACHED];
    struct bpe_units u = {.token = token, .unknown = -1};

    if (c->len == n && !memcmp(c->bytes, s, n))
        return bpe_put_all(w, c->token, c->n, err);
    bpe_find_units(w->t, s, n, &u);
    u.n = bpe_merge_few(&w->t->pairs, token, u.n);
    if (u.n <= TOKENIZER_CACHED_TOKENS) {
        c->len = (uint8_t)n;
        memcpy(c->bytes, s, n);
        c->n = (uint32_t)u.n;
        memcpy(c->token, token, u.n * sizeof *token);
    }
    return bpe_put_all(w, token, u.n, err);
}

static int bpe_encode(struct tokenizer_work *w, const char *s, size_t n, struct err *err)
{
    return n <= TOKENIZER_CACHED ? bpe_encode_short(w, s, n, err) : bpe_encode_long(w, s, n, err);
}

/* Where the word ends that begins at s: before the next mark that follows another character. */
static size_t bpe_word_len(const char *s, size_t n)
{
    size_t at = 0;

    while (n - at >= MARK_LEN && !memcmp(s + at, mark, MARK_LEN))
        at += MARK_LEN;
    while (at < n) {
        const char *const next = memchr(s + at, mark[0], n - at);

        if (!next)
            return n;
        at = (size_t)(next - s);
        if (at > 0 && n - at >= MARK_LEN && !memcmp(next, mark, MARK_LEN))
            return at;
        at++;
    }
    return n;
}

int bpe_piece(struct tokenizer_work *w, const char *s, size_t n, struct err *err)
{
    const int32_t whole = w->t->whole.n ? vocab_find(&w->t->whole, s, n) : -1;
    int rc = 0;

    if (n == 0)
        return 0;
    if (whole >= 0)
        return tokenizer_put(w, whole, err);
    if (!w->t->cuts_at_mark)
        return bpe_encode(w, s, n, err);
    for (size_t at = 0, len; rc == 0 && at < n; at += len) {
        len = bpe_word_len(s + at, n - at);
        rc = bpe_encode(w, s + at, len, err);
    }
    return rc;
}
