/* Tests of buf: it grows, is consumed from the front, formats text, and gives its contents as a C
 * string. */
#include "../test.h"

#include "base/buf.h"

static void a_queue_of_bytes_keeps_its_order(void **state)
{
    struct buf b = {0};
    uint8_t in = 0, out = 0, chunk[97];

    (void)state;
    for (size_t round = 0; round < 500; round++) {
        size_t n_in = round * 31 % sizeof chunk, n_out = round * 17 % 60;

        for (size_t i = 0; i < n_in; i++)
            chunk[i] = in++;
        buf_append(&b, chunk, n_in);
        n_out = n_out < b.len ? n_out : b.len;
        for (size_t i = 0; i < n_out; i++)
            assert_int_equal(b.data[i], out++);
        buf_consume(&b, n_out);
        assert_true(b.len <= b.cap);
    }
    assert_true(b.len > 0);
    assert_int_equal(b.data[0], out);
    buf_fini(&b);
    assert_null(b.data);
    buf_fini(&b);
}

static void empty_things(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    buf_consume(&b, 0);
    assert_string_equal(buf_cstr(&b), "");
    buf_append(&b, NULL, 0);
    buf_printf(&b, "%s", "");
    assert_int_equal(b.len, 0);
    buf_fini(&b);
}

static void printf_appends_at_every_fill(void **state)
{
    (void)state;
    for (int len = 250; len < 260; len++) { /* around the first capacity, 256 */
        struct buf b = {0};

        buf_printf(&b, "%*d", len, 7);
        buf_printf(&b, "-%s", "end");
        assert_int_equal(b.len, len + 4);
        assert_int_equal(strlen(buf_cstr(&b)), len + 4);
        assert_string_equal(buf_cstr(&b) + len - 1, "7-end");
        buf_fini(&b);
    }
}

static void cstr_is_not_counted_and_reserve_changes_no_len(void **state)
{
    struct buf b = {0};

    (void)state;
    memset(buf_reserve(&b, 256), 'x', 256);
    assert_int_equal(b.len, 0);
    b.len = 256; /* the buffer is full: the NUL needs more room */
    assert_int_equal(strlen(buf_cstr(&b)), 256);
    assert_int_equal(b.len, 256);
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_true(b.cap > 256);
    buf_append(&b, "ab", 2);
    assert_string_equal(buf_cstr(&b), "ab");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_of_bytes_keeps_its_order),
        cmocka_unit_test(empty_things),
        cmocka_unit_test(printf_appends_at_every_fill),
        cmocka_unit_test(cstr_is_not_counted_and_reserve_changes_no_len),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
