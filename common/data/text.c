/* text - texts: one file, each byte or each character of which is a token; or files that a
 * tokenizer.json makes tokens of (text_tokens.c).
 *
 * Bytes are their own numbers, 256 of them.  Characters are those of UTF-8 that occur in the file,
 * numbered in byte order, which is also the order of their code points: nanoGPT's character model
 * numbers them so.  The last tenth of the tokens validates and the others train, or all train if
 * nothing is validated; the vocabulary is that of the whole file.
 *
 * The file is mapped.  Characters differ in length, so for every PACE-th one its offset is kept; a
 * sample is decoded from the last such place before it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/foreign.h"
#include "data/mapped.h"
#include "data/sequence.h"
#include "data/text_impl.h"
#include "data/token_marks.h"

enum { CODE_POINTS = 0x110000, N_BYTES = 256, PACE = 256 };

enum text_unit { BYTES, CHARS };

static const char *const tokenizers[] = {[BYTES] = "bytes", [CHARS] = "chars", NULL};

static const char *const templates[] = {CHAT_FORM_WORDS, NULL};

static const char *const too_longs[] = {[TEXT_CUT] = "cut", [TEXT_REFUSE] = "refuse", NULL};

struct text {
    struct dataset base;
    struct mapped file;
    enum text_unit tokenizer;
    int64_t n_tokens;
    int64_t first;   /* of this part's tokens: training's 0, validation's after nine tenths */
    int32_t *number; /* CHARS: [CODE_POINTS] the token of each code point; 0 where none */
    uint64_t *place; /* CHARS: the offset of every PACE-th character */
    int64_t n_places;
    int64_t vocab;
};

/* ---- characters ---- */

static int text_continues(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Read the UTF-8 character at p, where n >= 1 bytes are.  Returns how many bytes it has, or 0 if
 * there is no valid character; *code: its code point. */
static size_t char_at(const uint8_t *p, size_t n, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* by length */
    const size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (len == 0 || len > n || p[0] > 0xf4)
        return 0;
    *code = len == 1 ? p[0] : p[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if (!text_continues(p[i]))
            return 0;
        *code = *code << 6 | (p[i] & 0x3f);
    }
    if (*code < least[len] || *code >= CODE_POINTS || (*code >= 0xd800 && *code < 0xe000))
        return 0;
    return len;
}

static int keep_place(struct text *t, uint64_t offset, struct err *err)
{
    if ((t->n_places & (t->n_places - 1)) == 0 &&
        try_realloc((void **)&t->place, (size_t)max_i64(2 * t->n_places, 64) * sizeof *t->place,
                    "places in a text", err) < 0)
        return err->code;
    t->place[t->n_places++] = offset;
    return 0;
}

/* A remedy, if the file begins with the byte order mark of UTF-16 or UTF-32; else "". */
static const char *remedy_of_mark(const struct text *t)
{
    static const struct {
        const char *mark;
        size_t len;
        const char *remedy;
    } marks[] = {
        {"\xff\xfe\0\0", 4, ", which is in UTF-32 (iconv -f UTF-32 -t UTF-8)"},
        {"\0\0\xfe\xff", 4, ", which is in UTF-32 (iconv -f UTF-32 -t UTF-8)"},
        {"\xff\xfe", 2, ", which is in UTF-16 (iconv -f UTF-16 -t UTF-8)"},
        {"\xfe\xff", 2, ", which is in UTF-16 (iconv -f UTF-16 -t UTF-8)"},
    };

    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (t->file.n_bytes >= marks[i].len && !memcmp(t->file.bytes, marks[i].mark, marks[i].len))
            return marks[i].remedy;
    return "";
}

/* Find all characters: how many there are, which ones, and the places of some. */
static int text_scan(struct text *t, struct err *err)
{
    uint32_t code;
    size_t len;

    for (size_t at = 0; at < t->file.n_bytes; at += len, t->n_tokens++) {
        len = char_at(t->file.bytes + at, t->file.n_bytes - at, &code);
        if (len == 0)
            return err_set(err, ERR_CORRUPT,
                           "offset %zu: byte 0x%02x begins no character of UTF-8; convert the "
                           "file%s, or set data.tokenizer bytes",
                           at, t->file.bytes[at], remedy_of_mark(t));
        t->number[code] = 1;
        if (t->n_tokens % PACE == 0 && keep_place(t, at, err) < 0)
            return err->code;
    }
    return 0;
}

static int number_chars(struct text *t, struct err *err)
{
    if (try_alloc((void **)&t->number, CODE_POINTS * sizeof *t->number, "the characters of a text",
                  err) < 0 ||
        text_scan(t, err) < 0)
        return err->code;
    for (int i = 0; i < CODE_POINTS; i++)
        if (t->number[i])
            t->number[i] = (int32_t)t->vocab++;
    return 0;
}

/* The most bytes that must be read for n characters: a character has up to 4 bytes, and up to PACE
 * characters lie between the nearest place whose offset is kept and the first of the n. */
static size_t most_bytes(int64_t n) { return 4 * (size_t)(n + PACE); }

/* Read n characters from number `first` on.  raw has room for most_bytes(n). */
static int read_chars(const struct text *t, int64_t first, int64_t n, uint8_t *raw, int32_t *to,
                      struct err *err)
{
    const size_t offset = t->place[first / PACE], left = t->file.n_bytes - offset,
                 n_bytes = left < most_bytes(n) ? left : most_bytes(n);
    size_t at = 0;
    uint32_t code;

    if (mapped_read(&t->file, offset, raw, n_bytes, err) < 0)
        return err->code;
    for (int64_t i = -(first % PACE); i < n; i++) {
        const size_t len = at < n_bytes ? char_at(raw + at, n_bytes - at, &code) : 0;

        if (len == 0) /* scan found one */
            return err_set(err, ERR_CORRUPT,
                           "file %s: offset %zu: there is no character of UTF-8 any more; data "
                           "must not change during training",
                           t->file.path, offset + at);
        at += len;
        if (i >= 0)
            to[i] = t->number[code];
    }
    return 0;
}

static int text_read_bytes(const struct text *t, int64_t first, int64_t n, int32_t *to,
                           struct err *err)
{
    uint8_t *raw = (uint8_t *)to + 3 * n; /* the end of the same memory */

    if (mapped_read(&t->file, (size_t)first, raw, (size_t)n, err) < 0)
        return err->code;
    for (int64_t k = 0; k < n; k++)
        to[k] = raw[k];
    return 0;
}

/* ---- the data set ---- */

static int text_row(const struct dataset *ds, int64_t i, int field, void *room, const void **row,
                    struct err *err)
{
    const struct text *t = container_of(ds, struct text, base);
    const int64_t n = sequence_context(ds);
    const int64_t first = t->first + i * n + (field == SEQUENCE_TARGETS);
    int32_t *to = room;

    *row = room;
    return t->tokenizer == CHARS ? read_chars(t, first, n, (uint8_t *)(to + n), to, err)
                                 : text_read_bytes(t, first, n, to, err);
}

static void text_close(struct dataset *ds)
{
    struct text *t = container_of(ds, struct text, base);

    mapped_close(&t->file);
    free(t->number);
    free(t->place);
    free(t);
}

static const struct dataset_ops text_ops = {.name = "text", .row = text_row, .close = text_close};

static int text_tokenize(struct text *t, struct err *err)
{
    if (t->tokenizer == CHARS)
        return number_chars(t, err);
    t->n_tokens = (int64_t)t->file.n_bytes;
    t->vocab = N_BYTES;
    return 0;
}

/* The model may have more tokens than the text, but not fewer. */
static int check_vocab(const struct text *t, const struct dataset_request *request, struct err *err)
{
    if (request->vocab == 0 || request->vocab >= t->vocab)
        return 0;
    return err_set(err, ERR_CONFIG,
                   "model.vocab is %lld, want at least %lld, as many as the text's %s; or leave it "
                   "out",
                   (long long)request->vocab, (long long)t->vocab,
                   t->tokenizer == CHARS ? "characters" : "bytes may be");
}

/* The bytes of a file of another kind are legal tokens, but rarely meant. */
static void doubt_kind(const struct text *t, const struct dataset_request *request)
{
    const struct foreign *other = foreign_find(t->file.bytes, t->file.n_bytes);

    if (t->tokenizer == BYTES && other && !other->is_text)
        dataset_warn(request,
                     "%s is no text, but %s: with data.tokenizer bytes its bytes are trained as "
                     "they are; want the text itself",
                     t->file.path, other->what);
}

/* 1: no text has it. */
static int text_is_control_word(uint32_t code)
{
    return code < 0x20 && !(code >= '\t' && code <= '\r');
}

/* 1: each four of the first n bytes are a code point, in one byte order. */
static int is_in_32(const uint8_t *b, size_t n)
{
    int is_little = 1, is_big = 1;

    for (size_t at = 0; at + 4 <= n && (is_little || is_big); at += 4) {
        uint32_t code = b[at] | (uint32_t)b[at + 1] << 8 | (uint32_t)b[at + 2] << 16 |
                        (uint32_t)b[at + 3] << 24;

        is_little &= code < CODE_POINTS && !text_is_control_word(code);
        code = __builtin_bswap32(code);
        is_big &= code < CODE_POINTS && !text_is_control_word(code);
    }
    return is_little || is_big;
}

/* The first byte of the first n that begins no character of UTF-8; n: there is none, or a control
 * character comes first, so that this is no text. */
static size_t find_other_encoding(const struct text *t, size_t n)
{
    const uint8_t *b = t->file.bytes;
    uint32_t code;
    size_t len;

    for (size_t at = 0; at < n; at += len) {
        len = char_at(b + at, t->file.n_bytes - at, &code);
        if (len == 0)
            return at;
        if (text_is_control_word(code))
            return n;
    }
    return n;
}

/* Texts in other encodings are legal as bytes, and those in UTF-16 and UTF-32 often as characters,
 * too. */
static void doubt_encoding(const struct text *t, const struct dataset_request *request)
{
    enum { MOST_LOOKED = 1 << 20, LEAST_TEXT = 64 };
    const size_t n = t->file.n_bytes < MOST_LOOKED ? t->file.n_bytes : MOST_LOOKED;
    size_t n_zero = 0, other;
    int is_32;

    if (n < LEAST_TEXT || foreign_find(t->file.bytes, t->file.n_bytes))
        return;
    for (size_t i = 0; i < n; i++)
        n_zero += t->file.bytes[i] == 0;
    other = find_other_encoding(t, n);
    is_32 = is_in_32(t->file.bytes, n);
    if (is_32 || (n_zero > n / 3 && n_zero < n / 2 + 2))
        dataset_warn(request,
                     "%s: of %zu bytes %zu are 0, as in UTF-%d, whose bytes would be trained as "
                     "they are; convert the file (iconv -f UTF-%d -t UTF-8)",
                     t->file.path, n, n_zero, is_32 ? 32 : 16, is_32 ? 32 : 16);
    else if (t->tokenizer == BYTES && other < n)
        dataset_warn(request,
                     "%s: offset %zu: byte 0x%02x begins no character of UTF-8; with "
                     "data.tokenizer bytes it is trained as it is; if the text is in Latin-1 or "
                     "the like, convert it (iconv -f LATIN1 -t UTF-8)",
                     t->file.path, other, t->file.bytes[other]);
}

static int open_part(struct text *t, const struct dataset_request *request,
                     const struct text_options *o, struct err *err)
{
    const int is_train = request->purpose == DATASET_TRAIN,
              is_cut = !strcmp(o->validation, TEXT_LAST_TENTH);
    const char *const what = !is_train ? "the last tenth of the text"
                             : is_cut  ? "the first nine tenths of the text"
                                       : "the text";
    int64_t n_train, n_samples;

    if (mapped_open(&t->file, o->path, err) < 0)
        return err->code;
    if (text_tokenize(t, err) < 0)
        return err_wrap(err, "%s", o->path);
    if (is_train) {
        doubt_kind(t, request);
        doubt_encoding(t, request);
    }
    if (check_vocab(t, request, err) < 0 ||
        sequence_init(&t->base, &text_ops, request, max_i64(request->vocab, t->vocab), err) < 0)
        return err->code;
    n_train = is_cut ? t->n_tokens / 10 * 9 + t->n_tokens % 10 * 9 / 10 : t->n_tokens;
    t->first = is_train ? 0 : n_train;
    if (sequence_samples(&n_samples, &t->base, is_train ? n_train : t->n_tokens - n_train, what,
                         err) < 0)
        return err_wrap(err, "%s", o->path);
    t->base.n_samples = n_samples;
    t->base.room_bytes += t->tokenizer == CHARS ? most_bytes(sequence_context(&t->base)) : 0;
    return 0;
}

/* 1: the tokens are those of a tokenizer.json. */
static int text_has_tokenizer(const struct text_options *o) { return *o->tokenizer == '/'; }

/* Pairs of answers are rows of a tokenizer's tokens. */
static int text_check_pairs(const struct text_options *o, const struct dataset_request *request,
                            struct err *err)
{
    if (!request->wants_pairs)
        return 0;
    if (!text_has_tokenizer(o))
        return err_set(err, ERR_CONFIG,
                       "model.loss dpo compares two answers to a prompt, but data.tokenizer is %s, "
                       "whose text has none; want data.tokenizer FILE, and .jsonl files with "
                       "\"prompt\", \"chosen\" and \"rejected\"",
                       o->tokenizer);
    if (o->pack)
        return err_set(err, ERR_CONFIG,
                       "data.pack is true, but model.loss dpo compares two texts, each in a row of "
                       "its own; want data.pack false");
    return 0;
}

static int text_open(struct dataset **out, const void *options,
                     const struct dataset_request *request, struct err *err)
{
    const struct text_options *o = options;
    struct text *t;

    if (text_check_pairs(o, request, err) < 0)
        return err_wrap(err, "text");
    if (text_has_tokenizer(o))
        return text_tokens_open(out, o, request, err) < 0 ? err_wrap(err, "text") : 0;
    t = xcalloc(1, sizeof *t);
    t->tokenizer = strcmp(o->tokenizer, tokenizers[BYTES]) != 0 ? CHARS : BYTES;
    if (open_part(t, request, o, err) < 0) {
        text_close(&t->base);
        return err_wrap(err, "text");
    }
    *out = &t->base;
    return 0;
}

static int text_prepare(const void *options, const struct dataset_request *request, struct err *err)
{
    if (text_check_pairs(options, request, err) < 0)
        return err->code;
    return text_has_tokenizer(options) ? text_tokens_prepare(options, request, err) : 0;
}

/* Bytes and characters are of one file. */
static int text_check(const void *options, struct err *err)
{
    const struct text_options *o = options;
    const char *const key = o->train                     ? "data.train"
                            : o->end_token               ? "data.end_token"
                            : o->cache                   ? "data.cache"
                            : o->pack                    ? "data.pack"
                            : o->form != CHAT_AUTO       ? "data.template"
                            : o->too_long == TEXT_REFUSE ? "data.too_long"
                                                         : NULL;

    if (text_has_tokenizer(o))
        return 0;
    if (key)
        return err_set(err, ERR_CONFIG,
                       "%s is for data.tokenizer FILE, a tokenizer.json; it is %s, whose text is "
                       "the one file data.path",
                       key, o->tokenizer);
    if (!strcmp(o->validation, TEXT_LAST_TENTH) || !strcmp(o->validation, DATASET_WORD_NONE))
        return 0;
    return err_set(err, ERR_CONFIG,
                   "data.validation is %s, but data.format text with data.tokenizer %s validates "
                   "by a part of its one file: want " TEXT_LAST_TENTH " or " DATASET_WORD_NONE
                   "; over a job file of another format, --set data.validation=" TEXT_LAST_TENTH,
                   o->validation, o->tokenizer);
}

#define AT(field) offsetof(struct text_options, field)

static const struct option rows[] = {
    {"data.path", OPT_PATH, AT(path), NULL, .flags = OPT_REQUIRED | OPT_RESUME,
     .help =
         "The text on every rank, a file or, with data.tokenizer FILE, a folder of .txt and "
         ".jsonl files, those in its folders included; a follower's --data overrides it there."},
    {"data.train", OPT_STRING, AT(train), NULL, .flags = OPT_MANY,
     .help = "With data.tokenizer FILE: the files and folders within data.path that train; without "
             "it, all of data.path trains."},
    {"data.validation", OPT_STRING, AT(validation), TEXT_LAST_TENTH, .flags = OPT_MANY,
     .help = "last_tenth: the last tenth of the text validates, and the rest trains; none: the "
             "whole text trains, and nothing is validated; with data.tokenizer FILE also files and "
             "folders, within data.path or beside the file that it is."},
    {"data.tokenizer", OPT_PATH, AT(tokenizer), "chars", .choices = tokenizers,
     .help = "The tokens of a text: its bytes; its characters of UTF-8, numbered in byte order; or "
             "those of a tokenizer.json, the file or a folder that holds one, on every rank. "
             "Without it, that of model.import FOLDER, if it has one. Texts are made tokens once, "
             "into a file that all ranks and runs of the machine share."},
    {"data.end_token", OPT_STRING, AT(end_token), NULL,
     .help =
         "With data.tokenizer FILE: the text of the token that ends a document; " TOKEN_MARKS_NONE
         ": no token does. Without it, the files beside the tokenizer say (eos_token of "
         "tokenizer_config.json, or eos_token_id of generation_config.json or config.json)."},
    SEQUENCE_PACK_ROW(AT(pack)),
    {"data.template", OPT_CHOICE, AT(form), "auto", .choices = templates,
     .help = "The form in which conversations (messages in .jsonl files) become texts; auto: the "
             "chat_template beside the tokenizer says, if it is one of these."},
    {"data.too_long", OPT_CHOICE, AT(too_long), "cut", .choices = too_longs,
     .help = "Prompts and conversations with more tokens than model.context: cut them at their "
             "end, and a warning tells how many, or refuse the data."},
    {"data.cache", OPT_PATH, AT(cache), NULL, .flags = OPT_RESUME,
     .help = "With data.tokenizer FILE: the folder for the file of tokens. Without it, that is the "
             "folder of the data, or, if it cannot be written, $XDG_CACHE_HOME/dptrain or "
             "~/.cache/dptrain."},
};

const struct data_format format_text = {
    .group = {.name = "text",
              .help = "texts, by bytes, characters or a tokenizer.json",
              .option = rows,
              .n_options = ARRAY_LEN(rows),
              .size = sizeof(struct text_options),
              .check = text_check},
    .open = text_open,
    .prepare = text_prepare,
};
