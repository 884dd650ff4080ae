/* decode - numbers to a text.  Each step of the decoder makes a list of parts from a list of parts,
 * which at first are the texts of the tokens. */
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

struct parts {
    struct buf text, end; /* end: size_t [n], where each part ends in the text */
};

static size_t parts_n(const struct parts *p) { return p->end.len / sizeof(size_t); }

static const char *parts_get(const struct parts *p, size_t i, size_t *len)
{
    const size_t *const end = (const size_t *)p->end.data, start = i ? end[i - 1] : 0;

    *len = end[i] - start;
    return (const char *)p->text.data + start;
}

static void parts_end(struct parts *p) { buf_append(&p->end, &p->text.len, sizeof p->text.len); }

static void parts_add(struct parts *p, const char *s, size_t n)
{
    buf_append(&p->text, s, n);
    parts_end(p);
}

/* ---- bytes ---- */

/* Bytes at s that are the beginning of a character, but not a whole one: at least 1. */
static size_t decode_bad_len(const char *s, size_t n)
{
    const uint8_t *const b = (const uint8_t *)s;
    const size_t len = b[0] < 0xc2 || b[0] > 0xf4 ? 1 : utf8_len(s[0]);
    const uint8_t least = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    size_t i = 1;

    if (len > 1 && n > 1 && b[1] >= least && b[1] <= most)
        for (i = 2; i < len && i < n && (b[i] & 0xc0) == 0x80;)
            i++;
    return i;
}

static void decode_clean(struct buf *to, const char *s, size_t n)
{
    while (n > 0) {
        const size_t good = utf8_find_bad(s, n),
                     bad = good < n ? decode_bad_len(s + good, n - good) : 0;

        buf_append(to, s, good);
        if (bad)
            buf_append(to, replacement, sizeof replacement - 1);
        s += good + bad;
        n -= good + bad;
    }
}

/* The bytes that the characters of s stand for; s itself, if one stands for none. */
static void decode_chars(struct buf *to, const char *s, size_t n)
{
    const size_t start = to->len;

    for (size_t at = 0; at < n; at += utf8_len(s[at])) {
        const int byte = tokenizer_byte_of_char(utf8_code(s + at));

        if (byte < 0) {
            to->len = start;
            buf_append(to, s, n);
            return;
        }
        buf_append(to, &(uint8_t){(uint8_t)byte}, 1);
    }
}

static void decode_bytes(const struct parts *from, struct parts *to)
{
    struct buf bytes = {0};

    for (size_t i = 0; i < parts_n(from); i++) {
        size_t len;
        const char *const s = parts_get(from, i, &len);

        decode_chars(&bytes, s, len);
    }
    decode_clean(&to->text, (const char *)bytes.data, bytes.len);
    parts_end(to);
    buf_fini(&bytes);
}

/* ---- byte fallback ---- */

static int decode_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0x0A>"; -1: it is another token. */
static int decode_fallback_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || decode_hex(s[3]) < 0 ||
        decode_hex(s[4]) < 0)
        return -1;
    return decode_hex(s[3]) << 4 | decode_hex(s[4]);
}

static void decode_end_bytes(struct buf *bytes, struct parts *to)
{
    const char *const s = (const char *)bytes->data;

    if (bytes->len > 0 && utf8_find_bad(s, bytes->len) == bytes->len)
        parts_add(to, s, bytes->len);
    else
        for (size_t i = 0; i < bytes->len; i++)
            parts_add(to, replacement, sizeof replacement - 1);
    buf_clear(bytes);
}

static void decode_fallback(const struct parts *from, struct parts *to)
{
    struct buf bytes = {0};

    for (size_t i = 0; i < parts_n(from); i++) {
        size_t len;
        const char *const s = parts_get(from, i, &len);
        const int byte = decode_fallback_byte(s, len);

        if (byte >= 0) {
            buf_append(&bytes, &(uint8_t){(uint8_t)byte}, 1);
            continue;
        }
        decode_end_bytes(&bytes, to);
        parts_add(to, s, len);
    }
    decode_end_bytes(&bytes, to);
    buf_fini(&bytes);
}

/* ---- other steps, part by part ---- */

static int decode_replace(const struct decode_step *d, struct pattern_room *room, const char *s,
                          size_t n, struct buf *to, struct err *err)
{
    size_t at = 0, start, end;
    int rc;

    while ((rc = pattern_find(d->pattern, room, s, n, at, &start, &end, err)) > 0) {
        buf_append(to, s + at, start - at);
        buf_append(to, d->text, d->len);
        at = end;
    }
    if (rc == 0)
        buf_append(to, s + at, n - at);
    return rc;
}

static void decode_strip(const struct decode_step *d, const char *s, size_t n, struct buf *to)
{
    for (int64_t i = 0; i < d->n_start && n >= d->len && !memcmp(s, d->text, d->len); i++) {
        s += d->len;
        n -= d->len;
    }
    for (int64_t i = 0; i < d->n_stop && n >= d->len && !memcmp(s + n - d->len, d->text, d->len);
         i++)
        n -= d->len;
    buf_append(to, s, n);
}

static void decode_spaces(const struct decode_step *d, int is_first, const char *s, size_t n,
                          struct buf *to)
{
    for (size_t at = 0; at < n;) {
        const int is_mark = n - at >= d->len && !memcmp(s + at, d->text, d->len);
        const size_t len = is_mark ? d->len : utf8_len(s[at]);

        if (!is_mark)
            buf_append(to, s + at, len);
        else if (!is_first || !d->drops_first)
            buf_append(to, " ", 1);
        at += len;
    }
}

static int decode_parts(const struct decode_step *d, struct pattern_room *room,
                        const struct parts *from, struct parts *to, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < parts_n(from); i++) {
        size_t len;
        const char *const s = parts_get(from, i, &len);

        if (d->kind == DECODE_REPLACE)
            rc = decode_replace(d, room, s, len, &to->text, err);
        else if (d->kind == DECODE_STRIP)
            decode_strip(d, s, len, &to->text);
        else if (d->kind == DECODE_SPACES)
            decode_spaces(d, i == 0, s, len, &to->text);
        else
            buf_append(&to->text, s, len);
        if (d->kind != DECODE_FUSE)
            parts_end(to);
    }
    if (d->kind == DECODE_FUSE)
        parts_end(to);
    return rc;
}

static int decode_step(const struct decode_step *d, struct pattern_room *room,
                       const struct parts *from, struct parts *to, struct err *err)
{
    if (d->kind == DECODE_BYTES)
        decode_bytes(from, to);
    else if (d->kind == DECODE_FALLBACK)
        decode_fallback(from, to);
    else
        return decode_parts(d, room, from, to, err);
    return 0;
}

/* ---- the whole ---- */

static int decode_texts(const struct tokenizer *t, const int32_t *token, size_t n, int special,
                        struct parts *to, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct token_text *const text =
            token[i] >= 0 && token[i] < t->n_texts ? &t->text[token[i]] : NULL;

        if (!text || !text->text)
            return err_set(err, ERR_ARG,
                           "token %zu is %d, which the tokenizer does not have; want "
                           "a token below %lld of its vocabulary",
                           i, (int)token[i], (long long)t->n_texts);
        if (text->is_special && !special)
            continue;
        if (t->n_decode == 0 && parts_n(to) > 0)
            buf_append(&to->text, " ", 1);
        parts_add(to, text->text, text->len);
    }
    return 0;
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *token, size_t n, int special,
                     struct buf *out, struct err *err)
{
    struct parts parts[2] = {0};
    struct pattern_room *const room = pattern_room_new();
    int rc = decode_texts(t, token, n, special, &parts[0], err), last = 0;

    for (int i = 0; rc == 0 && i < t->n_decode; i++, last = !last) {
        buf_clear(&parts[!last].text);
        buf_clear(&parts[!last].end);
        rc = decode_step(&t->decode[i], room, &parts[last], &parts[!last], err);
    }
    if (rc == 0)
        buf_append(out, parts[last].text.data, parts[last].text.len);
    for (int i = 0; i < 2; i++) {
        buf_fini(&parts[i].text);
        buf_fini(&parts[i].end);
    }
    pattern_room_free(room);
    return rc;
}
