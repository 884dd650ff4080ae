/* Tests of err: each caller can put words before the text, the place is that of the first error,
 * and the text never overflows. */
#include "../test.h"

#include <errno.h>

#include "base/err.h"

static int fail_deep(struct err *err) { return err_set(err, ERR_CORRUPT, "magic is 0x%x", 0x7u); }

static void wrap_prefixes_and_keeps_the_place(void **state)
{
    struct err err = {0};
    int code = fail_deep(&err), line = err.line;

    (void)state;
    assert_int_equal(code, ERR_CORRUPT);
    assert_true(code < 0);
    assert_int_equal(err_wrap(&err, "header"), ERR_CORRUPT);
    assert_int_equal(err_wrap(&err, "checkpoint %s", "/runs/7"), ERR_CORRUPT);
    assert_string_equal(err.msg, "checkpoint /runs/7: header: magic is 0x7");
    assert_int_equal(err.line, line);
    assert_int_equal(err.code, ERR_CORRUPT);
}

static void file_is_relative_to_the_source(void **state)
{
    struct err err;

    (void)state;
    fail_deep(&err);
    assert_string_equal(err.file, "tests/base/test_err.c");
}

static void set_replaces(void **state)
{
    struct err err;

    (void)state;
    fail_deep(&err);
    assert_int_equal(err_set(&err, ERR_ARG, "short"), ERR_ARG);
    assert_string_equal(err.msg, "short");
    assert_int_equal(err.code, ERR_ARG);
}

static void sys_names_the_errno(void **state)
{
    static const struct {
        int errnum, code;
    } cases[] = {{ENOENT, ERR_IO},    {EACCES, ERR_IO},    {ENOSPC, ERR_IO},
                 {EFBIG, ERR_IO},     {ENOMEM, ERR_NOMEM}, {EAGAIN, ERR_NOMEM},
                 {EMFILE, ERR_NOMEM}, {ENFILE, ERR_NOMEM}};
    char want[128];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;

        assert_int_equal(err_sys(&err, cases[i].errnum, "open %s", "x"), cases[i].code);
        snprintf(want, sizeof want, "open x: %s", strerror(cases[i].errnum));
        assert_string_equal(err.msg, want);
        assert_int_equal(err.line, __LINE__ - 3);
    }
}

static void assert_marked(const struct err *err, int is_cut)
{
    const size_t len = strlen(err->msg);

    assert_true(len > 3);
    assert_int_equal(strcmp(err->msg + len - 3, "...") == 0, is_cut);
}

/* Text that is too long on any side is cut at the end, where "..." says so, and the struct's other
 * fields stay whole. */
static void long_text_is_cut_at_the_end(void **state)
{
    struct err err;
    char big[2000];
    enum { CAP = sizeof err.msg };

    (void)state;
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = 0;
    for (int len = CAP - 6; len <= CAP + 6; len++) {
        err_set(&err, ERR_IO, "%.*s", len, big);
        assert_int_equal(strlen(err.msg), len < CAP ? len : CAP - 1);
        assert_marked(&err, len >= CAP);
        err_wrap(&err, "outer");
        assert_memory_equal(err.msg, "outer: aaa", 10);
        assert_int_equal(strlen(err.msg), len + 7 < CAP ? len + 7 : CAP - 1);
        assert_marked(&err, len + 7 >= CAP);
        err_set(&err, ERR_IO, "inner");
        err_wrap(&err, "%.*s", len, big);
        assert_int_equal(strlen(err.msg), len + 7 < CAP ? len + 7 : CAP - 1);
        assert_marked(&err, len + 7 >= CAP);
        assert_int_equal(err.code, ERR_IO);
    }
    err_sys(&err, ENOENT, "%s", big);
    assert_int_equal(strlen(err.msg), CAP - 1);
    assert_marked(&err, 1);
}

static void old_message_may_be_an_argument(void **state)
{
    struct err err;

    (void)state;
    err_set(&err, ERR_PROTO, "inner");
    err_set(&err, ERR_PEER, "rank 3: %s", err.msg);
    assert_string_equal(err.msg, "rank 3: inner");
    err_wrap(&err, "again (%s)", err.msg);
    assert_string_equal(err.msg, "again (rank 3: inner): rank 3: inner");
}

static void strange_bytes_become_harmless(void **state)
{
    struct err err;

    (void)state;
    err_set(&err, ERR_PROTO, "host \033[2J\xff %s", "\xc3\xa9");
    assert_string_equal(err.msg, "host ?[2J? \xc3\xa9");
}

static void every_code_has_its_text(void **state)
{
    static const int codes[] = {
#define X(code, text) code,
        ERR_LIST(X)
#undef X
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        assert_int_equal(codes[i], -(int)i - 1);
        assert_string_not_equal(err_code_text(codes[i]), "no error");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(err_code_text(codes[i]), err_code_text(codes[k]));
    }
    assert_string_equal(err_code_text(0), "no error");
    assert_string_equal(err_code_text(-1000), "no error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrap_prefixes_and_keeps_the_place),
        cmocka_unit_test(file_is_relative_to_the_source),
        cmocka_unit_test(set_replaces),
        cmocka_unit_test(sys_names_the_errno),
        cmocka_unit_test(long_text_is_cut_at_the_end),
        cmocka_unit_test(old_message_may_be_an_argument),
        cmocka_unit_test(strange_bytes_become_harmless),
        cmocka_unit_test(every_code_has_its_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
