/* audit - audit.jsonl, the record of requests to the driver, and of peers that were not let in.
 *
 * One JSON object a line (report/lines.h), each with `event` and `time`:
 *
 *   event    field    value
 *   asked    request  the request; null: the line that came is no request
 *            uid      the asking process's user, by the kernel; -1: the kernel does not say
 *            pid      that process, by the kernel
 *            refused  the reason why the request was refused; null: it was granted
 *   refused  reason   the peer that was not let in or was sent away, and the reason
 *   omitted  count    so many peers were not let in since the line before, beyond the rate
 *
 * A process that asks the same again, as --watch does each second, has a line for the first time.
 * The log tells of a flood of strangers by a few lines and a number.  This file has a line for each
 * of the first AUDIT_BURST, and then for AUDIT_RATE a second; those beyond are counted, and the log
 * tells that once.  So a stranger can neither fill the disk's queue nor push the lines of `asked`
 * out of the file by a flood.
 *
 * Life:    audit_new -> audit_asked, audit_refused ... -> audit_flush -> audit_free.
 * Threads: one at a time. */
#ifndef REPORT_AUDIT_H
#define REPORT_AUDIT_H

#include <stdint.h>

#include "report/lines.h"

struct audit; /* opaque */

enum { AUDIT_BURST = 256, AUDIT_RATE = 10 /* a second */, AUDIT_ASKERS = 16 /* remembered */ };

struct audit *audit_new(struct lines *lines); /* takes lines */
void audit_free(struct audit *a);             /* NULL is fine */

/* Write how many peers have been left out since the last line, if any have. */
void audit_flush(struct audit *a);

/* `refused` NULL: the request was granted. */
void audit_asked(struct audit *a, const char *request, int64_t uid, int64_t pid,
                 const char *refused);
void audit_refused(struct audit *a, const char *reason);

#endif
