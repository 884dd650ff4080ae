/* Files of tokens of all kinds: those that say their type are read by it, those of other formats
 * are refused by name, and numbers that are wider than they are read as are noticed. */
#include "../test.h"

#include "idx_file.h"
#include "sequence_set.h"

/* Write NAME: the bytes `head`, and n numbers of n_bytes each, from `first` on. */
static void write_numbers(const char *folder, const char *name, const char *head, size_t head_len,
                          const int64_t *v, int n, int n_bytes)
{
    struct buf b = {0};

    buf_append(&b, head, head_len);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_bytes; k++)
            buf_append(&b, &(uint8_t){(uint8_t)((uint64_t)v[i] >> 8 * k)}, 1);
    write_file(folder, name, &b);
    buf_fini(&b);
}

static char told[1024];

static void tell(void *arg, const char *text)
{
    (void)arg;
    snprintf(told, sizeof told, "%s", text);
}

#define NPY(descr, shape) \
    "\x93NUMPY\1\0\71\0{'descr': '" descr "', 'fortran_order': False, 'shape': " shape "}"
#define INDEX(code) "MMIDIDX\0\0\1\0\0\0\0\0\0\0" code
#define BYTES(text) text, sizeof(text) - 1

/* The numbers are read whatever the file's own type is; `says` is the head of the file, or of the
 * index beside it.  data.dtype is uint16. */
static const struct typed {
    const char *says;
    size_t says_len;
    int n_bytes;
    int64_t vocab;
    int64_t v[5];
    const char *want; /* NULL: they are read; else the message, @ is the folder */
    const char *told;
} typed[] = {
    {BYTES(NPY("|u1", "(5,)  ")), 1, 0, {7, 0, 255, 3, 1}, NULL, ""},
    {BYTES(NPY("<u2", "(5,)  ")), 2, 0, {50256, 1, 2, 3, 4}, NULL, ""},
    {BYTES(NPY("<i4", "(5,)  ")), 4, 128256, {128255, 1, 65536, 3, 4}, NULL, ""},
    {BYTES(NPY("<i8", "(5,)  ")), 8, 128256, {128255, 1, 65536, 3, 4}, NULL, ""},
    {BYTES(NPY("<u2", "(5,)  ")),
     2,
     128256,
     {50256, 1, 2, 3, 4},
     NULL,
     "@/a.bin: its numbers are of type <u2, below 65536, but model.vocab is 128256: most tokens "
     "are never seen; was the file made by the model's tokenizer?"},
    {BYTES(NPY("<i8", "(5,)  ")),
     8,
     0,
     {1, -100, 2, 3, 4},
     "tokens: @/a.bin: offset 75: token 1 is -100, want from 0 to below 50257, the vocabulary's "
     "size; set model.vocab, or is the file of another tokenizer?",
     ""},
    {BYTES(NPY("<u8", "(5,)  ")),
     8,
     0,
     {1, -100, 2, 3, 4},
     "tokens: @/a.bin: offset 75: token 1 is 18446744073709551516, want below 50257, the "
     "vocabulary's size; set model.vocab, or is the file of another tokenizer?",
     ""},
    {BYTES(NPY("<i8", "(5,)  ")),
     8,
     0,
     {1, INT64_C(1) << 32, 2, 3, 4},
     "tokens: @/a.bin: offset 75: token 1 is 4294967296, want below 50257, the vocabulary's size; "
     "set model.vocab, or is the file of another tokenizer?",
     ""},
    {BYTES(NPY("<f4", "(5,)  ")),
     4,
     0,
     {0},
     "tokens: @/a.bin: its numbers are of type <f4, want whole numbers, which tokens are; convert "
     "them with astype()",
     ""},
    {BYTES(NPY("<i8", "(1, 5)")),
     8,
     0,
     {0},
     "tokens: @/a.bin: the array is [1,5], want [N], one text; store it by numpy.save(FILE, "
     "a.reshape(-1)), if its rows follow each other",
     ""},
    {BYTES(NPY("<i8", "(6,)  ")),
     8,
     0,
     {0},
     "tokens: @/a.bin: offset 67: 40 bytes follow the header, want 48, as many as [6] of <i8; was "
     "it copied whole?",
     ""},
    {BYTES(INDEX("\1")), 1, 0, {7, 0, 255, 3, 1}, NULL, ""},
    {BYTES(INDEX("\4")), 4, 128256, {128255, 1, 65536, 3, 4}, NULL, ""},
    {BYTES(INDEX("\5")), 8, 128256, {128255, 1, 65536, 3, 4}, NULL, ""},
    {BYTES(INDEX("\10")), 2, 0, {50256, 1, 2, 3, 4}, NULL, ""},
    {BYTES(INDEX("\7")),
     4,
     0,
     {0},
     "tokens: @/a.idx: offset 17: type 7 of tokens, want one of whole numbers, 1 to 5 or 8",
     ""},
    {BYTES(INDEX("\11")),
     4,
     0,
     {0},
     "tokens: @/a.idx: offset 17: type 9 of tokens, want one of whole numbers, 1 to 5 or 8",
     ""},
    {BYTES(INDEX("")),
     4,
     0,
     {0},
     "tokens: @/a.idx: offset 17: the index ends, want a header of 18 bytes at least; fetch it "
     "again",
     ""},
    {BYTES("MMIDIDX\0\0\2\0\0\0\0\0\0\0\4"),
     4,
     0,
     {0},
     "tokens: @/a.idx: offset 9: version 2 of Megatron's index, want 1",
     ""},
    {BYTES(INDEX("\5")),
     1,
     0,
     {0},
     "tokens: @/a.bin: 5 bytes, want a multiple of 8, the bytes of a token of Megatron's index "
     "beside it; fetch it again",
     ""},
    {BYTES("another index, of 18 bytes or more"), 2, 0, {1, 2, 3, 4, 5}, NULL, ""},
};

static void files_say_their_type(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {"data.train", "a.bin"}, {NULL}};

    for (size_t i = 0; i < ARRAY_LEN(typed); i++) {
        const struct typed *c = &typed[i];
        const int is_array = c->says[0] == '\x93';
        struct dataset_request r = request(DATASET_TRAIN, 4, c->vocab);
        struct dataset *ds = NULL;
        struct err err = {0};
        int32_t x[4], y[4];
        char want[1024];

        r.warn = tell;
        told[0] = 0;
        write_numbers(*state, "a.bin", c->says, is_array ? c->says_len : 0, c->v, 5, c->n_bytes);
        write_numbers(*state, "a.idx", c->says, is_array ? 0 : c->says_len, NULL, 0, 0);
        if (c->want) {
            assert_true(open_set(&ds, &format_tokens, settings, &r, &err) < 0);
            assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, *state));
            continue;
        }
        ds = open_ok(&format_tokens, settings, r);
        assert_string_equal(told, fill_in(want, sizeof want, c->told, *state));
        assert_int_equal(ds->n_samples, 1);
        assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, y}, &err), 0);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(x[k], c->v[k]);
            assert_int_equal(y[k], c->v[k + 1]);
        }
        dataset_close(ds);
    }
}

static const struct other_kind {
    const char *head; /* zeroes follow, or 600 bytes of `fill` */
    size_t head_len;
    char fill;
    const char *want;
} other_kinds[] = {
    {BYTES("PK\3\4\24\0"), 0,
     "a zip archive (numpy.savez()'s .npz, torch.save()'s .pt); store its token numbers by "
     "numpy.save()"},
    {BYTES(INDEX("\4")), 0, "the index of Megatron's data; name the file .bin beside it"},
    {BYTES("\x80\2\x8a\nl\xfc\x9c"
           "F\xf9 j\xa8P\x19.\x80\2"),
     0, "a file of torch.save(), of the old kind; store its token numbers by numpy.save()"},
    {BYTES("PAR1\25\4"), 0, "a Parquet file; store its token numbers by numpy.save()"},
    {BYTES("ARROW1\0\0"), 0, "an Arrow file; store its token numbers by numpy.save()"},
    {BYTES("\xff\xff\xff\xff\xf0\1\0\0"), 0,
     "a stream of Arrow; store its token numbers by numpy.save()"},
    {BYTES("\x89HDF\r\n\x1a\n"), 0, "an HDF5 file; store its token numbers by numpy.save()"},
    {BYTES("\x80\2]q\0"), '.', "a pickle of Python; store its token numbers by numpy.save()"},
    {BYTES("\x80\4\x95\27\0"), '.', "a pickle of Python; store its token numbers by numpy.save()"},
    {BYTES("\30\0\0\0\0\0\0\0{\"ids\":{\"dtype\":\"I64\"}} "), 0,
     "a file of safetensors; store its token numbers by numpy.save()"},
    {BYTES("GGUF\3\0\0\0"), 0, "a model in GGUF; name the file of token numbers"},
    {BYTES("\x1f\x8b\b\0\0\0\0\0\0\3"), 0, "compressed by gzip; unpack it"},
    {BYTES("\x28\xb5\x2f\xfd\4\0"), 0, "compressed by zstd; unpack it"},
    {BYTES("\xfd\67zXZ\0"), 0, "compressed by xz; unpack it"},
    {BYTES("BZh91AY&SY"), 0, "compressed by bzip2; unpack it"},
    {BYTES("To be, or not to be\r\n"), 'a',
     "plain text; data.format: text reads it, or store its token numbers by numpy.save()"},
    {BYTES("{\"text\": \"Gr\xc3\xbc\xc3\x9f"), 'e',
     "plain text; data.format: text reads it, or store its token numbers by numpy.save()"},
};

/* As a text of bytes the file is read, but the user is told. */
static void check_told_as_text(const char *folder, const struct other_kind *c)
{
    char *path = xasprintf("%s/train.bin", folder), want[1024] = "";
    const struct setting settings[] = {{"data.path", path}, {"data.tokenizer", "bytes"}, {NULL}};
    struct dataset_request r = request(DATASET_TRAIN, 4, 0);

    r.warn = tell;
    told[0] = 0;
    dataset_close(open_ok(&format_text, settings, r));
    if (strncmp(c->want, "plain text", 10) != 0)
        snprintf(want, sizeof want,
                 "%s is no text, but %.*s: with data.tokenizer bytes its bytes are trained as they "
                 "are; want the text itself",
                 path, (int)strcspn(c->want, ";"), c->want);
    assert_string_equal(told, want);
    free(path);
}

/* They are no bare numbers of 16 or 32 bits. */
static void files_of_other_kinds_are_named(void **state)
{
    char want[1024];

    for (size_t i = 0; i < 2 * ARRAY_LEN(other_kinds); i++) {
        const struct other_kind *c = &other_kinds[i / 2];
        const struct setting settings[] = {
            {"data.path", *state}, {"data.dtype", i % 2 ? "uint32" : "uint16"}, {NULL}};
        const struct dataset_request r = request(DATASET_TRAIN, 4, 0);
        struct dataset *ds = NULL;
        struct err err = {0};
        struct buf b = {0};

        buf_append(&b, c->head, c->head_len);
        memset(buf_reserve(&b, 600), c->fill, 600);
        b.len += 600;
        write_file(*state, "train.bin", &b);
        buf_fini(&b);
        if (open_set(&ds, &format_tokens, settings, &r, &err) != ERR_CORRUPT)
            fail_msg("it is read, want: %s", c->want);
        snprintf(want, sizeof want, "tokens: %s/train.bin is no file of bare token numbers, but %s",
                 (char *)*state, c->want);
        assert_string_equal(err.msg, want);
        check_told_as_text(*state, c);
    }
}

/* Numbers whose i-th upper half of `n_bits` bits, and whose other half, are these; `want` NULL:
 * they are as wide as data.dtype says. */
static const struct pairs {
    const char *dtype;
    int64_t vocab;
    int high_below, high_other, one_in; /* the upper halves: below that, and one in so many other */
    int low_below;
    const char *want;
} pairs[] = {
    {"uint16", 65536, 2, 0, 0, 65536,
     "every second token is 15 or less, as if numbers of 32 bits were read as 16 bits; set "
     "data.dtype uint32, or store the numbers by numpy.save()"}, /* Llama 3's */
    {"uint16", 65536, 16, 0, 0, 65536,
     "every second token is 15 or less, as if numbers of 32 bits were read as 16 bits; set "
     "data.dtype uint32, or store the numbers by numpy.save()"},
    {"uint16", 65536, 1, 999, 200, 65,
     "nearly every second token is 0, as if numbers of 32 bits were read as 16 bits; set "
     "data.dtype uint32, or store the numbers by numpy.save()"},
    {"uint16", 65536, 2, 999, 200, 65536,
     "nearly every second token is 15 or less, as if numbers of 32 bits were read as 16 bits; set "
     "data.dtype uint32, or store the numbers by numpy.save()"},
    {"uint16", 65536, 2, 999, 50, 65536, NULL},
    {"uint16", 65536, 16, 0, 0, 16, NULL}, /* digits */
    {"uint16", 65536, 2, 0, 0, 2, NULL},
    {"uint16", 65536, 65, 0, 0, 65, NULL},
    {"uint32", 1 << 20, 2, 0, 0, 65536,
     "every second token is 15 or less, as if numbers of 64 bits were read as 32 bits; write the "
     "file anew with numbers of 32 bits, or by numpy.save()"},
};

static void nearly_all_upper_halves_tell(void **state)
{
    enum { N = 2000 };

    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        const struct pairs *c = &pairs[i];
        const struct setting settings[] = {{"data.path", *state}, {"data.dtype", c->dtype}, {NULL}};
        const struct dataset_request r = request(DATASET_TRAIN, 4, c->vocab);
        struct dataset *ds = NULL;
        struct err err = {0};
        int64_t v[2 * N];
        uint32_t h = 1;
        char want[1024];

        for (int k = 0; k < N; k++) {
            h = h * 1664525 + 1013904223; /* Numerical Recipes' generator: its upper bits serve */
            v[2 * k] = (h >> 8) % (uint32_t)c->low_below;
            h = h * 1664525 + 1013904223;
            v[2 * k + 1] = (h >> 8) % (uint32_t)c->high_below;
            if (c->one_in && k % c->one_in == 0)
                v[2 * k + 1] = c->high_other;
        }
        write_numbers(*state, "train.bin", "", 0, v, 2 * N, c->dtype[4] == '1' ? 2 : 4);
        if (!c->want) {
            dataset_close(open_ok(&format_tokens, settings, r));
            continue;
        }
        assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), ERR_CORRUPT);
        snprintf(want, sizeof want, "tokens: %s/train.bin: %s", (char *)*state, c->want);
        assert_string_equal(err.msg, want);
    }
}

/* Big-endian files of numbers below `below`, but for one in five, which is below `rest`.  `want` is
 * a part of the message; NULL: the file may be either, so it is read. */
static const struct swapped {
    int n_bytes, below, rest;
    const char *dtype, *want;
} swapped[] = {
    {2, 65, 65, "uint16",
     "of 2000 numbers 467 are below 4096 as they are read, but 2000 are with their bytes swapped, "
     "as if the file were big-endian; write it anew by astype('<u2').tofile(), or store the "
     "numbers by numpy.save()"},
    {2, 4000, 50257, "uint16", "are with their bytes swapped, as if the file were big-endian"},
    {2, 65536, 65536, "uint16", NULL},
    {2, 16, 16, "uint16", NULL},
    {4, 4000, 128256, "uint32",
     "with their bytes swapped, as if the file were big-endian; write it anew by "
     "astype('<u4').tofile(), or store the numbers by numpy.save()"},
    {4, 4000, 50257, "uint16",
     "nearly every first token is 15 or less, and the ones behind them are not, as if big-endian "
     "numbers of 32 bits were read as 16 bits; write the file anew by astype('<u4').tofile() and "
     "set data.dtype uint32, or store the numbers by numpy.save()"},
    {8, 4000, 128256, "uint32",
     "as if big-endian numbers of 64 bits were read as 32 bits; write the file anew by "
     "astype('<u4').tofile(), or store the numbers by numpy.save()"},
};

static void big_endian_files_are_refused(void **state)
{
    enum { N = 2000 };

    for (size_t i = 0; i < 2 * ARRAY_LEN(swapped); i++) {
        const struct swapped *c = &swapped[i / 2];
        const int is_swapped = i % 2, as_16 = c->dtype[4] == '1',
                  is_wider = c->n_bytes > (as_16 ? 2 : 4);
        const struct setting settings[] = {{"data.path", *state}, {"data.dtype", c->dtype}, {NULL}};
        const struct dataset_request r = request(DATASET_TRAIN, 4, as_16 ? 65536 : 1 << 30);
        struct dataset *ds = NULL;
        struct err err = {0};
        int64_t v[N];
        uint32_t h = 1;

        for (int k = 0; k < N; k++) {
            h = h * 1664525 + 1013904223;
            v[k] = (h >> 8) % (uint32_t)(k % 5 ? c->below : c->rest);
            if (is_swapped)
                v[k] = (int64_t)(__builtin_bswap64((uint64_t)v[k]) >> (64 - 8 * c->n_bytes));
        }
        write_numbers(*state, "train.bin", "", 0, v, N, c->n_bytes);
        if (is_swapped ? !c->want : !is_wider) {
            dataset_close(open_ok(&format_tokens, settings, r));
            continue;
        }
        assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), ERR_CORRUPT);
        if (is_swapped && !strstr(err.msg, c->want))
            fail_msg("%s, want %s", err.msg, c->want);
    }
}

/* Texts that are not in UTF-8, of 64 bytes or more; their bytes are legal tokens. */
static void other_encodings_are_told(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        const char *tokenizer, *told, *refused;
    } cases[] = {
        {BYTES("caf\xe9"), "bytes",
         "@/t: offset 3: byte 0xe9 begins no character of UTF-8; with data.tokenizer bytes it is "
         "trained as it is; if the text is in Latin-1 or the like, convert it (iconv -f LATIN1 -t "
         "UTF-8)",
         NULL},
        {BYTES("caf\xe9"), "chars", "",
         "text: @/t: offset 3: byte 0xe9 begins no character of UTF-8; convert the file, or set "
         "data.tokenizer bytes"},
        {BYTES("caf\xc3\xa9"), "bytes", "", NULL},
        {BYTES("\1\2\xe9"), "bytes", "", NULL}, /* no text */
        {BYTES("\xff\xfeh\0"), "chars", "",
         "text: @/t: offset 0: byte 0xff begins no character of UTF-8; convert the file, which is "
         "in UTF-16 (iconv -f UTF-16 -t UTF-8), or set data.tokenizer bytes"},
        {BYTES("h\0i\0"), "chars",
         "@/t: of 400 bytes 200 are 0, as in UTF-16, whose bytes would be trained as they are; "
         "convert the file (iconv -f UTF-16 -t UTF-8)",
         NULL},
        {BYTES("h\0i\0"), "bytes",
         "@/t: of 400 bytes 200 are 0, as in UTF-16, whose bytes would be trained as they are; "
         "convert the file (iconv -f UTF-16 -t UTF-8)",
         NULL},
        {BYTES("h\0\0\0i\0\0\0"), "bytes",
         "@/t: of 800 bytes 600 are 0, as in UTF-32, whose bytes would be trained as they are; "
         "convert the file (iconv -f UTF-32 -t UTF-8)",
         NULL},
        {BYTES("\0\0\0h\0\0\4\x10"), "chars",
         "@/t: of 800 bytes 500 are 0, as in UTF-32, whose bytes would be trained as they are; "
         "convert the file (iconv -f UTF-32 -t UTF-8)",
         NULL},
        {BYTES("\xff\xfe\0\0h\0\0\0"), "chars", "",
         "text: @/t: offset 0: byte 0xff begins no character of UTF-8; convert the file, which is "
         "in UTF-32 (iconv -f UTF-32 -t UTF-8), or set data.tokenizer bytes"},
        {BYTES("h\0\0\0\1\0\0\0"), "bytes", "", NULL}, /* no text */
    };
    char want[1024], *path = xasprintf("%s/t", (char *)*state);

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct setting settings[] = {
            {"data.path", path}, {"data.tokenizer", cases[i].tokenizer}, {NULL}};
        struct dataset_request r = request(DATASET_TRAIN, 4, 0);
        struct dataset *ds = NULL;
        struct err err = {0};
        struct buf b = {0};

        r.warn = tell;
        told[0] = 0;
        for (int k = 0; k < 100; k++)
            buf_append(&b, cases[i].text, cases[i].len);
        write_file(*state, "t", &b);
        buf_fini(&b);
        if (cases[i].refused) {
            assert_int_equal(open_set(&ds, &format_text, settings, &r, &err), ERR_CORRUPT);
            assert_string_equal(err.msg, fill_in(want, sizeof want, cases[i].refused, *state));
            continue;
        }
        dataset_close(open_ok(&format_text, settings, r));
        assert_string_equal(told, fill_in(want, sizeof want, cases[i].told, *state));
    }
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_say_their_type),         IN_FOLDER(files_of_other_kinds_are_named),
        IN_FOLDER(nearly_all_upper_halves_tell), IN_FOLDER(big_endian_files_are_refused),
        IN_FOLDER(other_encodings_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
