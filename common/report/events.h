/* events - events.jsonl, the machine-readable record of a run.
 *
 * One JSON object a line, each written by one write(2) to a file opened with O_APPEND, so a reader
 * sees whole lines only.  A killed driver leaves at most one torn line, which report/run_dir cuts
 * on --resume, and loses the lines that wait for the disk.  Every object has `event` and `time`
 * (Unix seconds).  Names and fields are a contract with users' scripts: add, never change.  A
 * number that is not finite is written as null; one that was not measured is left out.
 *
 * Life:    events_new -> events_add ... -> events_free.
 * Threads: one at a time.
 * Errors:  a line that cannot be written is counted, and the log says so (report/lines.h).  The job
 *          goes on. */
#ifndef REPORT_EVENTS_H
#define REPORT_EVENTS_H

#include <stdint.h>

#include "report/lines.h"
#include "session/action.h"

struct events; /* opaque */

/* `lines` is taken; `device` is rank 0's. */
struct events *events_new(struct lines *lines, const char *device);
void events_free(struct events *e); /* NULL is fine */

enum { EVENTS_LISTENERS = 4 };

/* Hears one line of JSON, n bytes and a '\0', without the line's end. */
typedef void events_hear(void *arg, const char *line, size_t n, int is_row);

/* From now on `hear` gets each line as it is handed to the file, whether or not the disk takes it.
 * With hears_rows it also gets each row of metrics.csv, as an object with the event "row" and the
 * row's columns; rows are not written to events.jsonl.  At most EVENTS_LISTENERS. */
void events_listen(struct events *e, events_hear *hear, void *arg, int hears_rows);

/* Write one event, and let the listeners hear it.  EVENT_PROGRESS, EVENT_REFUSED, EVENT_SPANS and
 * EVENT_TRACED do not belong to the record and are skipped.  EVENT_ROW goes to listeners alone. */
void events_add(struct events *e, const struct session_event *ev);

/* Wait until the events so far are written: 0, or WRITER_LATE. */
int events_flush(struct events *e, int64_t patience_ms);

/* As lines_check_owner. */
int events_check_owner(struct events *e);

int64_t events_lost(struct events *e); /* those that are not in the file */

#endif
