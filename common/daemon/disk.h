/* disk - the thread that writes a daemon's files, and a timer on the loop that tells the operator
 * when the disk does not answer.
 *
 * Life:    disk_open -> tasks are put to `writer` ... -> disk_flush -> disk_close.  The loop must
 *          still run after disk_close.
 * Threads: the loop's; `writer` takes tasks from any. */
#ifndef DAEMON_DISK_H
#define DAEMON_DISK_H

#include <uv.h>

#include "base/err.h"
#include "base/writer.h"

enum { DISK_PATIENCE_MS = 5000 }; /* for the disk at the end, and before the operator is told */

struct disk {
    struct writer *writer;
    uv_timer_t timer;
    const char *where; /* for messages; NULL: not known yet */
    double busy_s;     /* the longest of the hang that was told; 0: none was */
};

/* n_ranks: each may have an event at the same time. */
int disk_open(struct disk *d, uv_loop_t *loop, int64_t n_ranks, struct err *err);

/* Wait until all is written: 0, or WRITER_LATE after DISK_PATIENCE_MS. */
int disk_flush(struct disk *d);

/* End the thread; the writer has been flushed. */
void disk_close(struct disk *d);

#endif
