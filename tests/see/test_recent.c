/* Tests of the newest events: those of the file's end, then those that are heard, and no more than
 * the ring has places. */
#include "../test.h"

#include "base/buf.h"
#include "folder.h"
#include "see/recent.h"

static void assert_lines(const struct recent *r, int64_t n, const char *first, const char *last)
{
    assert_int_equal(r->n - recent_first(r), n);
    assert_string_equal(recent_line(r, recent_first(r)), first);
    assert_string_equal(recent_line(r, r->n - 1), last);
}

static void test_whole_lines(void **state)
{
    struct recent r = {0};

    (void)state;
    recent_read(&r, "."); /* there is no file */
    assert_int_equal(r.n, 0);
    write_text("events.jsonl", "{\"a\":1}\nno JSON\n[1]\n\n{\"a\":2}\n{\"a\":3");
    recent_read(&r, ".");
    assert_lines(&r, 2, "{\"a\":1}", "{\"a\":2}");
    recent_add(&r, "{\"a\":4}xx", 7);
    assert_lines(&r, 3, "{\"a\":1}", "{\"a\":4}");
    recent_fini(&r);
}

/* Of a long file the end is read, without the line that the end begins in. */
static void test_long_file(void **state)
{
    struct buf text = {0};
    struct recent r = {0};
    char last[64];
    int n = 0;

    (void)state;
    while (text.len < 2 * RECENT_TAIL)
        buf_printf(&text, "{\"n\":%d,\"x\":\"%0100d\"}\n", n++, 0);
    write_text("events.jsonl", buf_cstr(&text));
    recent_read(&r, ".");
    assert_in_range(r.n, RECENT_TAIL / 130, RECENT_TAIL / 110);
    assert_int_equal(r.n - recent_first(&r), RECENT_MOST);
    snprintf(last, sizeof last, "{\"n\":%d,", n - 1);
    assert_int_equal(strncmp(recent_line(&r, r.n - 1), last, strlen(last)), 0);
    snprintf(last, sizeof last, "{\"n\":%d,", n - RECENT_MOST);
    assert_int_equal(strncmp(recent_line(&r, recent_first(&r)), last, strlen(last)), 0);
    recent_fini(&r);
    buf_fini(&text);
}

/* A line that is longer than the end which is read is none. */
static void test_long_line(void **state)
{
    struct buf text = {0};
    struct recent r = {0};

    (void)state;
    buf_printf(&text, "{\"x\":\"%0*d\"}\n", RECENT_TAIL + 100, 0);
    write_text("events.jsonl", buf_cstr(&text));
    recent_read(&r, ".");
    assert_int_equal(r.n, 0);
    recent_fini(&r);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_lines, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_long_file, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(test_long_line, folder_setup, folder_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
