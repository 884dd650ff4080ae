/* writer - a thread that does slow writes for threads that must not wait for a disk or a terminal.
 *
 * A task is a heap object that starts with `struct task`.  Tasks run one after another, in the
 * order in which they were put.  The queue is bounded in bytes, so that a disk that hangs does not
 * eat the memory: a task that does not fit is not taken, and its owner counts it.  A crash of the
 * process loses what is queued.
 *
 * A call in the kernel on a disk that hangs cannot be broken off.  So all waits here have a
 * deadline, and a thread that hangs is left behind when the process ends.
 *
 * Life:    writer_new -> writer_put ... -> writer_free.  A NULL writer is fine: a task that is put
 *          there runs at once, in the calling thread.
 * Threads: any may call writer_put, writer_flush and writer_busy_s; a task runs in the writer's.
 * Lock:    one mutex for the numbers of tasks and bytes; the condition says that a task is done. */
#ifndef BASE_WRITER_H
#define BASE_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mailbox.h"

struct writer; /* opaque */

struct task {
    struct mail mail;            /* the writer's */
    size_t n_bytes;              /* what counts against the bound */
    void (*run)(struct task *t); /* does it, and frees it */
};

enum {
    WRITER_FULL = 1, /* an outcome: the task was not taken */
    WRITER_LATE = 2, /* an outcome: not done within the patience */
};

/* The queue holds `most_bytes`; a larger task is taken when nothing else is queued.  ERR_NOMEM. */
int writer_new(size_t most_bytes, struct writer **out, struct err *err);

/* 0: takes t.  WRITER_FULL: t is still the caller's. */
int writer_put(struct writer *w, struct task *t);

/* Wait until all that was put before is done: 0, or WRITER_LATE. */
int writer_flush(struct writer *w, int64_t patience_ms);

/* For how many seconds the present task has been running; 0: there is none. */
double writer_busy_s(struct writer *w);

/* 1: tasks wait for the present one. */
int writer_is_behind(struct writer *w);

/* Do what is queued, end the thread and free the writer: 0.  WRITER_LATE: the thread hangs; it and
 * the writer stay, and the process should end soon. */
int writer_free(struct writer *w, int64_t patience_ms);

#endif
