/* tokenizer: small files of each form, with the numbers that the tokenizers library 0.23.3 gives;
 * interop/tokenizer compares larger ones with the library itself.  Files that are not supported,
 * or whose parts do not fit together, are refused by name. */
#include "../test.h"

#include "tokenizer/tokenizer.h"

#define LETTERS \
    "\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"ab\":4,\"abc\":5,\"bc\":6,\"\xc4\xa0\x61\":7"
#define MERGES "[[\"b\",\"c\"],[\"a\",\"b\"],[\"ab\",\"c\"],[\"\xc4\xa0\",\"a\"],[\"a\",\"bc\"]]"
#define MODEL  "\"model\":{\"vocab\":{" LETTERS "},\"merges\":" MERGES "}"
#define BYTES(prefix)                                                                          \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" \
    "true}"
#define ADDED(flags) "\"added_tokens\":[{\"id\":8,\"content\":\"<e>\",\"special\":true," flags "}]"
#define TEMPLATE                                                                               \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"      \
    "\"id\":\"<e>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[]," \
    "\"special_tokens\":{\"<e>\":{\"id\":\"<e>\",\"ids\":[8],\"tokens\":[\"<e>\"]}}}"
#define DECODER "\"decoder\":{\"type\":\"ByteLevel\"}"
#define MARK    "\xe2\x96\x81"
#define WORDS                                                                                    \
    "\"<unk>\":0,\"<0x41>\":1,\"" MARK "\":2,\"x\":3,\"" MARK "x\":4,\"<0xC3>\":5,\"<0xA9>\":6," \
    "\"" MARK MARK "\":7"
#define WORD_MERGES "[\"" MARK " x\",\"" MARK " " MARK "\"]"
#define LLAMA(more)                                                                                \
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"   \
    "\"" MARK "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" MARK       \
    "\"}]},"                                                                                       \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"         \
    "\"String\":\"" MARK "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}," \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"                             \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\"," more "\"vocab\":{" WORDS "},"           \
    "\"merges\":" WORD_MERGES "}}"

static int keep(void *arg, const int32_t *token, size_t n, struct err *err)
{
    (void)err;
    buf_append(arg, token, n * sizeof *token);
    return 0;
}

static const struct encoded {
    const char *file, *text;
    int special;
    int32_t want[16]; /* -1 ends it */
    const char *back; /* NULL: the text itself */
} encoded[] = {
    /* the lowest rank first, then the leftmost */
    {"{" MODEL "," BYTES("false") "," DECODER "}", "abc abcab", 0, {5, 7, 6, 4, -1}, NULL},
    {"{" MODEL "," BYTES("true") "," DECODER "}", "abc", 0, {7, 6, -1}, " abc"},
    /* what has no token, and no unknown one, is dropped */
    {"{" MODEL "," BYTES("false") "," DECODER "}", "xay", 0, {0, -1}, "a"},
    {"{" MODEL "," BYTES("false") "," ADDED("\"normalized\":false") "," TEMPLATE "," DECODER "}",
     "a<e>b",
     1,
     {8, 0, 8, 1, -1},
     "ab"},
    {"{" MODEL "," BYTES("false") "," ADDED("\"lstrip\":true,\"rstrip\":true") "," DECODER "}",
     "a  <e> \n b",
     0,
     {0, 8, 1, -1},
     "ab"},
    {"{" MODEL "," BYTES("false") "," ADDED("\"single_word\":true") "," DECODER "}",
     "a<e> <e> b<e>",
     0,
     {0, 3, 8, 3, 1, -1},
     "a  b"},
    /* bytes for a character of which each byte has a token, else the unknown token */
    {LLAMA("\"byte_fallback\":true,"), "A x\xc3\xa9", 0, {2, 1, 4, 5, 6, -1}, NULL},
    {LLAMA("\"byte_fallback\":true,"), "zz x", 0, {2, 0, 0, 4, -1}, "<unk><unk> x"},
    {LLAMA("\"byte_fallback\":true,\"fuse_unk\":true,"), "zz  x", 0, {2, 0, 2, 4, -1}, "<unk>  x"},
};

static struct tokenizer *read_text(const char *file)
{
    struct tokenizer *t = NULL;
    struct err err = {0};

    if (tokenizer_parse(&t, file, strlen(file), &err) < 0)
        fail_msg("%s\n%s", err.msg, file);
    return t;
}

static void check_encoded(const struct encoded *c)
{
    struct tokenizer *const t = read_text(c->file);
    struct tokenizer_work *const w = tokenizer_work_new(t);
    struct buf got = {0}, back = {0};
    struct err err = {0};
    size_t n = 0;

    while (c->want[n] >= 0)
        n++;
    for (int round = 0; round < 2; round++) { /* the second finds its pieces in the cache */
        buf_clear(&got);
        assert_int_equal(
            tokenizer_encode(w, c->text, strlen(c->text), c->special, keep, &got, &err), 0);
        if (got.len != n * sizeof(int32_t) || memcmp(got.data, c->want, got.len) != 0)
            fail_msg("\"%s\": %zu tokens, the first is %d, want %zu; %s", c->text, got.len / 4,
                     got.len ? (int)*(int32_t *)got.data : -1, n, c->file);
    }
    assert_int_equal(tokenizer_decode(t, c->want, n, 0, &back, &err), 0);
    assert_string_equal(buf_cstr(&back), c->back ? c->back : c->text);
    buf_fini(&got);
    buf_fini(&back);
    tokenizer_work_free(w);
    tokenizer_free(t);
}

static void texts_become_the_librarys_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(encoded); i++)
        check_encoded(&encoded[i]);
}

/* A piece that is too long to be looked at pair by pair, and to be kept. */
static void long_pieces_merge_alike(void **state)
{
    static const int32_t cycle[] = {5, 4}; /* abc ab */
    struct tokenizer *const t = read_text("{" MODEL "," BYTES("false") "}");
    struct tokenizer_work *const w = tokenizer_work_new(t);
    struct buf text = {0}, got = {0};
    struct err err = {0};

    (void)state;
    for (int i = 0; i < 500; i++)
        buf_append(&text, "abcab", 5);
    assert_int_equal(tokenizer_encode(w, (const char *)text.data, text.len, 0, keep, &got, &err),
                     0);
    assert_int_equal(got.len, 500 * 2 * sizeof(int32_t));
    for (int i = 0; i < 500 * 2; i++)
        assert_int_equal(((int32_t *)got.data)[i], cycle[i % 2]);
    buf_fini(&text);
    buf_fini(&got);
    tokenizer_work_free(w);
    tokenizer_free(t);
}

static void a_file_says_its_vocabulary(void **state)
{
    struct tokenizer *const t = read_text("{" MODEL "," ADDED("\"lstrip\":false") "}");

    (void)state;
    assert_int_equal(tokenizer_vocab(t), 9);
    assert_int_equal(tokenizer_number(t, "<e>"), 8);
    assert_int_equal(tokenizer_number(t, "abc"), 5);
    assert_int_equal(tokenizer_number(t, "cb"), -1);
    assert_true(hash_equal(tokenizer_hash(t), tokenizer_hash(t)));
    tokenizer_free(t);
}

static void texts_that_are_none_are_refused(void **state)
{
    static const int32_t strange[] = {0, 9};
    struct tokenizer *const t = read_text("{" MODEL "," BYTES("false") "}");
    struct tokenizer_work *const w = tokenizer_work_new(t);
    struct buf got = {0};
    struct err err = {0};

    (void)state;
    assert_int_equal(tokenizer_encode(w, "abcabcabc\xe9 ab", 13, 0, keep, &got, &err), ERR_CORRUPT);
    assert_string_equal(err.msg, "offset 9: byte 0xe9 begins no character of UTF-8; convert the "
                                 "text (iconv -f LATIN1 -t UTF-8, if it is in Latin-1)");
    assert_int_equal(tokenizer_decode(t, strange, 2, 0, &got, &err), ERR_ARG);
    assert_string_equal(err.msg, "token 1 is 9, which the tokenizer does not have; want a token "
                                 "below 8 of its vocabulary");
    assert_int_equal(got.len, 0);
    buf_fini(&got);
    tokenizer_work_free(w);
    tokenizer_free(t);
}

#define WITH(key, value) "{" MODEL ",\"" key "\":" value "}"
#define SPLIT(pattern)    \
    WITH("pre_tokenizer", \
         "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"" pattern "\"}}")
#define EXPRESSION "pre_tokenizer: Split: expression \""

static const struct refused {
    const char *file, *want;
} refused[] = {
    {"{\"model\":", "line 1, column 9: unexpected token near end of file; want a tokenizer.json, "
                    "whole"},
    {"[]", "it is no mapping; is it a tokenizer.json?"},
    {"{\"arch\":\"gpt2\"}", "there is no mapping \"model\"; is it a tokenizer.json?"},
    {WITH("version", "\"2.0\""), "version is \"2.0\", want \"1.0\""},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
     "model.type Unigram is not supported, want BPE (byte pair encoding); the text can be "
     "tokenized "
     "elsewhere, for data.format: tokens"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}",
     "model.type WordPiece is not supported, want BPE (byte pair encoding); the text can be "
     "tokenized elsewhere, for data.format: tokens"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}",
     "model.end_of_word_suffix is set, which is not supported"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
     "model.dropout is set, which is not supported"},
    {"{\"model\":{\"vocab\":{},\"merges\":[]}}", "model.vocab is no mapping from texts to numbers"},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",
     "model.vocab: token \"a\" has the number -1, want 0 to 16777215"},
    {"{\"model\":{\"vocab\":{\"a\":0.5},\"merges\":[]}}", "model.vocab: \"a\" has no whole number"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[[\"a\",\"b\"]]}}",
     "model.merges: item 0 has \"ab\", which is not in model.vocab"},
    {"{\"model\":{\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[[\"a\",\"a\"],\"a a\"]}}",
     "model.merges: item 1 is of another form than item 0"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}",
     "model.merges: item 0 is no pair of texts, [\"a\", \"b\"] or \"a b\""},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"?\"}}",
     "model.unk_token is \"?\", which is not in model.vocab"},
    {"{" MODEL "," TEMPLATE "}",
     "post_processor: number 8 is no token's, of model.vocab or added_tokens"},
    {WITH("added_tokens", "[{\"id\":8}]"),
     "added_tokens: item 0: it has no text \"content\" or no number \"id\""},
    {WITH("normalizer", "{\"type\":\"Lowercase\"}"),
     "normalizer: Lowercase is not supported, want NFC, NFD, NFKC, NFKD, Prepend, Replace, or a "
     "Sequence of them"},
    {WITH("pre_tokenizer", "{\"type\":\"BertPreTokenizer\"}"),
     "pre_tokenizer: BertPreTokenizer is not supported, want ByteLevel, Split, Digits, Metaspace, "
     "Whitespace, WhitespaceSplit, or a Sequence of them"},
    {WITH("pre_tokenizer", "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                           "{\"type\":\"Digits\"}]}"),
     "pre_tokenizer: Digits: behind ByteLevel it is not supported"},
    {WITH("decoder", "{\"type\":\"CTC\"}"),
     "decoder: CTC is not supported, want ByteLevel, ByteFallback, Fuse, Replace, Strip, "
     "Metaspace, or a Sequence of them"},
    {SPLIT("a("), EXPRESSION "a(\": missing closing parenthesis"},
    {SPLIT("a*"), EXPRESSION "a*\" also matches the empty text, which is not supported"},
    {SPLIT("\\\\h+"), EXPRESSION "\\h+\": offset 0: \\h is not supported"},
    {SPLIT("[a&&b]"), EXPRESSION "[a&&b]\": offset 2: && within a class is not supported"},
    {SPLIT("[a[b]]"), EXPRESSION "[a[b]]\": offset 2: [ within a class is not supported; write \\[ "
                                 "for the character"},
    {SPLIT("[^\\\\S]"), EXPRESSION "[^\\S]\": offset 2: \\S within a class is not supported"},
    {SPLIT("a{2}+"), EXPRESSION "a{2}+\": offset 3: }+ is not supported"},
    {SPLIT("a{2}?b"), EXPRESSION "a{2}?b\": offset 3: }? is not supported"},
    {SPLIT("a{,2}b"), EXPRESSION "a{,2}b\": offset 1: {, is not supported"},
    {SPLIT("a(?i)b|c"), EXPRESSION "a(?i)b|c\": offset 1: (?i) is not supported"},
    {SPLIT("(?m:a)"), EXPRESSION "(?m:a)\": offset 0: (?m is not supported"},
};

static void files_of_other_kinds_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct tokenizer *t = NULL;
        struct err err = {0};

        if (tokenizer_parse(&t, refused[i].file, strlen(refused[i].file), &err) == 0)
            fail_msg("it is read, want: %s", refused[i].want);
        assert_string_equal(err.msg, refused[i].want);
    }
}

static void a_missing_file_is_named(void **state)
{
    struct tokenizer *t = NULL;
    struct err err = {0};

    (void)state;
    assert_int_equal(tokenizer_read(&t, "/nowhere/tokenizer.json", &err), ERR_IO);
    assert_string_equal(err.msg,
                        "file /nowhere/tokenizer.json (of data.tokenizer): No such file or "
                        "directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_become_the_librarys_numbers),
        cmocka_unit_test(long_pieces_merge_alike),
        cmocka_unit_test(a_file_says_its_vocabulary),
        cmocka_unit_test(texts_that_are_none_are_refused),
        cmocka_unit_test(files_of_other_kinds_are_refused),
        cmocka_unit_test(a_missing_file_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
