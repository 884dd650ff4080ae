/* text - making strings from files and peers safe to show and to store.
 *
 * Threads: any. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 character (RFC 3629) that `s` starts with; 0: none, or the end. */
size_t text_char_len(const char *s);

/* Replace by '?' every byte that belongs to no well-formed UTF-8 character, and every control
 * character except newline and tab.  The result is valid in JSON and harmless on a terminal. */
void text_clean(char *s);

/* 1: a numeric IPv6 address that holds on one link alone (fe80::/10), with its zone or without. */
int text_is_link_local(const char *address);

#endif
