/* scribe - three tokenizers behind one interface: a file, bytes, and characters.  The stream
 * decodes the last tokens anew for each new one, since the text of a token depends on those before
 * it. */
#include "generate/scribe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/text.h"
#include "data/token_marks.h"
#include "tokenizer/tokenizer.h"

enum { CODE_POINTS = 0x110000, N_BYTES = 256, MOST_PENDING = 4 };

static const char unknown[] = "\xef\xbf\xbd"; /* U+FFFD */

struct scribe {
    struct tokenizer *file; /* NULL: bytes or characters */
    struct tokenizer_work *work;
    int32_t
        *number;   /* [CODE_POINTS] 1 + the token of each character, 0: it has none; NULL: bytes */
    int32_t *code; /* [vocab] the character of each token */
    int64_t vocab;
    int32_t end;
};

/* ---- characters ---- */

/* The code point of the n bytes of a well-formed character. */
static int32_t code_of(const char *s, size_t n)
{
    int32_t code = n == 1 ? (unsigned char)*s : (unsigned char)*s & (0x7f >> n);

    for (size_t i = 1; i < n; i++)
        code = code << 6 | ((unsigned char)s[i] & 0x3f);
    return code;
}

static void put_code(struct buf *out, int32_t code)
{
    if (code == 0) /* no text has it */
        buf_printf(out, "%s", unknown);
    else if (code < 0x80)
        buf_printf(out, "%c", (int)code);
    else if (code < 0x800)
        buf_printf(out, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    else if (code < 0x10000)
        buf_printf(out, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f),
                   0x80 | (code & 0x3f));
    else
        buf_printf(out, "%c%c%c%c", 0xf0 | code >> 18, 0x80 | (code >> 12 & 0x3f),
                   0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
}

/* The whole file, with a 0 behind it. */
static int scribe_load(const char *path, struct buf *out, struct err *err)
{
    FILE *f = fopen(path, "rbe");
    size_t n;
    int rc = 0;

    if (!f)
        return err_sys(err, errno, "%s (data.tokenizer chars: the text that the network learnt)",
                       path);
    do {
        uint8_t *to = buf_reserve(out, 1 << 16);

        n = fread(to, 1, 1 << 16, f);
        out->len += n;
    } while (n > 0);
    if (ferror(f))
        rc = err_sys(err, errno, "%s", path);
    fclose(f);
    return rc;
}

/* Characters are numbered in the order of their code points, as data/text.c numbers them. */
static int scribe_number(struct scribe *t, const char *path, struct err *err)
{
    struct buf text = {0};
    int rc = scribe_load(path, &text, err);
    const char *s = rc == 0 ? buf_cstr(&text) : "";

    t->number = xcalloc(CODE_POINTS, sizeof *t->number);
    t->code = xcalloc(CODE_POINTS, sizeof *t->code);
    for (size_t at = 0, len; rc == 0 && at < text.len; at += len) {
        len = s[at] == '\0' ? 1 : text_char_len(s + at);
        if (len == 0)
            rc = err_set(err, ERR_CORRUPT, "%s: offset %zu begins no character of UTF-8", path, at);
        else
            t->number[code_of(s + at, len)] = 1;
    }
    for (int32_t i = 0; i < CODE_POINTS; i++)
        if (t->number[i]) {
            t->code[t->vocab++] = i;
            t->number[i] = (int32_t)t->vocab;
        }
    buf_fini(&text);
    return rc;
}

/* ---- life ---- */

static int scribe_open_file(struct scribe *t, const struct scribe_request *r, struct err *err)
{
    struct token_marks marks = {0};
    struct stat st;
    const int is_folder = stat(r->tokenizer, &st) == 0 && S_ISDIR(st.st_mode);
    char *path = xasprintf("%s%s", r->tokenizer, is_folder ? "/tokenizer.json" : "");
    int rc = tokenizer_read(&t->file, path, err);

    if (rc == 0)
        rc = token_marks_read(&marks, path, r->end, err);
    if (rc == 0)
        rc = token_marks_end(&marks, t->file, &t->end, err);
    if (rc == 0) {
        t->work = tokenizer_work_new(t->file);
        t->vocab = tokenizer_vocab(t->file);
    }
    if (rc == 0 && r->has_end_number)
        t->end = r->end_number;
    token_marks_fini(&marks);
    free(path);
    return rc;
}

int scribe_open(const struct scribe_request *r, struct scribe **out, struct err *err)
{
    struct scribe *t = xcalloc(1, sizeof *t);
    int rc = 0;

    t->end = -1;
    if (!strcmp(r->tokenizer, "bytes"))
        t->vocab = N_BYTES;
    else if (!strcmp(r->tokenizer, "chars"))
        rc = scribe_number(t, r->corpus, err);
    else
        rc = scribe_open_file(t, r, err);
    if (rc < 0)
        scribe_close(t);
    else
        *out = t;
    return rc;
}

void scribe_close(struct scribe *t)
{
    if (!t)
        return;
    tokenizer_work_free(t->work);
    tokenizer_free(t->file);
    free(t->number);
    free(t->code);
    free(t);
}

int64_t scribe_vocab(const struct scribe *t) { return t->vocab; }
int32_t scribe_end(const struct scribe *t) { return t->end; }

/* ---- encoding ---- */

struct encoded {
    int32_t *token;
    int64_t n;
};

static int scribe_take(void *arg, const int32_t *token, size_t n, struct err *err)
{
    struct encoded *e = arg;

    (void)err;
    e->token = xrealloc(e->token, ((size_t)e->n + n + 1) * sizeof *token);
    memcpy(e->token + e->n, token, n * sizeof *token);
    e->n += (int64_t)n;
    return 0;
}

static int scribe_encode_chars(const struct scribe *t, const char *text, struct encoded *e,
                               struct err *err)
{
    for (size_t at = 0, len; text[at]; at += len) {
        int32_t token;

        len = text_char_len(text + at);
        if (len == 0)
            return err_set(err, ERR_CORRUPT, "byte %zu of the text begins no character of UTF-8",
                           at);
        token = t->number[code_of(text + at, len)] - 1;
        if (token < 0)
            return err_set(err, ERR_CONFIG,
                           "the network knows no character \"%.*s\", which its text had not",
                           (int)len, text + at);
        scribe_take(e, &token, 1, err);
    }
    return 0;
}

int scribe_encode(struct scribe *t, const char *text, int32_t **token, int64_t *n, struct err *err)
{
    struct encoded e = {0};
    int rc = 0;

    if (t->file)
        rc = tokenizer_encode(t->work, text, strlen(text), TOKENIZER_SPECIAL, scribe_take, &e, err);
    else if (t->number)
        rc = scribe_encode_chars(t, text, &e, err);
    else
        for (size_t i = 0; text[i]; i++)
            scribe_take(&e, &(int32_t){(unsigned char)text[i]}, 1, err);
    if (rc < 0) {
        free(e.token);
        return rc;
    }
    if (e.n > 1 && t->end >= 0 && e.token[e.n - 1] == t->end)
        e.n--;
    *token = e.token;
    *n = e.n;
    return 0;
}

/* ---- decoding ---- */

static void scribe_decode_bytes(const int32_t *token, int64_t n, struct buf *out)
{
    struct buf raw = {0};
    const char *s;

    for (int64_t i = 0; i < n; i++)
        buf_printf(&raw, "%c", token[i] ? (int)token[i] : 0xff); /* 0 is in no text */
    s = buf_cstr(&raw);
    for (size_t at = 0, len; s[at]; at += len ? len : 1) {
        len = text_char_len(s + at);
        if (len)
            buf_printf(out, "%.*s", (int)len, s + at);
        else
            buf_printf(out, "%s", unknown);
    }
    buf_fini(&raw);
}

/* A number that the tokenizer has not, which a network of more rows may choose, is U+FFFD. */
static int scribe_decode(const struct scribe *t, const int32_t *token, int64_t n, struct buf *out,
                         struct err *err)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i;

        while (k < n && token[k] < t->vocab)
            k++;
        if (t->file && k > i &&
            tokenizer_decode(t->file, token + i, (size_t)(k - i), TOKENIZER_BARE, out, err) < 0)
            return err->code;
        for (int64_t c = i; t->number && c < k; c++)
            put_code(out, t->code[token[c]]);
        if (!t->file && !t->number)
            scribe_decode_bytes(token + i, k - i, out);
        if (k < n)
            buf_printf(out, "%s", unknown);
        i = k;
    }
    return 0;
}

/* ---- the stream ---- */

static void scribe_stream_add(struct scribe_stream *s, int32_t token)
{
    s->token = xrealloc(s->token, ((size_t)s->n + 1) * sizeof *s->token);
    s->token[s->n++] = token;
}

void scribe_stream_begin(struct scribe_stream *s, const int32_t *token, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        scribe_stream_add(s, token[i]);
    s->shown = n;
    s->first = n > MOST_PENDING ? n - MOST_PENDING : 0;
}

static int ends_broken(const char *text, size_t n)
{
    const size_t len = sizeof unknown - 1;

    return n >= len && !memcmp(text + n - len, unknown, len);
}

/* A token's text depends on those before it (spaces), so the tokens from `first` on are decoded
 * twice, without the new ones and with them, and the difference is given. */
static int scribe_stream_show(struct scribe_stream *s, struct scribe *t, int is_end,
                              struct buf *out, struct err *err)
{
    struct buf before = {0}, all = {0};
    int rc = scribe_decode(t, s->token + s->first, s->shown - s->first, &before, err);

    if (rc == 0)
        rc = scribe_decode(t, s->token + s->first, s->n - s->first, &all, err);
    if (rc == 0 && all.len > before.len) {
        const int is_broken = ends_broken(buf_cstr(&all), all.len);

        if (is_end || s->n - s->shown >= MOST_PENDING || !is_broken) {
            buf_append(out, all.data + before.len, all.len - before.len);
            s->first = is_broken ? s->n : s->shown; /* what completes it later stands alone */
            s->shown = s->n;
        }
    }
    buf_fini(&before);
    buf_fini(&all);
    return rc;
}

int scribe_stream_put(struct scribe_stream *s, struct scribe *t, int32_t token, struct buf *out,
                      struct err *err)
{
    scribe_stream_add(s, token);
    return scribe_stream_show(s, t, 0, out, err);
}

int scribe_stream_end(struct scribe_stream *s, struct scribe *t, struct buf *out, struct err *err)
{
    return s->n > s->shown ? scribe_stream_show(s, t, 1, out, err) : 0;
}

void scribe_stream_fini(struct scribe_stream *s)
{
    free(s->token);
    *s = (struct scribe_stream){0};
}
