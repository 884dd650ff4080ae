/* Tests of tokens without a file, and of the stream of whole characters. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "generate/scribe.h"

static struct err err;

static void must(int rc)
{
    if (rc < 0)
        fail_msg("%s", err.msg);
}

/* Give the tokens one by one; after each the text so far is whole. */
static void check_stream(struct scribe *t, const int32_t *token, int64_t n, const char *const *want)
{
    struct scribe_stream s = {0};
    struct buf text = {0};

    for (int64_t i = 0; i < n; i++) {
        must(scribe_stream_put(&s, t, token[i], &text, &err));
        assert_string_equal(buf_cstr(&text), want[i]);
    }
    must(scribe_stream_end(&s, t, &text, &err));
    assert_string_equal(buf_cstr(&text), want[n]);
    scribe_stream_fini(&s);
    buf_fini(&text);
}

static void test_bytes(void **state)
{
    /* a, U+00E9 in two bytes, U+20AC in three of which the last is missing */
    static const int32_t token[] = {'a', 0xc3, 0xa9, 'b', 0xe2, 0x82};
    static const char *const want[] = {"a",
                                       "a",
                                       "a\xc3\xa9",
                                       "a\xc3\xa9"
                                       "b",
                                       "a\xc3\xa9"
                                       "b",
                                       "a\xc3\xa9"
                                       "b",
                                       "a\xc3\xa9"
                                       "b\xef\xbf\xbd\xef\xbf\xbd"};
    struct scribe *t;
    int32_t *out;
    int64_t n;

    (void)state;
    must(scribe_open(&(struct scribe_request){.tokenizer = "bytes"}, &t, &err));
    check_stream(t, token, ARRAY_LEN(token), want);
    must(scribe_encode(t, "\xc3\xa9!", &out, &n, &err));
    assert_int_equal(n, 3);
    assert_int_equal(out[0], 0xc3);
    assert_int_equal(out[2], '!');
    assert_int_equal(scribe_end(t), -1);
    free(out);
    scribe_close(t);
}

/* Bytes of which no character came are shown in the end, and then what follows stands alone. */
static void test_broken(void **state)
{
#define BAD "\xef\xbf\xbd"
    static const int32_t token[] = {0xff, 0xff, 0xff, 0xc3, 0xa9, 'a'};
    static const char *const want[] = {"",
                                       "",
                                       "",
                                       BAD BAD BAD BAD,
                                       BAD BAD BAD BAD,
                                       BAD BAD BAD BAD BAD "a",
                                       BAD BAD BAD BAD BAD "a"};
    struct scribe *t;

    (void)state;
    must(scribe_open(&(struct scribe_request){.tokenizer = "bytes"}, &t, &err));
    check_stream(t, token, ARRAY_LEN(token), want);
    scribe_close(t);
}

static void test_chars(void **state)
{
    static const int32_t token[] = {3, 0, 2, 1};
    static const char *const want[] = {"\xe2\x82\xac",
                                       "\xe2\x82\xac"
                                       "a",
                                       "\xe2\x82\xac"
                                       "a\xc3\xa9",
                                       "\xe2\x82\xac"
                                       "a\xc3\xa9"
                                       "b",
                                       "\xe2\x82\xac"
                                       "a\xc3\xa9"
                                       "b"};
    char path[64];
    struct scribe *t;
    int32_t *out;
    int64_t n;
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "/tmp/dptrain_scribe_%d", (int)getpid());
    f = fopen(path, "we");
    fputs("b\xe2\x82\xac"
          "aab\xc3\xa9",
          f);
    fclose(f);
    must(scribe_open(&(struct scribe_request){.tokenizer = "chars", .corpus = path}, &t, &err));
    check_stream(t, token, ARRAY_LEN(token), want);
    must(scribe_encode(t,
                       "\xe2\x82\xac"
                       "b",
                       &out, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], 1);
    free(out);
    assert_int_equal(scribe_encode(t, "ax", &out, &n, &err), ERR_CONFIG);
    assert_non_null(strstr(err.msg, "no character \"x\""));
    assert_int_equal(scribe_encode(t, "a\xff", &out, &n, &err), ERR_CORRUPT);
    scribe_close(t);
    unlink(path);
    assert_int_equal(
        scribe_open(&(struct scribe_request){.tokenizer = "chars", .corpus = path}, &t, &err),
        ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_chars),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
