/* utf8 - characters of texts that are known by their length, and may hold NUL.
 *
 * Threads: pure. */
#ifndef TOKENIZER_UTF8_H
#define TOKENIZER_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The offset of the first byte that begins no well-formed character; n: there is none. */
size_t utf8_find_bad(const char *s, size_t n);

/* Of well-formed text: bytes of the character that begins with `first`. */
static inline size_t utf8_len(char first)
{
    const uint8_t c = (uint8_t)first;

    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* Of well-formed text: the code point of the character at s. */
uint32_t utf8_code(const char *s);

/* Of well-formed text: where the character begins that ends before s + at; at > 0. */
size_t utf8_before(const char *s, size_t at);

/* Write the character, up to 4 bytes; returns how many. */
size_t utf8_write(uint32_t code, char to[4]);

int utf8_is_space(uint32_t code); /* Unicode's White_Space */
int utf8_is_word(uint32_t code);  /* letters, marks, digits, and what connects them */

/* The same set as utf8_is_space, within a class of a regular expression. */
#define UTF8_SPACES                                                                             \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"

#endif
