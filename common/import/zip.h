/* zip - the stored members of a zip archive, by its central directory.
 *
 * Archives of PyTorch leave the sizes out of the headers that stand before the members, so that
 * the central directory alone counts; zip64 is read, too.  Offsets and sizes are checked before
 * they are used.  A member that is compressed or encrypted, members that share bytes, and two of
 * one name are refused.
 *
 * Life:    zip_open or zip_parse -> use -> zip_close (NULL is fine).
 * Threads: any may read.
 * Errors:  ERR_IO (missing, unreadable), ERR_CONFIG (no zip archive: the message says what it looks
 *          like), ERR_CORRUPT (damaged, cut short); they begin with the path. */
#ifndef IMPORT_ZIP_H
#define IMPORT_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "data/mapped.h"

enum { ZIP_MAX_MEMBERS = 1000000 };

struct zip_member {
    const char *name;
    size_t header_at;   /* of its local header */
    size_t at, n_bytes; /* of its content in the file */
    uint32_t crc;
};

struct zip {
    const char *path;
    const uint8_t *bytes; /* the whole file */
    size_t n_bytes;
    struct mapped file;        /* of zip_open; zeroes otherwise */
    struct zip_member *member; /* by name */
    int n_members;
    struct arena arena;
};

int zip_open(const char *path, struct zip **out, struct err *err);
/* The same of bytes in memory, which must outlive the result; `path` is for messages. */
int zip_parse(const void *bytes, size_t n_bytes, const char *path, struct zip **out,
              struct err *err);
void zip_close(struct zip *z);

const struct zip_member *zip_find(const struct zip *z, const char *name); /* NULL: none */
/* Compare a member's content with its checksum.  Fails with ERR_CORRUPT. */
int zip_check(const struct zip *z, const struct zip_member *m, struct err *err);

#endif
