/* tokens - texts as token numbers: files as nanoGPT, llm.c, NumPy and Megatron write them.
 *
 *     bare       token numbers from the first byte on, of the type data.dtype, little-endian
 *     llm.c      256 words of 32 bits, the first three of them
 *                    20240520  1  number of tokens      16 bits a token, GPT-2's
 *                    20240801  7  number of tokens      32 bits a token, Llama 3's
 *                and then the tokens
 *     NumPy      an array [N] of whole numbers, written by numpy.save(); its header says the type
 *     Megatron   NAME.bin is bare, and NAME.idx beside it says the type:
 *                     0  "MMIDIDX" 0 0
 *                     9  version, 64 bits: 1
 *                    17  the type, 8 bits (megatron_types)
 *
 * A bare file has no magic, so files of other kinds are known by theirs (data/foreign.h), and are
 * refused.  Numbers that are wider than they are read as are known by their upper halves.
 *
 * Files are mapped.  Each one is a text of its own: no sample reaches from one into the next.
 * Opening checks the numbers at the beginning of each file; all others are checked when they are
 * read, so that opening a large set does not read all of it.  With data.pack it does, to find where
 * documents end (tokens_packed.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/foreign.h"
#include "data/tokens_impl.h"

enum {
    HEADER_WORDS = 256,
    HEADER_BYTES = 4 * HEADER_WORDS,
    GPT2_VOCAB = 50257,        /* where model.vocab does not say */
    CHECKED_TOKENS = 32 << 20, /* of each file, by opening */
    MOST_TOKEN_BYTES = 8,
    MOST_16 = 1 << 16, /* different numbers of 16 bits */
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
    int pack;
    const char *end; /* data.end_token; NULL: none is said */
};

static uint32_t word_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The question that stands beside the remedy. */
static const char *other_doubt(const struct tokens_text *t)
{
    if (!t->is_bare)
        return "is the file of another tokenizer?";
    return t->array.type == NPY_U16 ? "is data.dtype uint16 wrong?" : "is data.dtype uint32 wrong?";
}

int tokens_check(const struct tokens *s, const struct tokens_text *t, int64_t first, int64_t n,
                 const int64_t *v, struct err *err)
{
    const uint64_t vocab = (uint64_t)s->base.spec.field[SEQUENCE_TOKENS].n_classes;
    char number[NPY_WHOLE_TEXT];
    uint64_t most = 0;
    int64_t i = 0;

    for (int64_t k = 0; k < n; k++) /* a negative number is larger than any other */
        most = (uint64_t)v[k] > most ? (uint64_t)v[k] : most;
    if (most < vocab)
        return 0;
    while ((uint64_t)v[i] < vocab)
        i++;
    return err_set(err, ERR_CORRUPT,
                   "%s: offset %lld: token %lld is %s, want %sbelow %llu, the vocabulary's size; "
                   "%s, or %s",
                   t->path, (long long)(t->array.offset + (first + i) * (int64_t)token_bytes(t)),
                   (long long)(first + i), npy_whole_text(&t->array, v[i], number),
                   v[i] < 0 && !npy_is_huge(&t->array, v[i]) ? "from 0 to " : "",
                   (unsigned long long)vocab,
                   s->vocab_is_given ? "want the numbers of the imported network's tokenizer"
                                     : "set model.vocab",
                   other_doubt(t));
}

/* ---- files ---- */

static int check_beginning(const struct tokens *s, const struct tokens_text *t, struct err *err)
{
    const int64_t end = min_i64(tokens_count(t), CHECKED_TOKENS);
    int64_t block[TOKENS_BLOCK];
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < end; i += TOKENS_BLOCK) {
        const int64_t n = min_i64(end - i, TOKENS_BLOCK);

        npy_wholes(&t->array, npy_element(&t->array, i), n, block);
        rc = tokens_check(s, t, i, n, block, err);
    }
    return rc;
}

/* The lower and the upper halves of numbers, if those of a bare file are twice as wide as they are
 * read: how many pairs there are, and in how many a half is 0, or at most SMALL.  A vocabulary of
 * up to 2^20 has upper halves of 16 bits up to SMALL. */
struct halves {
    int64_t n, low_zero, low_small, high_zero, high_small;
};

enum {
    LEAST_PAIRS = 32,
    MOST_PAIRS = 1 << 20, /* that are looked at */
    SMALL = 15,
};

static struct halves count_halves(const struct tokens_text *t)
{
    struct halves h = {.n = min_i64(tokens_count(t) / 2, MOST_PAIRS)};
    int64_t block[TOKENS_BLOCK];

    for (int64_t i = 0; i < 2 * h.n; i += TOKENS_BLOCK) {
        const int64_t n = min_i64(2 * h.n - i, TOKENS_BLOCK);

        npy_wholes(&t->array, npy_element(&t->array, i), n, block);
        for (int64_t k = 0; k < n; k += 2) {
            h.low_zero += block[k] == 0;
            h.low_small += block[k] <= SMALL;
            h.high_zero += block[k + 1] == 0;
            h.high_small += block[k + 1] <= SMALL;
        }
    }
    return h;
}

/* 1: nearly all upper halves are small, and lower ones are not.  Numbers that are as wide as they
 * are read are as large at one place as at the other. */
static int are_wider(const struct halves *h)
{
    const int64_t few = h->n / 100; /* so many pairs may be others, such as marks of ends */

    if (h->n < LEAST_PAIRS || h->low_zero == h->n)
        return 0;
    return h->high_zero == h->n || (h->high_zero >= h->n - few && h->low_zero < h->n / 2) ||
           (h->high_small >= h->n - few && h->low_small < h->n * 3 / 4);
}

/* 1: the lower halves are the upper ones of numbers that are big-endian and twice as wide. */
static int are_wider_swapped(const struct halves *h)
{
    return h->n >= LEAST_PAIRS && h->low_small >= h->n - h->n / 100 && h->low_zero >= h->n / 2 &&
           h->high_small < h->n / 2;
}

/* Numbers of a bare file that are below a sixteenth of what 16 bits hold, or below 2^20 of 32 bits:
 * as they are read, and with their bytes swapped.  In texts most token numbers are: the more
 * frequent ones have the lower numbers. */
struct orders {
    int64_t n, as_read, swapped;
};

static struct orders count_orders(const struct tokens_text *t)
{
    const int is_16 = t->array.type == NPY_U16;
    const uint32_t end = is_16 ? (SMALL + 1) << 8 : (SMALL + 1) << 16;
    struct orders o = {.n = min_i64(tokens_count(t), MOST_PAIRS)};
    int64_t block[TOKENS_BLOCK];

    for (int64_t i = 0; i < o.n; i += TOKENS_BLOCK) {
        const int64_t n = min_i64(o.n - i, TOKENS_BLOCK);

        npy_wholes(&t->array, npy_element(&t->array, i), n, block);
        for (int64_t k = 0; k < n; k++) {
            const uint32_t v = (uint32_t)block[k],
                           other = is_16 ? __builtin_bswap16((uint16_t)v) : __builtin_bswap32(v);

            o.as_read += v < end;
            o.swapped += other < end;
        }
    }
    return o;
}

static int check_order(const struct tokens_text *t, struct err *err)
{
    const struct orders o = t->is_bare ? count_orders(t) : (struct orders){0};
    const int bits = 8 * (int)token_bytes(t);

    if (o.n < LEAST_PAIRS || o.swapped < o.n / 2 || o.swapped < 2 * o.as_read)
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "%s: of %lld numbers %lld are below %d as they are read, but %lld are with "
                   "their bytes swapped, as if the file were big-endian; write it anew by "
                   "astype('<u%d').tofile(), or store the numbers by numpy.save()",
                   t->path, (long long)o.n, (long long)o.as_read, bits == 16 ? 1 << 12 : 1 << 20,
                   (long long)o.swapped, bits / 8);
}

static int check_width(const struct tokens_text *t, struct err *err)
{
    const struct halves h = t->is_bare ? count_halves(t) : (struct halves){0};
    const int bits = 8 * (int)token_bytes(t);

    if (are_wider_swapped(&h))
        return err_set(err, ERR_CORRUPT,
                       "%s: nearly every first token is 15 or less, and the ones behind them are "
                       "not, as if big-endian numbers of %d bits were read as %d bits; write the "
                       "file anew by astype('<u4').tofile()%s, or store the numbers by "
                       "numpy.save()",
                       t->path, 2 * bits, bits, bits == 16 ? " and set data.dtype uint32" : "");
    if (!are_wider(&h))
        return 0;
    return err_set(err, ERR_CORRUPT,
                   "%s: %s second token is %s, as if numbers of %d bits were read as %d bits; %s",
                   t->path, h.high_small == h.n ? "every" : "nearly every",
                   h.high_zero >= h.n - h.n / 100 ? "0" : "15 or less", 2 * bits, bits,
                   bits == 16 ? "set data.dtype uint32, or store the numbers by numpy.save()"
                              : "write the file anew with numbers of 32 bits, or by numpy.save()");
}

/* llm.c's header says how wide the tokens are, and how many follow. */
static int tokens_read_header(struct tokens_text *t, uint32_t version, uint32_t want,
                              struct err *err)
{
    const struct mapped *file = &t->array.file;
    const int64_t n = word_at(file->bytes + 8);
    const int64_t holds = ((int64_t)file->n_bytes - HEADER_BYTES) / (int64_t)token_bytes(t);

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
    t->array.offset = HEADER_BYTES;
    t->array.shape = SHAPE(n);
    return 0;
}

/* All of the file is tokens, whose type `says`, such as "data.dtype uint16", gives. */
static int take_all(struct tokens_text *t, const char *says, struct err *err)
{
    const size_t n_bytes = t->array.file.n_bytes;

    t->array.shape = SHAPE((int64_t)(n_bytes / token_bytes(t)));
    if (n_bytes % token_bytes(t))
        return err_set(err, ERR_CORRUPT,
                       "%s: %zu bytes, want a multiple of %zu, the bytes of a token of %s; fetch "
                       "it again",
                       t->path, n_bytes, token_bytes(t), says);
    return 0;
}

static int take_array(struct tokens_text *t, struct err *err)
{
    char text[SHAPE_TEXT_LEN];

    if (npy_parse(&t->array, err) < 0)
        return err_wrap(err, "%s", t->path);
    if (!npy_is_whole(t->array.type) || t->array.type == NPY_BOOL)
        return err_set(err, ERR_CORRUPT,
                       "%s: its numbers are of type %s, want whole numbers, which tokens are; "
                       "convert them with astype()",
                       t->path, npy_type_name(t->array.type));
    if (t->array.shape.n != 1)
        return err_set(err, ERR_CORRUPT,
                       "%s: the array is %s, want [N], one text; store it by "
                       "numpy.save(FILE, a.reshape(-1)), if its rows follow each other",
                       t->path, shape_text(&t->array.shape, text));
    return 0;
}

/* ---- Megatron's files ---- */

enum { MEGATRON_VERSION_AT = 9, MEGATRON_TYPE_AT = 17, MEGATRON_BYTES = 18 };

/* The types of Megatron's index by their numbers (megatron/core/datasets/indexed_dataset.py,
 * DType); NPY_N_TYPES: none of whole numbers. */
static const enum npy_type megatron_types[] = {
    NPY_N_TYPES, NPY_U8, NPY_I8, NPY_I16, NPY_I32, NPY_I64, NPY_N_TYPES, NPY_N_TYPES, NPY_U16};

/* Read the type of the tokens in Megatron's index, whose path is given. */
static int read_index(enum npy_type *type, const struct mapped *index, const char *path,
                      struct err *err)
{
    const uint8_t *b = index->bytes;
    const int code = index->n_bytes >= MEGATRON_BYTES ? b[MEGATRON_TYPE_AT] : 0;

    if (index->n_bytes < MEGATRON_BYTES)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %zu: the index ends, want a header of %d bytes at least; fetch "
                       "it again",
                       path, index->n_bytes, MEGATRON_BYTES);
    if (word_at(b + MEGATRON_VERSION_AT) != 1)
        return err_set(err, ERR_CORRUPT, "%s: offset %d: version %lu of Megatron's index, want 1",
                       path, MEGATRON_VERSION_AT, (unsigned long)word_at(b + MEGATRON_VERSION_AT));
    if (code >= (int)ARRAY_LEN(megatron_types) || megatron_types[code] == NPY_N_TYPES)
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %d: type %d of tokens, want one of whole numbers, 1 to 5 or 8",
                       path, MEGATRON_TYPE_AT, code);
    *type = megatron_types[code];
    return 0;
}

/* 1: the file is NAME.bin, and NAME.idx beside it is Megatron's; *type is the type of its tokens.
 * 0: it is not. */
static int find_index(enum npy_type *type, const char *path, struct err *err)
{
    const size_t len = strlen(path);
    struct mapped index = {0};
    char *name;
    int rc = 0;

    if (len < 4 || strcmp(path + len - 4, ".bin") != 0)
        return 0;
    name = xasprintf("%.*s.idx", (int)(len - 4), path);
    if (access(name, F_OK) == 0)
        rc = mapped_open(&index, name, err);
    if (rc == 0 && foreign_is_megatron(index.bytes, index.n_bytes))
        rc = read_index(type, &index, name, err) < 0 ? err->code : 1;
    mapped_close(&index);
    free(name);
    return rc;
}

/* ---- all kinds ---- */

static int take_bare(struct tokens_text *t, enum width width, const struct dataset_request *request,
                     struct err *err)
{
    const struct mapped *file = &t->array.file;
    const struct foreign *other = foreign_find(file->bytes, file->n_bytes);
    char says[32];

    if (other)
        return err_set(err, ERR_CORRUPT, "%s is no file of bare token numbers, but %s; %s", t->path,
                       other->what, other->remedy);
    if (width == UINT16 && request->vocab > MOST_16)
        return err_set(err, ERR_CONFIG,
                       "%s: data.dtype is uint16, whose numbers are below %d, but model.vocab is "
                       "%lld; set data.dtype uint32 if the file has numbers of 32 bits, or store "
                       "numbers of 16 bits by numpy.save()",
                       t->path, MOST_16, (long long)request->vocab);
    t->is_bare = 1;
    t->array.type = width == UINT16 ? NPY_U16 : NPY_U32;
    snprintf(says, sizeof says, "data.dtype %s", widths[width]);
    return take_all(t, says, err);
}

/* A model with more tokens than the numbers of the file can be is legal, but rarely meant. */
static void doubt_type(const struct tokens_text *t, const struct dataset_request *request)
{
    if (!t->is_bare && token_bytes(t) <= 2 && request->vocab > MOST_16)
        dataset_warn(request,
                     "%s: its numbers are of type %s, below %d, but model.vocab is %lld: most "
                     "tokens are never seen; was the file made by the model's tokenizer?",
                     t->path, npy_type_name(t->array.type), MOST_16, (long long)request->vocab);
}

/* Find where the tokens of the mapped file are, and of which type. */
static int find_tokens(struct tokens_text *t, enum width width,
                       const struct dataset_request *request, struct err *err)
{
    const struct mapped *file = &t->array.file;
    const int may_have_header = file->n_bytes >= HEADER_BYTES;
    const uint32_t magic = may_have_header ? word_at(file->bytes) : 0;
    int rc;

    if (magic == MAGIC_16 || magic == MAGIC_32) {
        t->array.type = magic == MAGIC_16 ? NPY_U16 : NPY_U32;
        return tokens_read_header(t, word_at(file->bytes + 4),
                                  magic == MAGIC_16 ? VERSION_16 : VERSION_32, err);
    }
    if (file->n_bytes >= sizeof NPY_MAGIC && !memcmp(file->bytes, NPY_MAGIC, sizeof NPY_MAGIC - 1))
        return take_array(t, err);
    rc = find_index(&t->array.type, t->path, err);
    if (rc == 0)
        return take_bare(t, width, request, err);
    return rc < 0 ? rc : take_all(t, "Megatron's index beside it", err);
}

static int open_text(struct tokens *s, struct tokens_text *t, enum width width,
                     const struct dataset_request *request, struct err *err)
{
    int64_t n_samples = 0;

    if (mapped_open(&t->array.file, t->path, err) < 0 || find_tokens(t, width, request, err) < 0)
        return err->code;
    if (!s->packs && sequence_samples(&n_samples, &s->base, tokens_count(t), t->path, err) < 0)
        return err->code;
    if (t->array.file.bytes)
        t->array.data = t->array.file.bytes + t->array.offset;
    t->first = s->base.n_samples;
    t->at = s->n_tokens;
    s->base.n_samples += n_samples;
    s->n_tokens += tokens_count(t);
    if (check_width(t, err) < 0 || check_order(t, err) < 0 || check_beginning(s, t, err) < 0)
        return err->code;
    doubt_type(t, request);
    return 0;
}

/* Items are separated by commas. */
static int open_texts(struct tokens *s, const struct tokens_options *o, const char *items,
                      const struct dataset_request *request, struct err *err)
{
    char *all = xstrdup(items), *next = all, *item;
    int rc = 0;

    while (rc == 0 && (item = strsep(&next, ","))) {
        struct tokens_text *t;

        item += strspn(item, " ");
        s->text = xrealloc(s->text, (size_t)(s->n_texts + 1) * sizeof *s->text);
        t = &s->text[s->n_texts++];
        *t = (struct tokens_text){.path = xasprintf("%s/%s", o->path, item)};
        rc = open_text(s, t, o->width, request, err);
    }
    free(all);
    return rc;
}

/* ---- the data set ---- */

/* The text that holds sample i. */
static const struct tokens_text *tokens_holder_of(const struct tokens *s, int64_t i)
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

int tokens_read(const struct tokens *s, const struct tokens_text *t, int64_t first, int64_t n,
                int32_t *to, uint8_t *raw, struct err *err)
{
    int rc = npy_read(&t->array, first, n, raw, err);

    for (int64_t at = 0; rc == 0 && at < n; at += TOKENS_BLOCK) {
        const int64_t len = min_i64(n - at, TOKENS_BLOCK);
        int64_t block[TOKENS_BLOCK];

        npy_wholes(&t->array, raw + at * (int64_t)token_bytes(t), len, block);
        rc = tokens_check(s, t, first + at, len, block, err);
        for (int64_t k = 0; k < len; k++)
            to[at + k] = (int32_t)block[k];
    }
    return rc;
}

static int tokens_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                      struct err *err)
{
    const struct tokens *s = container_of(ds, struct tokens, base);
    const int64_t n = sequence_context(ds);
    uint8_t *raw = (uint8_t *)room + n * (int64_t)sizeof(int32_t);
    const struct tokens_text *t;

    *row = room;
    if (s->packs)
        return tokens_packed_row(s, i, field, room, raw, err);
    t = tokens_holder_of(s, i);
    return tokens_read(s, t, (i - t->first) * n + (field == SEQUENCE_TARGETS), n, room, raw, err);
}

static void tokens_close(struct dataset *ds)
{
    struct tokens *s = container_of(ds, struct tokens, base);

    for (int i = 0; i < s->n_texts; i++) {
        npy_close(&s->text[i].array);
        free(s->text[i].path);
    }
    packing_fini(&s->packing);
    free(s->text);
    free(s);
}

/* The number that data.end_token is; -1: it is none. */
static int64_t tokens_end(const struct tokens_options *o)
{
    const size_t n = o->end ? strlen(o->end) : 0;

    return n == 0 || n > 9 || strspn(o->end, "0123456789") != n ? -1 : atoll(o->end);
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
    s->packs = o->pack;
    s->vocab_is_given = request->vocab_is_given;
    if (sequence_init(&s->base, &tokens_ops, request, request->vocab ? request->vocab : GPT2_VOCAB,
                      err) < 0 ||
        open_texts(s, o, items, request, err) < 0 ||
        (o->pack && tokens_pack(s, tokens_end(o), err) < 0)) {
        tokens_close(&s->base);
        return err_wrap(err, "tokens");
    }
    /* a row, and behind it the same as a file stores it */
    s->base.room_bytes = (size_t)sequence_context(&s->base) * (sizeof(int32_t) + MOST_TOKEN_BYTES);
    *out = &s->base;
    return 0;
}

#define AT(field) offsetof(struct tokens_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help = "The folder of the data on every rank; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), "train.bin", .flags = OPT_MANY,
     .help = "The training files: token numbers, bare, with llm.c's header, as numpy.save() writes "
             "an array [N] of whole numbers, or Megatron's NAME.bin with NAME.idx beside it. "
             "model.context is the number of tokens of a sample, and all tokens are below "
             "model.vocab; if that is 0, they are GPT-2's, below 50257."},
    {"data.validation", OPT_STRING, AT(validation), NULL, .flags = OPT_MANY,
     .help = "The validation files, of the same kind, such as val.bin. Without them, or with none, "
             "nothing is validated."},
    {"data.dtype", OPT_CHOICE, AT(width), "uint16", .choices = widths,
     .help = "The type in which a bare file, without header or index, stores a token, "
             "little-endian."},
    SEQUENCE_PACK_ROW(AT(pack)),
    {"data.end_token", OPT_STRING, AT(end), NULL,
     .help = "With data.pack: the number of the token that ends each document, such as 50256 of "
             "GPT-2's tokenizer."},
};

static int tokens_check_options(const void *options, struct err *err)
{
    const struct tokens_options *o = options;

    if (!o->pack || tokens_end(o) >= 0)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "data.pack is true, but data.end_token is %.60s: want the number of the token "
                   "that ends each document, such as 50256 of GPT-2's tokenizer; or set data.pack "
                   "false",
                   o->end ? o->end : "not there");
}

const struct data_format format_tokens = {
    .group = {.name = "tokens",
              .help = "texts as token numbers: nanoGPT's, llm.c's, NumPy's and Megatron's files",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct tokens_options),
              .check = tokens_check_options},
    .open = tokens_open,
};
