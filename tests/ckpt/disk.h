/* disk - the calls by which checkpoints are written, seen on their way to the kernel.
 *
 * A test program is linked with --wrap for each of them (meson.build).  It can record them, as
 * operations on paths inside one folder.  It can also make the n-th of them fail, or do only a
 * part.
 *
 * Threads: one. */
#ifndef TESTS_CKPT_DISK_H
#define TESTS_CKPT_DISK_H

#include <stddef.h>

enum disk_op_kind {
    DISK_CREATE, /* path: a new, empty file */
    DISK_WRITE,  /* data is added at the end of path */
    DISK_FSYNC,  /* path: a file or a folder */
    DISK_MKDIR,
    DISK_RENAME,   /* path -> to */
    DISK_EXCHANGE, /* path <-> to */
    DISK_SYMLINK,  /* path is a link to `to` */
    DISK_UNLINK,
    DISK_RMDIR,
    DISK_MARK, /* made by disk_mark, between the others */
};

struct disk_op {
    enum disk_op_kind kind;
    char path[128], to[128]; /* relative to the folder; "" is the folder itself */
    void *data;
    size_t len;
};

void disk_record(const char *folder); /* record from now on; NULL: stop, and forget all */
void disk_mark(void);
const struct disk_op *disk_ops(int *n);

/* The n-th call from now on (1: the next) fails with errnum; 0: a write does only its first half.
 * n 0: none fails. */
void disk_fail_at(int n, int errnum);
/* The disk is one without links and without an exchange of folders: symlink fails with errnum.  0:
 * it has both. */
void disk_be_plain(int errnum);
int disk_has_failed(void); /* a call has failed since disk_fail_at */

#endif
