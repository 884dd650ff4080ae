/* file - durable files: written in full, on disk when a call returns, or an error.
 *
 * Threads: any.
 * Errors:  ERR_IO with the path and the system's reason; ERR_CORRUPT for a file that the disk
 * cannot read, as with a bad sector, or that ends too early. */
#ifndef CKPT_FILE_H
#define CKPT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

/* Make a new file (it must not exist), open for file_put; *fd is its descriptor. */
int file_create(const char *path, int *fd, struct err *err);
/* The same; errors call it `name`, which it will be renamed to. */
int file_create_as(const char *path, const char *name, int *fd, struct err *err);
/* Open a file that another process made, for file_read_at and file_put_at.  A link is refused. */
int file_join(const char *path, int *fd, struct err *err);
/* 1: the file is on NFS, where processes on two machines must not write to one page.  A machine
 * that writes a part of a page may send the whole page, and so undo what the other one wrote there.
 */
int file_is_on_nfs(int fd);
/* Write all n_bytes, however write(2) cuts them. */
int file_put(int fd, const char *path, const void *data, size_t n_bytes, struct err *err);
/* The same from offset `at` on, whatever the file's length. */
int file_put_at(int fd, const char *path, const void *data, size_t n_bytes, int64_t at,
                struct err *err);
/* fsync and close; the file is closed also if that fails. */
int file_finish(int fd, const char *path, struct err *err);

int file_sync_folder(const char *path, struct err *err);
int file_make_folder(const char *path, struct err *err); /* exists already: fine */

/* Let two folders change places.  `to` may be missing: then `from` is moved there.  File systems
 * that cannot do that in one step (NFS, exFAT) do it in three, and `to` is called TO.old meanwhile.
 * If the last of these fails, the exchange counts, and what was `to` stays TO.old. */
int file_exchange(const char *from, const char *to, struct err *err);
/* `to` is missing, and TO.old is there because a crash came between the three steps: move it back.
 * If both are there, the exchange counts, and TO.old can be removed. */
void file_exchange_mend(const char *to);

/* Open a file of *n_bytes to be read.  ERR_CORRUPT: there is something else; a FIFO is not waited
 * for. */
int file_open(const char *path, int *fd, int64_t *n_bytes, struct err *err);
/* Have the next reads of a file that is on disk come from there: drop what the system's memory has
 * of it, where the system can. */
void file_drop_cache(int fd);
/* The hash of the first n_bytes. */
int file_hash(int fd, const char *path, int64_t n_bytes, struct hash128 *out, struct err *err);
/* Fails with ERR_CORRUPT if the bytes of the file, as the disk gives them, have another hash. */
int file_check_hash(const char *path, struct hash128 want, struct err *err);
/* Read n_bytes from offset `at`.  mmap would do, too, but a bad sector would end the process by
 * SIGBUS. */
int file_read_at(int fd, const char *path, void *out, size_t n_bytes, int64_t at, struct err *err);

/* Remove a folder of plain files and links (no folders inside); not there: fine.  Of a link in its
 * place the link is removed, and what it points to stays. */
int file_remove_folder(const char *path, struct err *err);

#endif
