/* Tests of text: which bytes count as a character, and the text that text_clean leaves.  Texts come
 * from files and peers, so every sequence of bytes must be safe to read. */
#include "../test.h"

#include "base/text.h"

static const struct {
    const char *in, *out;
} cases[] = {
    {"", ""},
    {"plain\ttext\n", "plain\ttext\n"},
    {"\x01\x1b[31m\x7f", "??[31m?"},
    {"\xc2\x80\xc2\x9f\xc2\xa0", "????\xc2\xa0"}, /* C1 controls; then a real one */
    {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82"},
    {"\xc3", "?"}, /* cut: 2, 3 and 4 bytes */
    {"\xe2\x82", "??"},
    {"\xf0\x9f\x99", "???"},
    {"\xe2\x82z", "??z"},
    {"\xc0\xaf", "??"}, /* overlong */
    {"\xc1\xbf", "??"},
    {"\xe0\x80\xaf", "???"},
    {"\xe0\x9f\xbf", "???"},
    {"\xf0\x8f\xbf\xbf", "????"},
    {"\xed\xa0\x80", "???"}, /* a surrogate */
    {"\xed\x9f\xbf", "\xed\x9f\xbf"},
    {"\xee\x80\x80", "\xee\x80\x80"},
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"}, /* the last one, and past it */
    {"\xf4\x90\x80\x80", "????"},
    {"\xf5\x80\x80\x80", "????"},
    {"\x80"
     "a\xbf\xff",
     "?a??"},
};

static void clean_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *s = strdup(cases[i].in); /* exact size: a sanitizer sees a read past the end */

        text_clean(s);
        assert_string_equal(s, cases[i].out);
        text_clean(s); /* clean text stays as it is */
        assert_string_equal(s, cases[i].out);
        free(s);
    }
}

/* All code points, encoded here by UTF-8's definition, are accepted, except surrogates. */
static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 1; c < 0x110000; c++) {
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const uint8_t lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
        char s[5] = {0};

        for (size_t i = n; i-- > 0;)
            s[i] = (char)((i ? 0x80 : lead[n]) |
                          (c >> 6 * (n - 1 - i) & (i        ? 0x3Fu
                                                   : n == 1 ? 0x7Fu
                                                            : 0xFFu >> (n + 1))));
        assert_int_equal(text_char_len(s), c >= 0xD800 && c < 0xE000 ? 0 : n);
    }
    assert_int_equal(text_char_len(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_table),
        cmocka_unit_test(every_code_point),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
