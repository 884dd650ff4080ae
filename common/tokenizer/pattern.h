/* pattern - the regular expressions and literal texts of a tokenizer.json.
 *
 * The file's expressions are in the syntax of Oniguruma (Ruby's), and PCRE2 runs them.  Where both
 * write the same and mean something else, as by \s, the expression is rewritten; what cannot be is
 * refused.
 *
 * Life:    pattern_new -> pattern_find with a pattern_room of the thread's -> pattern_free.
 * Threads: any may find, each with a room of its own.
 * Errors:  ERR_CONFIG (an expression that is not supported), ERR_CORRUPT (one that takes too long
 *          on a text). */
#ifndef TOKENIZER_PATTERN_H
#define TOKENIZER_PATTERN_H

#include <stddef.h>

#include "base/err.h"

struct pattern;
struct pattern_room;

int pattern_new(struct pattern **out, const char *text, size_t n, int is_literal, struct err *err);
void pattern_free(struct pattern *p); /* NULL is fine */

struct pattern_room *pattern_room_new(void);
void pattern_room_free(struct pattern_room *room);

/* The first match in s[from..n), which is never empty; s is well-formed UTF-8, and what lies before
 * `from` is seen by lookbehind.  1: *start and *end say where it is; 0: there is none. */
int pattern_find(const struct pattern *p, struct pattern_room *room, const char *s, size_t n,
                 size_t from, size_t *start, size_t *end, struct err *err);

#endif
