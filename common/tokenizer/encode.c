/* encode - a text to numbers: the text is cut at tokens that are looked for as they are; what lies
 * between is normalized, and cut at those that are looked for afterwards; what still lies between
 * goes to the pieces. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

enum { CACHE_BYTES = (1 << 15) * sizeof(struct bpe_cached) };

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t)
{
    struct tokenizer_work *const w = xcalloc(1, sizeof *w);

    w->t = t;
    w->room = pattern_room_new();
    w->cache = xcalloc(1, CACHE_BYTES);
    return w;
}

void tokenizer_work_free(struct tokenizer_work *w)
{
    if (!w)
        return;
    pattern_room_free(w->room);
    for (int i = 0; i < TOKENIZER_MOST_STEPS; i++)
        buf_fini(&w->scratch[i]);
    buf_fini(&w->normal[0]);
    buf_fini(&w->normal[1]);
    buf_fini(&w->units);
    buf_fini(&w->tokens);
    free(w->cache);
    free(w);
}

int tokenizer_hand_on(struct tokenizer_work *w, size_t least, struct err *err)
{
    const size_t n = w->tokens.len / sizeof(int32_t);

    if (n < least)
        return 0;
    buf_clear(&w->tokens);
    return w->take(w->arg, (const int32_t *)w->tokens.data, n, err);
}

int tokenizer_put(struct tokenizer_work *w, int32_t token, struct err *err)
{
    buf_append(&w->tokens, &token, sizeof token);
    return tokenizer_hand_on(w, TOKENIZER_TAKEN, err);
}

/* Encode the text between two tokens that are taken as they are. */
static int encode_between(struct tokenizer_work *w, const char *s, size_t n, int is_first,
                          struct err *err)
{
    const struct added_tokens *const a = &w->t->normalized;
    struct added_match m = {0};
    int rc = normal_apply(w, &s, &n, err);

    while (rc == 0 && added_next(a, s, n, &m)) {
        if (m.start > m.done)
            rc = pieces_cut(w, 0, s + m.done, m.start - m.done, is_first && m.done == 0, err);
        if (rc == 0)
            rc = tokenizer_put(w, m.number, err);
    }
    if (rc == 0 && n > m.done)
        rc = pieces_cut(w, 0, s + m.done, n - m.done, is_first && m.done == 0, err);
    return rc;
}

static int encode_text(struct tokenizer_work *w, const char *s, size_t n, struct err *err)
{
    struct added_match m = {0};
    int rc = 0;

    while (rc == 0 && added_next(&w->t->raw, s, n, &m)) {
        if (m.start > m.done)
            rc = encode_between(w, s + m.done, m.start - m.done, m.done == 0, err);
        if (rc == 0)
            rc = tokenizer_put(w, m.number, err);
    }
    if (rc == 0 && n > m.done)
        rc = encode_between(w, s + m.done, n - m.done, m.done == 0, err);
    return rc;
}

static int encode_around(struct tokenizer_work *w, const int32_t *token, size_t n, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = tokenizer_put(w, token[i], err);
    return rc;
}

int tokenizer_encode(struct tokenizer_work *w, const char *text, size_t n, int special,
                     tokenizer_take *take, void *arg, struct err *err)
{
    const struct tokenizer *const t = w->t;
    const size_t bad = utf8_find_bad(text, n);
    int rc = 0;

    if (bad < n)
        return err_set(err, ERR_CORRUPT,
                       "offset %zu: byte 0x%02x begins no character of UTF-8; convert the text "
                       "(iconv -f LATIN1 -t UTF-8, if it is in Latin-1)",
                       bad, (uint8_t)text[bad]);
    buf_clear(&w->tokens);
    w->take = take;
    w->arg = arg;
    if (special)
        rc = encode_around(w, t->before, t->n_before, err);
    if (rc == 0)
        rc = encode_text(w, text, n, err);
    if (rc == 0 && special)
        rc = encode_around(w, t->after, t->n_after, err);
    return rc == 0 ? tokenizer_hand_on(w, 1, err) : rc;
}
