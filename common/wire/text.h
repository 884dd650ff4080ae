/* text - text that may be shown on a terminal: UTF-8 without characters that control one.
 *
 * Threads: any; pure. */
#ifndef WIRE_TEXT_H
#define WIRE_TEXT_H

#include <stddef.h>

/* Bytes of the character that `s` (NUL-terminated) starts with, or 0 when it is broken UTF-8, a
 * control character (C0, C1, DEL) or one that reorders text.  *s must not be NUL. */
size_t text_clean_char(const char *s);

#endif
