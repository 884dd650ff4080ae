/* audit - audit.jsonl, the record of who asked the driver for something, and of who was not let in.
 *
 * One JSON object a line (report/lines.h), each with `event` and `time`:
 *   asked    request (null: no request at all), uid and pid of the process that asked, as the
 * kernel tells them (-1: it does not), refused: why it was, or null refused  reason: which peer was
 * not let in, or was sent away, and why The log tells of a flood of strangers by a few lines and a
 * number; here stands each of them.
 *
 * Life:    audit_new -> audit_asked, audit_refused ... -> audit_free.
 * Threads: one at a time. */
#ifndef REPORT_AUDIT_H
#define REPORT_AUDIT_H

#include <stdint.h>

#include "report/lines.h"

struct audit; /* opaque */

struct audit *audit_new(struct lines *lines); /* takes lines */
void audit_free(struct audit *a);             /* NULL is fine */

/* `refused` NULL: the request was granted. */
void audit_asked(struct audit *a, const char *request, int64_t uid, int64_t pid,
                 const char *refused);
void audit_refused(struct audit *a, const char *reason);

#endif
