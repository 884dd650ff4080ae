/* live - the history of a run that goes on: what its files told when it began, and what is heard
 * since.
 *
 * The past is read by the disk's thread, between the writes to these files before live_new and
 * those after it.  So no line is missed or read twice, and a run of a million rows holds up nobody.
 * Until then what is heard waits.  If the disk hangs, so that more than LIVE_HELD bytes wait, the
 * history begins with what was heard, and the log says so.
 *
 * Life:    live_new -> live_hear, live_now ... -> live_free, at any time.
 * Threads: one at a time.
 * Errors:  none; files that cannot be read are told in the log, and the history begins then. */
#ifndef SEE_LIVE_H
#define SEE_LIVE_H

#include "base/writer.h"
#include "see/history.h"

enum { LIVE_HELD = 1 << 20 };

struct live; /* opaque */

/* disk: the writer of the run directory's files. */
struct live *live_new(const char *run_dir, struct writer *disk);
void live_free(struct live *l); /* NULL is fine */

/* Add a line as events_hear gets it (report/events.h). */
void live_hear(struct live *l, const char *line, size_t n);

/* 1: *out is the history so far, which borrows from l until l is changed.  0: the past is still
 * being read. */
int live_now(struct live *l, struct history *out);

#endif
