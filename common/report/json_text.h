/* json_text - a text that may have come from a peer or a user, as a JSON string; and an object as a
 * line of a file.
 *
 * Threads: any; no state. */
#ifndef REPORT_JSON_TEXT_H
#define REPORT_JSON_TEXT_H

#include <jansson.h>

#include "report/lines.h"

/* A new string, in which base/text.h has replaced what is no character in one line; JSON's null for
 * NULL. */
json_t *json_text(const char *text);

/* The object as text in one line, for free().  Takes o. */
char *json_text_of(json_t *o);

/* Add the object to the file as one line.  Takes o. */
void json_text_line(struct lines *l, json_t *o);

#endif
