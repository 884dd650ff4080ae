/* tokens - texts as token numbers, 16 or 32 bits each, little-endian: files as nanoGPT and llm.c
 * write them.
 *
 *     bare     token numbers from the first byte on, of the type data.dtype
 *     llm.c    256 words of 32 bits, the first three of them
 *                  20240520  1  number of tokens      16 bits a token, GPT-2's
 *                  20240801  7  number of tokens      32 bits a token, Llama 3's
 *              and then the tokens
 *
 * Files are mapped.  Each one is a text of its own: no sample reaches from one into the next.
 * Opening checks the numbers at the beginning of each file; all others are checked when they are
 * read, so that opening a large set does not read all of it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/mapped.h"
#include "data/sequence.h"

enum {
    HEADER_WORDS = 256,
    HEADER_BYTES = 4 * HEADER_WORDS,
    GPT2_VOCAB = 50257,        /* where model.vocab does not say */
    CHECKED_TOKENS = 32 << 20, /* of each file, by opening */
    BLOCK = 1024,              /* tokens that are checked at a time */
    LEAST_PAIRS = 32,          /* of which every second token is 0, by which wider ones are known */
    MAGIC_16 = 20240520,
    VERSION_16 = 1,
    MAGIC_32 = 20240801,
    VERSION_32 = 7,
};

enum width { UINT16, UINT32 };

static const char *const widths[] = {[UINT16] = "uint16", [UINT32] = "uint32", NULL};

struct tokens_options {
    const char *path, *train, *validation;
    enum width width;
};

struct text {
    struct mapped file;
    char *path;
    int64_t offset; /* of the first token, in bytes */
    int64_t n_tokens;
    int token_bytes;
    int64_t first; /* the data set's number of its first sample */
};

struct tokens {
    struct dataset base;
    struct text *text;
    int n_texts;
};

static uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Decode n tokens.  They may stand at the end of the memory that `to` is. */
static void decode(const struct text *t, const uint8_t *p, int64_t n, uint32_t *to)
{
    if (t->token_bytes == 2)
        for (int64_t i = 0; i < n; i++)
            to[i] = (uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8;
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = word_at(p + 4 * i);
}

/* The offset in the file of the text's token `first`, in bytes. */
static int64_t place_of(const struct text *t, int64_t first)
{
    return t->offset + first * t->token_bytes;
}

/* Check v [n], the tokens from number `first` of the text on. */
static int check_tokens(const struct tokens *s, const struct text *t, int64_t first, int64_t n,
                        const uint32_t *v, struct err *err)
{
    const uint32_t vocab = (uint32_t)s->base.spec.field[SEQUENCE_TOKENS].n_classes;
    uint32_t most = 0;
    int64_t i = 0;

    for (int64_t k = 0; k < n; k++)
        most = v[k] > most ? v[k] : most;
    if (most < vocab)
        return 0;
    while (v[i] < vocab)
        i++;
    return err_set(err, ERR_CORRUPT,
                   "%s: offset %lld: token %lld is %lu, want below %lu, the vocabulary's size; set "
                   "model.vocab, or is data.dtype %s wrong?",
                   t->path, (long long)place_of(t, first + i), (long long)(first + i),
                   (unsigned long)v[i], (unsigned long)vocab,
                   widths[t->token_bytes == 2 ? UINT16 : UINT32]);
}

/* ---- files ---- */

static int check_beginning(const struct tokens *s, const struct text *t, struct err *err)
{
    const int64_t end = min_i64(t->n_tokens, CHECKED_TOKENS);
    uint32_t block[BLOCK];
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < end; i += BLOCK) {
        const int64_t n = min_i64(end - i, BLOCK);

        decode(t, t->file.bytes + place_of(t, i), n, block);
        rc = check_tokens(s, t, i, n, block, err);
    }
    return rc;
}

/* Numbers of twice the width that they are read as are all in the vocabulary, and every second one
 * is 0. */
static int check_width(const struct text *t, struct err *err)
{
    const int64_t n_pairs = min_i64(t->n_tokens, CHECKED_TOKENS) / 2;
    uint32_t low = 0, high = 0;

    if (t->offset > 0 || n_pairs < LEAST_PAIRS)
        return 0;
    for (int64_t i = 0; i < n_pairs && high == 0; i++) {
        uint32_t pair[2];

        decode(t, t->file.bytes + place_of(t, 2 * i), 2, pair);
        low |= pair[0];
        high |= pair[1];
    }
    if (high > 0 || low == 0)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "%s: every second token is 0, as if numbers of %d bits were read as %d bits; %s",
                   t->path, 16 * t->token_bytes, 8 * t->token_bytes,
                   t->token_bytes == 2 ? "set data.dtype uint32"
                                       : "write the file anew with numbers of 32 bits");
}

/* llm.c's header says how wide the tokens are, and how many follow. */
static int read_header(struct text *t, uint32_t version, uint32_t want, struct err *err)
{
    const int64_t n = word_at(t->file.bytes + 8);
    const int64_t holds = ((int64_t)t->file.n_bytes - HEADER_BYTES) / t->token_bytes;

    if (version != want)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 4: llm.c's header has version %lu, want %lu; write the file "
                       "anew with llm.c's present scripts",
                       t->path, (unsigned long)version, (unsigned long)want);
    if (holds < n)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset 8: llm.c's header tells of %lld tokens, but the file holds "
                       "%lld; fetch it again",
                       t->path, (long long)n, (long long)holds);
    t->offset = HEADER_BYTES;
    t->n_tokens = n;
    return 0;
}

static int find_tokens(struct text *t, enum width width, struct err *err)
{
    const int may_have_header = t->file.n_bytes >= HEADER_BYTES;
    const uint32_t magic = may_have_header ? word_at(t->file.bytes) : 0;
    const uint32_t version = may_have_header ? word_at(t->file.bytes + 4) : 0;

    if (magic == MAGIC_16 || magic == MAGIC_32) {
        t->token_bytes = magic == MAGIC_16 ? 2 : 4;
        return read_header(t, version, magic == MAGIC_16 ? VERSION_16 : VERSION_32, err);
    }
    t->token_bytes = width == UINT16 ? 2 : 4;
    t->n_tokens = (int64_t)t->file.n_bytes / t->token_bytes;
    if (t->file.n_bytes % (size_t)t->token_bytes)
        return err_set(err, ERR_CORRUPT,
                       "%s: %zu bytes, want a multiple of %d, the bytes of a token of data.dtype "
                       "%s; fetch it again",
                       t->path, t->file.n_bytes, t->token_bytes, widths[width]);
    return 0;
}

static int open_text(struct tokens *s, struct text *t, enum width width, struct err *err)
{
    int64_t n_samples;

    if (mapped_open(&t->file, t->path, err) < 0 || find_tokens(t, width, err) < 0 ||
        sequence_samples(&n_samples, &s->base, t->n_tokens, t->path, err) < 0)
        return err->code;
    t->first = s->base.n_samples;
    s->base.n_samples += n_samples;
    return check_width(t, err) < 0 ? err->code : check_beginning(s, t, err);
}

/* Items are separated by commas. */
static int open_texts(struct tokens *s, const struct tokens_options *o, const char *items,
                      struct err *err)
{
    char *all = xstrdup(items), *next = all, *item;
    int rc = 0;

    while (rc == 0 && (item = strsep(&next, ","))) {
        struct text *t;

        item += strspn(item, " ");
        s->text = xrealloc(s->text, (size_t)(s->n_texts + 1) * sizeof *s->text);
        t = &s->text[s->n_texts++];
        *t = (struct text){.path = xasprintf("%s/%s", o->path, item)};
        rc = open_text(s, t, o->width, err);
    }
    free(all);
    return rc;
}

/* ---- the data set ---- */

/* The text that holds sample i. */
static const struct text *text_of(const struct tokens *s, int64_t i)
{
    int low = 0, high = s->n_texts;

    while (high - low > 1) {
        const int middle = (low + high) / 2;

        if (s->text[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    return &s->text[low];
}

static int tokens_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                      struct err *err)
{
    const struct tokens *s = container_of(ds, struct tokens, base);
    const struct text *t = text_of(s, i);
    const int64_t n = sequence_context(ds);
    const int64_t first = (i - t->first) * n + (field == SEQUENCE_TARGETS);

    uint8_t *raw = (uint8_t *)room + n * (4 - t->token_bytes);

    *row = room;
    if (mapped_read(&t->file, (size_t)place_of(t, first), raw, (size_t)(n * t->token_bytes), err) <
        0)
        return err->code;
    decode(t, raw, n, room);
    return check_tokens(s, t, first, n, room, err);
}

static void tokens_close(struct dataset *ds)
{
    struct tokens *s = container_of(ds, struct tokens, base);

    for (int i = 0; i < s->n_texts; i++) {
        mapped_close(&s->text[i].file);
        free(s->text[i].path);
    }
    free(s->text);
    free(s);
}

static const struct dataset_ops tokens_ops = {
    .name = "tokens", .row = tokens_row, .close = tokens_close};

static int tokens_open(struct dataset **out, const void *options,
                       const struct dataset_request *request, struct err *err)
{
    const struct tokens_options *o = options;
    const char *items = request->purpose == DATASET_TRAIN ? o->train : o->validation;
    struct tokens *s;

    if (!items)
        return DATASET_NONE;
    s = xcalloc(1, sizeof *s);
    if (sequence_init(&s->base, &tokens_ops, request, request->vocab ? request->vocab : GPT2_VOCAB,
                      err) < 0 ||
        open_texts(s, o, items, err) < 0) {
        tokens_close(&s->base);
        return err_wrap(err, "tokens");
    }
    *out = &s->base;
    return 0;
}

#define AT(field) offsetof(struct tokens_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), "train.bin", .flags = OPT_MANY,
     .help = "The training files: token numbers, bare or with llm.c's header. model.context is the "
             "number of tokens of a sample, and all tokens are below model.vocab; if that is 0, "
             "they are GPT-2's, below 50257."},
    {"data.validation", OPT_STRING, AT(validation), NULL, .flags = OPT_MANY,
     .help = "The validation files, of the same kind, such as val.bin. Without them, or with none, "
             "nothing is validated."},
    {"data.dtype", OPT_CHOICE, AT(width), "uint16", .choices = widths,
     .help = "The type in which a file without header stores a token, little-endian."},
};

const struct data_format format_tokens = {
    .group = {.name = "tokens",
              .help = "texts as token numbers, such as nanoGPT's and llm.c's files",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct tokens_options)},
    .open = tokens_open,
};
