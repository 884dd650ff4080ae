/* picture_file - decoded pictures on disk: made once (data/picture_cache.h), and read by all ranks
 * and runs of a machine that train on the same pictures.
 *
 *     header    64 bytes: magic, version, is it whole, key, counts
 *     index     24 bytes for each picture: struct picture_entry
 *     pixels    RGB, row by row, of each picture, in the order in which they were made
 *
 * A picture has its entry once its pixels are on the disk, so a file that was not finished can be
 * gone on with.  Numbers are little-endian.  Nothing of a file is trusted: each entry is compared
 * with the file's length when it is read.
 *
 * Life:    picture_file_open -> use -> picture_file_close (fine on zeroes).
 * Threads: any may read.
 * Errors:  ERR_IO (unreadable), ERR_CORRUPT (it changed, or is damaged), ERR_NOMEM. */
#ifndef DATA_PICTURE_FILE_H
#define DATA_PICTURE_FILE_H

#include "base/hash.h"
#include "data/mapped.h"
#include "data/picture.h"

enum {
    PICTURE_FILE_NONE = 1,  /* picture_file_open: there is no such file, or it is not whole */
    PICTURE_FILE_OTHER = 2, /* it is of other pictures */
    PICTURE_FILE_LOST = 3,  /* picture_file_find: the picture could not be decoded */
};

struct picture_header {
    char magic[8];
    uint32_t version, is_whole;
    struct hash128 key; /* of all that the pixels follow from */
    int64_t n, end;     /* pictures; where the next pixels go */
    int64_t reserved[2];
};

struct picture_entry {
    uint64_t offset;                    /* of its pixels; 0: not yet made */
    uint32_t width, height;             /* as it is kept */
    uint32_t whole_width, whole_height; /* as its own file has it */
};

#define PICTURE_ENTRY_LOST UINT64_MAX /* an offset: there are no pixels */

struct picture_file {
    struct mapped file;
    int64_t n;
};

int picture_file_open(struct picture_file *out, const char *path, struct hash128 key, int64_t n,
                      struct err *err);
void picture_file_close(struct picture_file *f);

/* The entry of picture i, which is within the file; or PICTURE_FILE_LOST. */
int picture_file_find(const struct picture_file *f, int64_t i, struct picture_entry *out,
                      struct err *err);

/* Read the pixels of a picture as they are kept, rgb [height,width,3]. */
int picture_file_read(const struct picture_file *f, const struct picture_entry *e, uint8_t *rgb,
                      struct err *err);

/* Resize what is in the box, which is in pixels of the picture's own file, to rgb
 * [to.height,to.width,3], as picture_read does. */
int picture_file_read_box(const struct picture_file *f, const struct picture_entry *e,
                          const struct picture_box *box, struct picture_size to, uint8_t *rgb,
                          struct err *err);

/* ---- for picture_cache.c ---- */

struct picture_header picture_file_header(struct hash128 key, int64_t n);
int picture_file_is_of(const struct picture_header *h, struct hash128 key, int64_t n);
int64_t picture_file_entry_at(
    int64_t i); /* the offset of an entry; that of entry n ends the index */

#endif
