/* gzin - bytes from a file or from memory, in order, decompressed when they are gzip's.
 *
 * Compressed data are recognised by their first two bytes, 1f 8b.  Several gzip members are one
 * stream, as for gunzip; anything else after the last one is an error, as are a wrong checksum and
 * an early end. Data goes straight to where the caller wants it; nothing is read ahead but one
 * block of input.
 *
 * Life:    gzin_open_file or gzin_open_memory -> gzin_read ... -> gzin_close.
 * Threads: one at a time.
 * Errors:  ERR_IO (missing, not a regular file, unreadable), ERR_CORRUPT (compression damaged). */
#ifndef DATA_GZIN_H
#define DATA_GZIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gzin;

int gzin_open_file(struct gzin **out, const char *path, struct err *err);
int gzin_open_memory(struct gzin **out, const uint8_t *bytes, size_t n_bytes, /* borrowed */
                     struct err *err);
void gzin_close(struct gzin *g); /* NULL is fine */

/* Read up to `n` bytes into dst.  *got < n only at the end of the data, which were then found
 * sound. */
int gzin_read(struct gzin *g, void *dst, size_t n, size_t *got, struct err *err);

/* The most bytes that can still come.  Exact for plain data; for gzip's, the most that the
 * compressed bytes that are left could hold (deflate gives at most 1032 bytes for one). */
int64_t gzin_most_left(const struct gzin *g);

int gzin_compressed(const struct gzin *g);

#endif
