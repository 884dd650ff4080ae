/* exec - report.exec: a command of the user's that gets each event and each row of metrics.csv as a
 * line of JSON on its standard input.
 *
 * `sh -c` runs it, with DPTRAIN_RUN (the run directory's last part) and DPTRAIN_RUN_DIR in its
 * environment, and with both its outputs on the driver's standard error.  A thread of its own feeds
 * it, so it holds up nothing.  A command that has ended is started again, after a pause of 1 s,
 * which doubles up to 60 s until one has lived for a minute; the lines that it had not read wholly
 * are given again.  Rows are gathered for EXEC_GATHER_MS, and go at once with the next event or the
 * end.  Meanwhile, and where it reads too slowly, EXEC_QUEUE bytes of lines wait for it.
 * More are lost: they are counted, and a `warning` line with their number stands in their place.
 *
 * Life:    exec_new -> exec_hear ... -> exec_end -> exec_await ... -> exec_free.  At the end the
 *          command gets what is queued, then the end of its input.  After its grace it gets
 *          SIGTERM, and SIGKILL EXEC_TERM_MS later.  exec_hasten shortens the grace.  It gets
 *          SIGTERM, too, when the driver is killed.  The log tells how many lines it did not read.
 * Threads: one at a time.
 * Errors:  exec_new: ERR_IO, ERR_NOMEM.  A command that cannot be started is tried again, and the
 *          log says so. */
#ifndef DRIVER_EXEC_H
#define DRIVER_EXEC_H

#include <stddef.h>

#include "base/err.h"

enum {
    EXEC_QUEUE = 1 << 20,
    EXEC_GATHER_MS = 1000,
    EXEC_GRACE_MS = 30000,
    EXEC_SHORT_MS = 2000, /* the grace in a job that is stopped */
    EXEC_TERM_MS = 2000,
};

struct exec; /* opaque */

/* grace_ms: EXEC_GRACE_MS, in which a tracker may also send what it has gathered; or a test's. */
int exec_new(const char *command, const char *run_dir, int grace_ms, struct exec **out,
             struct err *err);

/* An events_hear; arg: the exec. */
void exec_hear(void *arg, const char *line, size_t n, int is_row);

/* No more lines come.  Does not wait. */
void exec_end(struct exec *x);

/* The same, and the grace is at most grace_ms from now on; 0: SIGKILL at once. */
void exec_hasten(struct exec *x, int grace_ms);

/* After exec_end: 1: the command has ended.  0: it has not within this time. */
int exec_await(struct exec *x, int ms);

/* Wait until the command has ended; NULL is fine. */
void exec_free(struct exec *x);

#endif
