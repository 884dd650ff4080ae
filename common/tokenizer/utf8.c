/* utf8 - steps through texts.  utf8proc knows what is well-formed, and the categories of
 * characters; long runs of ASCII are passed eight bytes at a time. */
#include "tokenizer/utf8.h"

#include <string.h>

#include <utf8proc.h>

size_t utf8_find_bad(const char *s, size_t n)
{
    size_t at = 0;

    while (at < n) {
        uint64_t eight;
        utf8proc_int32_t code;
        utf8proc_ssize_t len;

        if (n - at >= sizeof eight) {
            memcpy(&eight, s + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        if ((uint8_t)s[at] < 0x80) {
            at++;
            continue;
        }
        len = utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &code);
        if (len <= 0)
            return at;
        at += (size_t)len;
    }
    return n;
}

uint32_t utf8_code(const char *s)
{
    const size_t len = utf8_len(s[0]);
    uint32_t code = (uint8_t)s[0];

    if (len == 1)
        return code;
    code &= 0x7fU >> len;
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((uint8_t)s[i] & 0x3f);
    return code;
}

size_t utf8_before(const char *s, size_t at)
{
    do
        at--;
    while (at > 0 && ((uint8_t)s[at] & 0xc0) == 0x80);
    return at;
}

size_t utf8_write(uint32_t code, char to[4])
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)to);
}

int utf8_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

int utf8_is_word(uint32_t code)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);

    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}
