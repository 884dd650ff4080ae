/* picture_file - reads the file of decoded pictures: an entry by one call of the system, and the
 * rows that are wanted by another (data/mapped.h says why they are not read in memory). */
#include "data/picture_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"
#include "data/pixels.h"

enum { PICTURE_FILE_VERSION = 1, PICTURE_FILE_HEADER = 64, PICTURE_FILE_ENTRY = 24 };

_Static_assert(sizeof(struct picture_header) == PICTURE_FILE_HEADER, "the header's size");
_Static_assert(sizeof(struct picture_entry) == PICTURE_FILE_ENTRY, "an entry's size");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's numbers are little-endian");

static const char picture_magic[8] = "dppixels";

/* ---- the header ---- */

struct picture_header picture_file_header(struct hash128 key, int64_t n)
{
    struct picture_header h = {
        .version = PICTURE_FILE_VERSION, .key = key, .n = n, .end = picture_file_entry_at(n)};

    memcpy(h.magic, picture_magic, sizeof h.magic);
    return h;
}

int picture_file_is_of(const struct picture_header *h, struct hash128 key, int64_t n)
{
    return !memcmp(h->magic, picture_magic, sizeof h->magic) &&
           h->version == PICTURE_FILE_VERSION && hash_equal(h->key, key) && h->n == n &&
           h->end >= picture_file_entry_at(n);
}

int64_t picture_file_entry_at(int64_t i) { return PICTURE_FILE_HEADER + i * PICTURE_FILE_ENTRY; }

int picture_file_open(struct picture_file *out, const char *path, struct hash128 key, int64_t n,
                      struct err *err)
{
    struct picture_header h = {.is_whole = 0};

    *out = (struct picture_file){.n = n};
    if (access(path, R_OK) < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
        return PICTURE_FILE_NONE;
    if (mapped_open(&out->file, path, err) < 0)
        return err->code;
    if (out->file.n_bytes >= sizeof h)
        memcpy(&h, out->file.bytes, sizeof h);
    if (h.is_whole && picture_file_is_of(&h, key, n) && h.end <= (int64_t)out->file.n_bytes)
        return 0;
    picture_file_close(out);
    return h.is_whole && !hash_equal(h.key, key) ? PICTURE_FILE_OTHER : PICTURE_FILE_NONE;
}

void picture_file_close(struct picture_file *f) { mapped_close(&f->file); }

/* ---- pictures ---- */

static int picture_entry_is_sound(const struct picture_file *f, const struct picture_entry *e)
{
    const uint64_t n_bytes = f->file.n_bytes;

    return e->width > 0 && e->height > 0 && e->width <= e->whole_width &&
           e->height <= e->whole_height &&
           e->whole_width <= (uint32_t)PICTURE_MOST_PIXELS / e->whole_height &&
           e->offset >= (uint64_t)picture_file_entry_at(f->n) && e->offset <= n_bytes &&
           (uint64_t)e->width * e->height * PICTURE_CHANNELS <= n_bytes - e->offset;
}

int picture_file_find(const struct picture_file *f, int64_t i, struct picture_entry *out,
                      struct err *err)
{
    const size_t at = (size_t)picture_file_entry_at(i);

    ASSERT(i >= 0 && i < f->n);
    if (mapped_read(&f->file, at, out, sizeof *out, err) < 0)
        return err->code;
    if (out->offset == PICTURE_ENTRY_LOST)
        return PICTURE_FILE_LOST;
    return picture_entry_is_sound(f, out)
               ? 0
               : err_set(err, ERR_CORRUPT,
                         "file %s: offset %zu: damaged; remove it, and it is made anew",
                         f->file.path, at);
}

int picture_file_read(const struct picture_file *f, const struct picture_entry *e, uint8_t *rgb,
                      struct err *err)
{
    return mapped_read(&f->file, e->offset, rgb, (size_t)e->width * e->height * PICTURE_CHANNELS,
                       err);
}

int picture_file_read_box(const struct picture_file *f, const struct picture_entry *e,
                          const struct picture_box *box, struct picture_size to, uint8_t *rgb,
                          struct err *err)
{
    const double across = (double)e->width / e->whole_width,
                 down = (double)e->height / e->whole_height;
    const struct picture_box b = {box->x * across, box->y * down, box->width * across,
                                  box->height * down};
    const size_t row_bytes = (size_t)e->width * PICTURE_CHANNELS;
    struct pixels p = {.whole_width = e->width,
                       .whole_height = e->height,
                       .row_bytes = (int64_t)row_bytes,
                       .scale = 1};
    void *rows = NULL;
    int rc;

    pixels_around(&p, &b, to);
    rc = try_realloc(&rows, row_bytes * (size_t)p.height, "rows of a picture", err);
    if (rc == 0)
        rc = mapped_read(&f->file, e->offset + (size_t)p.y * row_bytes, rows,
                         row_bytes * (size_t)p.height, err);
    if (rc == 0) {
        p.rgb = (uint8_t *)rows + p.x * PICTURE_CHANNELS;
        rc = pixels_resize(&p, &b, to, rgb, err);
    }
    free(rows);
    return rc;
}
