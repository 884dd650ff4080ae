/* Sequences of tokens: the formats tokens and text give the right samples and targets, and refuse
 * what they cannot read, with file, place and remedy. */
#include "../test.h"

#include <unistd.h>

#include "idx_file.h"
#include "sequence_set.h"

enum { MOST = 4096 };

static void put(struct buf *b, uint32_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        buf_append(b, &(uint8_t){(uint8_t)((uint64_t)v >> 8 * i)}, 1);
}

/* The i-th token of the file that begins with `first`. */
static uint32_t token(int first, int i) { return (uint32_t)(first + i * 37) % 50000; }

/* A file of n tokens; magic 0: without llm.c's header, which tells of `told` tokens. */
static void write_tokens(const char *folder, const char *name, int first, int n, int n_bytes,
                         uint32_t magic, uint32_t version, int told)
{
    struct buf b = {0};

    if (magic) {
        put(&b, magic, 4);
        put(&b, version, 4);
        put(&b, (uint32_t)told, 4);
        for (int i = 3; i < 256; i++)
            put(&b, 0, 4);
    }
    for (int i = 0; i < n; i++)
        put(&b, token(first, i), n_bytes);
    write_file(folder, name, &b);
    buf_fini(&b);
}

/* Sample i is the tokens that begin at number `at` of the file that begins with `first`. */
static void check_sample(const struct dataset *ds, int64_t i, int first, int at, int context)
{
    int32_t x[MOST], y[MOST];
    struct err err;

    assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), 0);
    for (int k = 0; k < context; k++) {
        assert_int_equal(x[k], token(first, at + k));
        assert_int_equal(y[k], token(first, at + k + 1));
    }
}

/* Several files of all kinds: each is a text of its own, whose last token is a target alone. */
static void tokens_are_cut_into_samples(void **state)
{
    const struct setting settings[] = {
        {"data.path", *state}, {"data.train", "a.bin, b.bin,c.bin,d.bin"}, {NULL}};
    struct dataset *ds;

    write_tokens(*state, "a.bin", 5, 17, 2, 0, 0, 0);           /* 4 samples of 4 */
    write_tokens(*state, "b.bin", 100, 16, 2, 20240520, 1, 16); /* 3 */
    write_tokens(*state, "c.bin", 2000, 9, 4, 20240801, 7, 8);  /* 1: the 9th is not told of */
    write_tokens(*state, "d.bin", 7, 5, 2, 0, 0, 0);            /* 1 */
    ds = open_ok(&format_tokens, settings, request(DATASET_TRAIN, 4, 0));
    assert_int_equal(ds->n_samples, 9);
    assert_true(sample_equal(&ds->spec, &(struct sample_spec)SAMPLE_SEQUENCES(4, 50257)));
    for (int i = 0; i < 4; i++)
        check_sample(ds, i, 5, 4 * i, 4);
    for (int i = 0; i < 3; i++)
        check_sample(ds, 4 + i, 100, 4 * i, 4);
    check_sample(ds, 7, 2000, 0, 4);
    check_sample(ds, 8, 7, 0, 4);
    dataset_close(ds);
}

static void words_of_32_bits_are_read(void **state)
{
    const struct setting settings[] = {
        {"data.path", *state}, {"data.validation", "val.bin"}, {"data.dtype", "uint32"}, {NULL}};
    struct dataset *ds;

    write_tokens(*state, "val.bin", 11, 2000, 4, 0, 0, 0);
    ds = open_ok(&format_tokens, settings, request(DATASET_VALIDATION, 1024, 50000));
    assert_int_equal(ds->n_samples, 1);
    assert_int_equal(ds->spec.field[0].n_classes, 50000);
    check_sample(ds, 0, 11, 0, 1024);
    dataset_close(ds);
}

static void words_of_64_bits_are_refused(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {"data.dtype", "uint32"}, {NULL}};
    const struct dataset_request r = request(DATASET_TRAIN, 4, 0);
    char want[1024];
    struct dataset *ds = NULL;
    struct err err = {0};

    write_tokens(*state, "train.bin", 1, 100, 8, 0, 0, 0);
    assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "tokens: @/train.bin: every second token is 0, as if "
                                         "numbers of 64 bits were read as 32 bits; write the file "
                                         "anew with numbers of 32 bits, or by numpy.save()",
                                         *state));
}

static void validation_is_none_by_default(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    const struct dataset_request r = request(DATASET_VALIDATION, 4, 0);
    struct dataset *ds;
    struct err err;

    assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), DATASET_NONE);
}

static const struct bad_tokens {
    int n, n_bytes;
    uint32_t magic, version;
    int told;
    int64_t context, vocab;
    int code;
    const char *want; /* @ is the folder */
} bad_tokens[] = {
    {5, 2, 0, 0, 0, 4, 149, ERR_CORRUPT, /* the first number beyond */
     "tokens: @/train.bin: offset 8: token 4 is 149, want below 149, the vocabulary's size; set "
     "model.vocab, or is data.dtype uint16 wrong?"},
    {100, 2, 0, 0, 0, 4, 112, ERR_CORRUPT,
     "tokens: @/train.bin: offset 6: token 3 is 112, want below 112, the vocabulary's size; set "
     "model.vocab, or is data.dtype uint16 wrong?"},
    {100, 2, 20240520, 1, 100, 4, 112, ERR_CORRUPT,
     "tokens: @/train.bin: offset 1030: token 3 is 112, want below 112, the vocabulary's size; set "
     "model.vocab, or is the file of another tokenizer?"},
    {100, 2, 20240520, 2, 100, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: offset 4: llm.c's header has version 2, want 1; write the file anew "
     "with llm.c's present scripts"},
    {100, 4, 20240801, 7, 101, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: offset 8: llm.c's header tells of 101 tokens, but the file holds 100; "
     "fetch it again"},
    {3, 1, 0, 0, 0, 1, 0, ERR_CORRUPT,
     "tokens: @/train.bin: 3 bytes, want a multiple of 2, the bytes of a token of data.dtype "
     "uint16; fetch it again"},
    {4, 2, 0, 0, 0, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: 4 tokens, want at least 5: model.context, and one that is the last "
     "target; give more text, or set model.context lower"},
    {0, 2, 0, 0, 0, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: 0 tokens, want at least 5: model.context, and one that is the last "
     "target; give more text, or set model.context lower"},
    {100, 4, 0, 0, 0, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: every second token is 0, as if numbers of 32 bits were read as 16 bits; "
     "set data.dtype uint32, or store the numbers by numpy.save()"},
    {100, 8, 0, 0, 0, 4, 0, ERR_CORRUPT,
     "tokens: @/train.bin: every second token is 0, as if numbers of 32 bits were read as 16 bits; "
     "set data.dtype uint32, or store the numbers by numpy.save()"},
    {100, 2, 0, 0, 0, 4, 65537, ERR_CONFIG,
     "tokens: @/train.bin: data.dtype is uint16, whose numbers are below 65536, but model.vocab is "
     "65537; set data.dtype uint32 if the file has numbers of 32 bits, or store numbers of 16 bits "
     "by numpy.save()"},
    {9, 2, 0, 0, 0, 0, 0, ERR_CONFIG,
     "tokens: the job's model has no model.context, which says how many tokens a sample has; want "
     "a model.arch that reads tokens"},
};

static void bad_tokens_are_refused(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    char want[1024];

    for (size_t i = 0; i < ARRAY_LEN(bad_tokens); i++) {
        const struct bad_tokens *c = &bad_tokens[i];
        const struct dataset_request r = request(DATASET_TRAIN, c->context, c->vocab);
        struct dataset *ds = NULL;
        struct err err = {0};

        write_tokens(*state, "train.bin", 1, c->n, c->n_bytes, c->magic, c->version, c->told);
        assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), c->code);
        assert_string_equal(err.msg, fill_in(want, sizeof want, c->want, *state));
    }
}

static void missing_files_are_named(void **state)
{
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    const struct dataset_request r = request(DATASET_TRAIN, 4, 0);
    struct dataset *ds = NULL;
    struct err err = {0};
    char want[1024];

    assert_int_equal(open_set(&ds, &format_tokens, settings, &r, &err), ERR_IO);
    assert_string_equal(err.msg, fill_in(want, sizeof want,
                                         "tokens: file @/train.bin (of data.path, data.train or "
                                         "data.validation): No such file or directory",
                                         *state));
    assert_int_equal(open_set(&ds, &format_text, settings, &r, &err), ERR_ARG);
    assert_string_equal(
        err.msg, fill_in(want, sizeof want, "text: @ is a folder, want a regular file", *state));
}

/* A number beyond the vocabulary that opening did not look at is found when it is read. */
static void late_tokens_are_checked(void **state)
{
    enum { N = (32 << 20) + 3000 };
    const struct setting settings[] = {{"data.path", *state}, {NULL}};
    struct buf b = {0};
    struct dataset *ds;
    int32_t x[1024], y[1024];
    int64_t i = N / 1024 - 1;
    char want[1024];
    struct err err = {0};

    memset(buf_reserve(&b, 2 * N), 0, 2 * N);
    b.len = 2 * N;
    b.data[2 * (i * 1024 + 9)] = 200;
    write_file(*state, "train.bin", &b);
    buf_fini(&b);
    ds = open_ok(&format_tokens, settings, request(DATASET_TRAIN, 1024, 100));
    assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), ERR_CORRUPT);
    snprintf(want, sizeof want,
             "%s/train.bin: offset %lld: token %lld is 200, want below 100, the vocabulary's size; "
             "set model.vocab, or is data.dtype uint16 wrong?",
             (char *)*state, 2 * (long long)(i * 1024 + 9), (long long)(i * 1024 + 9));
    assert_string_equal(err.msg, want);
    i--;
    assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), 0);
    dataset_close(ds);
}

/* ---- text ---- */

static void write_text(const char *folder, const char *text, int times)
{
    struct buf b = {0};

    for (int i = 0; i < times; i++)
        buf_append(&b, text, strlen(text));
    write_file(folder, "a.txt", &b);
    buf_fini(&b);
}

static struct dataset *open_text(const char *folder, const char *tokenizer,
                                 struct dataset_request r)
{
    char *path = xasprintf("%s/a.txt", folder);
    const struct setting settings[] = {{"data.path", path}, {"data.tokenizer", tokenizer}, {NULL}};
    struct dataset *ds = open_ok(&format_text, settings, r);

    free(path);
    return ds;
}

/* "a\xc3\xa4z\n\xe2\x82\xac\xf0\x9f\x98\x80" is a, ae, z, end of line, euro, a smile: 6 characters,
 * of which the numbers are 1 3 2 0 4 5, and 14 bytes wide. */
static void characters_are_numbered_in_byte_order(void **state)
{
    static const int32_t number[] = {1, 3, 2, 0, 4, 5};
    struct dataset *ds;
    struct err err;

    write_text(*state, "a\xc3\xa4z\n\xe2\x82\xac\xf0\x9f\x98\x80", 1000);
    for (int purpose = 0; purpose < 2; purpose++) {
        const int begin = purpose == DATASET_TRAIN ? 0 : 5400;

        ds = open_text(*state, "chars", request(purpose, 7, 0));
        assert_int_equal(ds->n_samples, ((purpose == DATASET_TRAIN ? 5400 : 600) - 1) / 7);
        assert_int_equal(ds->spec.field[1].n_classes, 6);
        for (int64_t i = 0; i < ds->n_samples; i++) {
            int32_t x[7], y[7];

            assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), 0);
            for (int k = 0; k < 7; k++) {
                assert_int_equal(x[k], number[(begin + 7 * i + k) % 6]);
                assert_int_equal(y[k], number[(begin + 7 * i + k + 1) % 6]);
            }
        }
        dataset_close(ds);
    }
}

static void bytes_are_their_own_numbers(void **state)
{
    const char *const text = "\xff"
                             "b\xc3";
    struct dataset *ds;
    struct err err;

    write_text(*state, text, 37); /* 111 bytes: 99 train, 12 validate */
    ds = open_text(*state, "bytes", request(DATASET_VALIDATION, 3, 0));
    assert_int_equal(ds->n_samples, 3);
    assert_int_equal(ds->spec.field[0].n_classes, 256);
    for (int64_t i = 0; i < 3; i++) {
        int32_t x[3], y[3];

        assert_int_equal(dataset_gather(ds, &i, 1, (void *[]){x, y}, &err), 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(x[k], (uint8_t)text[k]);
            assert_int_equal(y[k], (uint8_t)text[(k + 1) % 3]);
        }
    }
    dataset_close(ds);
    ds = open_text(*state, "bytes", request(DATASET_TRAIN, 3, 0));
    assert_int_equal(ds->n_samples, 32);
    dataset_close(ds);
}

/* A model may have more tokens than the text, say for tidy matrices. */
static void the_vocabulary_may_be_larger(void **state)
{
    struct dataset *ds;

    write_text(*state, "abc", 100);
    ds = open_text(*state, "chars", request(DATASET_TRAIN, 3, 64));
    assert_int_equal(ds->spec.field[0].n_classes, 64);
    dataset_close(ds);
}

static const struct bad_text {
    const char *text;
    int times;
    int64_t context, vocab;
    int code;
    const char *want; /* @ is the file */
} bad_texts[] = {
    {"ab\xc3", 9, 2, 0, ERR_CORRUPT, /* a character is cut off */
     "@: offset 2: byte 0xc3 begins no character of UTF-8; convert the file, or set data.tokenizer "
     "bytes"},
    {"\xe2\x82\xac\xc0\x80", 9, 2, 0, ERR_CORRUPT, /* too long for its number */
     "@: offset 3: byte 0xc0 begins no character of UTF-8; convert the file, or set data.tokenizer "
     "bytes"},
    {"\xed\xa0\x80", 9, 2, 0, ERR_CORRUPT, /* half a pair of UTF-16 */
     "@: offset 0: byte 0xed begins no character of UTF-8; convert the file, or set data.tokenizer "
     "bytes"},
    {"\xf4\x90\x80\x80", 9, 2, 0, ERR_CORRUPT, /* beyond Unicode */
     "@: offset 0: byte 0xf4 begins no character of UTF-8; convert the file, or set data.tokenizer "
     "bytes"},
    {"abc", 2, 6, 0, ERR_CORRUPT,
     "@: the first nine tenths of the text: 5 tokens, want at least 7: model.context, and one that "
     "is the last target; give more text, or set model.context lower"},
    {"abc", 9, 2, 2, ERR_CONFIG,
     "model.vocab is 2, want at least 3, as many as the text's characters; or leave it out"},
};

static void bad_texts_are_refused(void **state)
{
    char *path = xasprintf("%s/a.txt", (char *)*state), want[1024];
    const struct setting settings[] = {{"data.path", path}, {NULL}};

    for (size_t i = 0; i < ARRAY_LEN(bad_texts); i++) {
        const struct bad_text *c = &bad_texts[i];
        const struct dataset_request r = request(DATASET_TRAIN, c->context, c->vocab);
        struct dataset *ds = NULL;
        struct err err = {0};

        write_text(*state, c->text, c->times);
        assert_int_equal(open_set(&ds, &format_text, settings, &r, &err), c->code);
        assert_memory_equal(err.msg, "text: ", 6);
        assert_string_equal(err.msg + 6, fill_in(want, sizeof want, c->want, path));
    }
    free(path);
}

/* nanoGPT's numbers for this file: 65 characters, 1,003,854 for training and 111,540 for
 * validation, which begins with "?\n\nGREMIO:\nGood morrow". */
static void the_real_text_is_read(void **state)
{
    const char *data = getenv("DPTRAIN_DATA");
    char *path = xasprintf("%s/tinyshakespeare/input.txt", data ? data : DPTRAIN_DATA_DEFAULT);
    const struct setting settings[] = {{"data.path", path}, {NULL}};
    static const int32_t begin[] = {12, 0, 0, 19, 30, 17, 25, 21};
    struct dataset *ds;
    int32_t x[64], y[64];
    struct err err;

    (void)state;
    if (access(path, R_OK) != 0) {
        printf("skipped: no %s; set DPTRAIN_DATA to the folder that holds it\n", path);
        free(path);
        skip();
    }
    ds = open_ok(&format_text, settings, request(DATASET_TRAIN, 64, 0));
    assert_int_equal(ds->n_samples, (1003854 - 1) / 64);
    dataset_close(ds);
    ds = open_ok(&format_text, settings, request(DATASET_VALIDATION, 64, 0));
    assert_int_equal(ds->n_samples, (111540 - 1) / 64);
    assert_int_equal(ds->spec.field[0].n_classes, 65);
    assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, y}, &err), 0);
    assert_memory_equal(x, begin, sizeof begin);
    dataset_close(ds);
    free(path);
}

/* A file that somebody cuts short after it was opened is an error, not the end of the process. */
static void files_that_shrink_are_named(void **state)
{
    static const struct {
        const struct data_format *format;
        const char *tokenizer;
    } cases[] = {{&format_tokens, NULL}, {&format_text, "bytes"}, {&format_text, "chars"}};
    int32_t x[MOST], y[MOST];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *path = xasprintf("%s/f", (char *)*state), want[512];
        const int is_text = cases[i].format == &format_text;
        const struct setting settings[] = {
            {"data.path", is_text ? path : *state},
            {is_text ? "data.tokenizer" : "data.train", is_text ? cases[i].tokenizer : "f"},
            {NULL}};
        struct buf b = {0};
        struct dataset *ds;
        struct err err = {0};

        for (int k = 0; k < 20000; k++)
            buf_append(&b, "\1", 1);
        write_file(*state, "f", &b);
        ds = open_ok(cases[i].format, settings, request(DATASET_TRAIN, 100, is_text ? 256 : 0));
        assert_int_equal(truncate(path, 8192), 0);
        assert_int_equal(dataset_gather(ds, (int64_t[]){0}, 1, (void *[]){x, y}, &err), 0);
        assert_int_equal(
            dataset_gather(ds, (int64_t[]){ds->n_samples - 1}, 1, (void *[]){x, y}, &err),
            ERR_CORRUPT);
        snprintf(want, sizeof want, "file %s: offset ", path);
        assert_memory_equal(err.msg, want, strlen(want));
        assert_non_null(strstr(err.msg, ": it ends here, but had 20000 bytes when it was opened"));
        dataset_close(ds);
        buf_fini(&b);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(tokens_are_cut_into_samples),  IN_FOLDER(words_of_32_bits_are_read),
        IN_FOLDER(words_of_64_bits_are_refused), IN_FOLDER(validation_is_none_by_default),
        IN_FOLDER(bad_tokens_are_refused),       IN_FOLDER(missing_files_are_named),
        IN_FOLDER(late_tokens_are_checked),      IN_FOLDER(characters_are_numbered_in_byte_order),
        IN_FOLDER(bytes_are_their_own_numbers),  IN_FOLDER(the_vocabulary_may_be_larger),
        IN_FOLDER(bad_texts_are_refused),        IN_FOLDER(files_that_shrink_are_named),
        cmocka_unit_test(the_real_text_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
