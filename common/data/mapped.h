/* mapped - a file's bytes, read from the disk only where they are wanted, so that a file may be
 * larger than memory.
 *
 * While a data set is opened, its bytes are looked at in memory.  Samples are then read by
 * mapped_read: if somebody cuts a file short during training, the system ends a process that
 * touches what is missing in memory (SIGBUS), but mapped_read says so.  A handler of that signal
 * would have to jump out of the middle of a copy; one call of the system for each sample costs a
 * microsecond.
 *
 * Life:    mapped_open -> use -> mapped_close (fine on zeroes).
 * Threads: any may read.
 * Errors:  ERR_IO (missing, unreadable), ERR_ARG (not a file), ERR_CORRUPT (it became shorter). */
#ifndef DATA_MAPPED_H
#define DATA_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mapped {
    const uint8_t *bytes; /* NULL: the file is empty */
    size_t n_bytes;
    int fd;     /* open while bytes is not NULL */
    char *path; /* for messages */
};

int mapped_open(struct mapped *out, const char *path, struct err *err);
/* Read bytes [offset, offset + n), which were in the file when it was opened. */
int mapped_read(const struct mapped *m, size_t offset, void *to, size_t n, struct err *err);
void mapped_close(struct mapped *m);

#endif
