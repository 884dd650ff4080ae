/* Clean text: which characters of well-formed UTF-8 may not be shown on a terminal.
 * See text.h. */
#include "wire/text.h"

#include "base/text.h"

/* `u` is one well-formed character of `n` bytes that a terminal must not get. */
static int is_harmful(const unsigned char *u, size_t n)
{
    if (n == 1)
        return u[0] < 0x20 || u[0] == 0x7f;
    if (n == 2) /* U+0080 .. U+009F: C1 controls, which terminals obey */
        return u[0] == 0xc2 && u[1] < 0xa0;
    if (n == 3 && u[0] == 0xe2 && u[1] == 0x80) /* U+2028 .. U+202E: line ends, reordering */
        return u[2] >= 0xa8 && u[2] <= 0xae;
    if (n == 3 && u[0] == 0xe2 && u[1] == 0x81) /* U+2066 .. U+2069: reordering */
        return u[2] >= 0xa6 && u[2] <= 0xa9;
    return 0;
}

size_t text_clean_char(const char *s)
{
    size_t n = text_char_len(s);
    return is_harmful((const unsigned char *)s, n) ? 0 : n;
}
