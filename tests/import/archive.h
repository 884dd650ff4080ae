/* archive - writes zip archives as PyTorch does: stored members, whose sizes and checksums stand in
 * the central directory alone.
 *
 * Life:    a zeroed archive -> archive_add ... -> archive_end -> archive_fini.
 * Threads: one at a time. */
#ifndef TESTS_IMPORT_ARCHIVE_H
#define TESTS_IMPORT_ARCHIVE_H

#include <string.h>
#include <zlib.h>

#include "base/buf.h"

struct archive {
    struct buf file, directory;
    int n;
};

static inline void archive_number(struct buf *b, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++, v >>= 8)
        buf_append(b, &(uint8_t){(uint8_t)v}, 1);
}

/* Version, flags, method, time and date. */
static inline void archive_start(struct buf *b)
{
    archive_number(b, 20, 2);
    archive_number(b, 0x0808, 2);
    archive_number(b, 0, 2);
    archive_number(b, 0, 4);
}

static inline void archive_add(struct archive *a, const char *name, const void *data, size_t len)
{
    const size_t at = a->file.len;

    archive_number(&a->file, 0x04034b50, 4);
    archive_start(&a->file);
    archive_number(&a->file, 0, 12);
    archive_number(&a->file, strlen(name), 2);
    archive_number(&a->file, 0, 2);
    buf_append(&a->file, name, strlen(name));
    buf_append(&a->file, data, len);
    archive_number(&a->directory, 0x02014b50, 4);
    archive_number(&a->directory, 0, 2);
    archive_start(&a->directory);
    archive_number(&a->directory, len ? crc32_z(0, data, len) : 0, 4);
    archive_number(&a->directory, len, 4);
    archive_number(&a->directory, len, 4);
    archive_number(&a->directory, strlen(name), 2);
    archive_number(&a->directory, 0, 12); /* no extra field, no comment, attributes */
    archive_number(&a->directory, at, 4);
    buf_append(&a->directory, name, strlen(name));
    a->n++;
}

static inline void archive_text(struct archive *a, const char *name, const char *text)
{
    archive_add(a, name, text, strlen(text));
}

/* Append the directory.  is_64: its place stands in zip64's record alone. */
static inline void archive_end(struct archive *a, int is_64)
{
    const size_t at = a->file.len, len = a->directory.len;

    buf_append(&a->file, a->directory.data, len);
    if (is_64) {
        archive_number(&a->file, 0x06064b50, 4);
        archive_number(&a->file, 44, 8);
        archive_number(&a->file, 0, 12);
        archive_number(&a->file, (uint64_t)a->n, 8);
        archive_number(&a->file, (uint64_t)a->n, 8);
        archive_number(&a->file, len, 8);
        archive_number(&a->file, at, 8);
        archive_number(&a->file, 0x07064b50, 4);
        archive_number(&a->file, 0, 4);
        archive_number(&a->file, at + len, 8);
        archive_number(&a->file, 1, 4);
    }
    archive_number(&a->file, 0x06054b50, 4);
    archive_number(&a->file, 0, 4);
    archive_number(&a->file, is_64 ? 0xffff : (uint64_t)a->n, 2);
    archive_number(&a->file, is_64 ? 0xffff : (uint64_t)a->n, 2);
    archive_number(&a->file, is_64 ? 0xffffffff : len, 4);
    archive_number(&a->file, is_64 ? 0xffffffff : at, 4);
    archive_number(&a->file, 0, 2);
}

static inline void archive_fini(struct archive *a)
{
    buf_fini(&a->file);
    buf_fini(&a->directory);
}

#endif
