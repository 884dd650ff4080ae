/* new_file - a file that is there whole or not at all, written from its beginning to its end.
 *
 * It is written to PATH.ID.new (ID: ckpt/owner.h), and renamed at the end.  A driver that is killed
 * meanwhile leaves that file, which can be removed.
 *
 * Life:    new_file_begin -> new_file_put ... -> new_file_end -> new_file_drop, in any case.
 * Threads: one at a time.
 * Errors:  ERR_IO names the path; ERR_CONFIG: another file is there, or none can be made. */
#ifndef EXPORT_NEW_FILE_H
#define EXPORT_NEW_FILE_H

#include <stddef.h>

#include "base/err.h"

struct new_file { /* all private */
    char *path, *aside;
    int fd;      /* -1: none */
    int is_made; /* `path` is a file of ours */
};

/* A file that was not begun, which may be dropped. */
void new_file_init(struct new_file *f);

/* Check that a file can be made at `path`, and that there is none.  An error's text says so. */
int new_file_check(const char *path, struct err *err);

int new_file_begin(struct new_file *f, const char *path, struct err *err);
int new_file_put(struct new_file *f, const void *data, size_t n_bytes, struct err *err);
int new_file_end(struct new_file *f, struct err *err);
void new_file_take_back(struct new_file *f); /* remove it if it has been made */
void new_file_drop(struct new_file *f);

#endif
