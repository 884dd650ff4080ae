/* tar - the members of a tar archive, by their headers alone.
 *
 * Read are ustar, GNU's long names and pax's path, linkpath and size; names of TAR_NAME_BYTES or
 * more, and such headers of more than 1 MiB, are refused.  An archive must end by an empty header,
 * so that one that was cut short between two members is noticed.  All behind it must be empty: a
 * second archive there, as cat makes them, would go unread, and is refused.
 *
 * Life:    tar_open -> tar_next ... -> tar_close.
 * Threads: any, each with an archive of its own.
 * Errors:  ERR_IO (not a regular file, too), ERR_CORRUPT (no header where one is wanted, a bad
 *          checksum, the file ends early; the offset is named), ERR_NOMEM; they begin with the
 *          path. */
#ifndef DATA_TAR_H
#define DATA_TAR_H

#include <stdint.h>

#include "base/err.h"

enum { TAR_END = 1, TAR_NAME_BYTES = 1024 };

enum tar_kind {
    TAR_FILE,
    TAR_HARD_LINK,     /* to an earlier member, whose content it shares */
    TAR_SYMBOLIC_LINK, /* to any path */
    TAR_SPARSE,        /* a file without its holes: its content cannot be read in place */
    TAR_OTHER          /* a device, a pipe, a part of a file on another volume, ... */
};

struct tar_member {
    char name[TAR_NAME_BYTES]; /* its path in the archive */
    char link[TAR_NAME_BYTES]; /* where a link leads */
    enum tar_kind kind;
    int64_t offset, n_bytes; /* of its content in the file */
};

struct tar {
    int fd;
    const char *path; /* borrowed */
    int64_t at, n_bytes;
};

int tar_open(struct tar *t, const char *path, struct err *err);

/* The next member that is neither a folder nor the archive's label; TAR_END after the last one. */
int tar_next(struct tar *t, struct tar_member *m, struct err *err);

/* Read n bytes at this offset of the archive. */
int tar_read(const struct tar *t, int64_t offset, void *to, int64_t n, struct err *err);
void tar_close(struct tar *t);

#endif
