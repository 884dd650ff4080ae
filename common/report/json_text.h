/* json_text - a text that may have come from a peer or a user, as a JSON string.
 *
 * Threads: any; no state. */
#ifndef REPORT_JSON_TEXT_H
#define REPORT_JSON_TEXT_H

#include <jansson.h>

/* A new string, in which base/text.h has replaced what is no character in one line; JSON's null for
 * NULL. */
json_t *json_text(const char *text);

#endif
