/* lines - a file of JSON lines that only grows, such as events.jsonl: each line is one write(2).
 *
 * Lines go through a writer (base/writer.h), in order, so that a disk that hangs holds up no other
 * thread. A line is lost when the writer's queue, or this file's part of it, has no room for it, or
 * when the disk is full or fails; a line that was written in part is taken back.  The lost lines
 * are counted, and the log tells the reason once.  Before the next line that can be written stands
 * a `warning` with their number.
 *
 * The file is bounded: before it would pass `most_bytes` it becomes FILE.1, an older FILE.1 becomes
 * FILE.2, and so on; what was FILE.LINES_OLD is removed.
 *
 * Nothing is written, and the log says so once, when another driver owns the run directory
 * (ckpt/owner.h).
 *
 * Life:    lines_new -> lines_add ... -> lines_flush -> lines_free, when the writer has done all.
 * Threads: one adds; any may ask for numbers. */
#ifndef REPORT_LINES_H
#define REPORT_LINES_H

#include <stdint.h>

#include "base/err.h"
#include "base/writer.h"

struct lines; /* opaque */

enum { LINES_OLD = 4 };

struct lines_options {
    const char *path;      /* of the file */
    const char *run_dir;   /* its folder; NULL: the folder has no owner */
    const char *what;      /* "an event", for messages */
    int64_t most_bytes;    /* of one file */
    int64_t most_queued;   /* bytes of this file's lines in the writer's queue; 0: no bound */
    int64_t owner_ms;      /* the owner is read at most once in this time; 0: before each line */
    int wants_lock;        /* another process holds the lock (flock) on fd; see lines_check_owner */
    struct writer *writer; /* NULL: lines_add writes itself */
};

/* `fd`: open for appending; taken.  A lock (flock) on it is kept when the file is replaced. */
struct lines *lines_new(int fd, const struct lines_options *o);
void lines_free(struct lines *l); /* NULL is fine */

/* Open `path` for appending, and make it if it is not there.  A torn last line is cut. */
int lines_open(const char *path, int *fd, struct err *err);

/* Add a line; `text` is without its end. */
void lines_add(struct lines *l, const char *text);

/* Wait until the lines so far, and the number of the lost ones, are written: 0, or WRITER_LATE. */
int lines_flush(struct lines *l, int64_t patience_ms);

/* 1: another driver owns the directory.  The file that says so is read on the writer's thread,
 * after this call: ask again.  Each such look, and each line, also tries to lock a file that
 * wants_lock. */
int lines_check_owner(struct lines *l);

int64_t lines_lost(struct lines *l); /* lines that are not in the file */

/* The I-th oldest of the files that hold the lines of `path`, which is the last, number LINES_OLD;
 * for free().  Not all of them need exist. */
char *lines_part(const char *path, int i);

/* Call each(arg, line, n) for the lines in all of these files, the oldest first.  `line` ends with
 * a zero; n counts the line's end, if it has one.  Threads: any.  ERR_IO: one of them cannot be
 * read; the others are. */
int lines_each(const char *path, void (*each)(void *arg, const char *line, size_t n), void *arg,
               struct err *err);

#endif
