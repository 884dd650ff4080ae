/* Well-formed UTF-8 by the table of RFC 3629, section 4.
 * No function here reads past the terminating NUL, whatever the bytes before it are. */
#include "base/text.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* RFC 3629, section 4: from the first byte follow the length and the range of the second byte. */
static const struct {
    uint8_t first_min, first_max, len, second_min, second_max;
} forms[] = {
    {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF}, {0xE1, 0xEC, 3, 0x80, 0xBF},
    {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF}, {0xF0, 0xF0, 4, 0x90, 0xBF},
    {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

static size_t form_len(const uint8_t *s, size_t form)
{
    if (s[1] < forms[form].second_min || s[1] > forms[form].second_max)
        return 0;
    for (size_t i = 2; i < forms[form].len; i++)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0; /* NUL, too: never reads past the end */
    return forms[form].len;
}

size_t text_char_len(const char *s)
{
    const uint8_t *u = (const uint8_t *)s;

    if (u[0] < 0x80)
        return u[0] != 0;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (u[0] >= forms[i].first_min && u[0] <= forms[i].first_max)
            return form_len(u, i);
    return 0;
}

static int text_is_control_byte(const char *s, size_t len)
{
    uint8_t c = (uint8_t)s[0];

    if (len == 1)
        return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    return len == 2 && c == 0xC2 && (uint8_t)s[1] < 0xA0; /* U+0080 to U+009F */
}

void text_clean(char *s)
{
    while (*s) {
        size_t len = text_char_len(s);

        if (len == 0 || text_is_control_byte(s, len)) {
            *s++ = '?';
            continue; /* of a control character of 2 bytes, the second is now ill-formed */
        }
        s += len;
    }
}

int text_is_link_local(const char *address)
{
    return strspn(address, "0123456789abcdefABCDEF") == 4 && address[4] == ':' &&
           strncasecmp(address, "fe", 2) == 0 && strchr("89abAB", address[2]);
}
