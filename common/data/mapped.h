/* mapped - a file's bytes in memory, read from the disk only where they are touched, so that a file
 * may be larger than memory.
 *
 * Life:    mapped_open -> use -> mapped_close (fine on zeroes).  The file must not become shorter
 *          meanwhile: the system would end the process.
 * Threads: any may read.
 * Errors:  ERR_IO (missing, unreadable), ERR_ARG (not a file). */
#ifndef DATA_MAPPED_H
#define DATA_MAPPED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mapped {
    const uint8_t *bytes; /* NULL: the file is empty */
    size_t n_bytes;
};

int mapped_open(struct mapped *out, const char *path, struct err *err);
void mapped_close(struct mapped *m);

#endif
