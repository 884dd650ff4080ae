/* traces - collects what the ranks recorded, and has the disk's thread write trace.json; later
 * records of the same run are trace-2.json, trace-3.json.
 *
 * Life:    traces_open -> traces_event ... -> traces_end, before the writer is flushed for the last
 *          time -> traces_free.
 * Threads: one at a time.
 * Errors:  a record that cannot be written is left out, and the log says so. */
#ifndef DRIVER_TRACES_H
#define DRIVER_TRACES_H

#include "base/writer.h"
#include "session/action.h"

struct traces; /* opaque */

struct traces *traces_open(const char *run_dir, const char *run, struct writer *disk);

/* An event that may concern a record. */
void traces_event(struct traces *t, const struct session_event *ev);

/* Write what has come of records that are not whole. */
void traces_end(struct traces *t);
void traces_free(struct traces *t); /* NULL is fine */

#endif
