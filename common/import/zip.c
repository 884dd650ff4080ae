/* zip - the central directory: the record at the file's end leads to it, and each of its entries
 * to a local header, behind which the content lies.
 *
 * Numbers of 32 or 16 bits that are all ones stand in an extra field or in a second end record,
 * with 64 bits (zip64).  All offsets are size_t and are compared with what is left of the file, so
 * that no sum can overflow. */
#include "import/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"

enum {
    ZIP_END_BYTES = 22,
    ZIP_END64_BYTES = 56,
    ZIP_LOCATOR_BYTES = 20,
    ZIP_ENTRY_BYTES = 46,
    ZIP_LOCAL_BYTES = 30,
    ZIP_MAX_COMMENT = 65535,
};

#define ZIP_END     0x06054b50u
#define ZIP_END64   0x06064b50u
#define ZIP_LOCATOR 0x07064b50u
#define ZIP_ENTRY   0x02014b50u
#define ZIP_LOCAL   0x04034b50u

struct zip_directory {
    uint64_t n, at, n_bytes;
};

static uint64_t zip_number(const uint8_t *at, int n_bytes)
{
    uint64_t v = 0;

    for (int i = n_bytes; i-- > 0;)
        v = v << 8 | at[i];
    return v;
}

static int zip_damaged(const struct zip *z, struct err *err, const char *what)
{
    return err_set(err, ERR_CORRUPT,
                   "%s: %s; the zip archive is damaged or was cut short: export or copy it again",
                   z->path, what);
}

/* Say what a file without a zip's end looks like. */
static int zip_foreign(const struct zip *z, struct err *err)
{
    const uint8_t *b = z->bytes;

    if (z->n_bytes >= 4 && zip_number(b, 4) == ZIP_LOCAL)
        return zip_damaged(z, err, "it begins as a zip archive, but has no central directory");
    if (z->n_bytes >= 2 && b[0] == 0x80 && b[1] <= 5)
        return err_set(err, ERR_CONFIG,
                       "%s: this is a pickle of torch.save, want a file of torch.export.save; "
                       "export the network (deploy/examples/export.py)",
                       z->path);
    return err_set(err, ERR_CONFIG,
                   "%s: this is no zip archive (%zu bytes), want a file of torch.export.save; "
                   "export the network (deploy/examples/export.py)",
                   z->path, z->n_bytes);
}

/* The end record's place; z->n_bytes: there is none. */
static size_t zip_end_at(const struct zip *z)
{
    const size_t lowest = z->n_bytes > ZIP_END_BYTES + ZIP_MAX_COMMENT
                              ? z->n_bytes - ZIP_END_BYTES - ZIP_MAX_COMMENT
                              : 0;

    if (z->n_bytes < ZIP_END_BYTES)
        return z->n_bytes;
    for (size_t at = z->n_bytes - ZIP_END_BYTES + 1; at-- > lowest;) {
        const uint8_t *b = z->bytes + at;

        if (zip_number(b, 4) == ZIP_END && zip_number(b + 20, 2) == z->n_bytes - at - ZIP_END_BYTES)
            return at;
    }
    return z->n_bytes;
}

/* Replace the directory by what zip64's end record says, if there is one before `end`. */
static int zip_read_end64(const struct zip *z, size_t end, struct zip_directory *d, size_t *limit,
                          struct err *err)
{
    const uint8_t *b = z->bytes + end - ZIP_LOCATOR_BYTES;
    uint64_t at;

    if (end < ZIP_LOCATOR_BYTES || zip_number(b, 4) != ZIP_LOCATOR)
        return 0;
    at = zip_number(b + 8, 8);
    if (end < ZIP_LOCATOR_BYTES + ZIP_END64_BYTES ||
        at > end - ZIP_LOCATOR_BYTES - ZIP_END64_BYTES || zip_number(z->bytes + at, 4) != ZIP_END64)
        return zip_damaged(z, err, "its zip64 end record is not where it is said to be");
    b = z->bytes + at;
    *d =
        (struct zip_directory){zip_number(b + 32, 8), zip_number(b + 48, 8), zip_number(b + 40, 8)};
    *limit = (size_t)at;
    return 0;
}

static int zip_find_directory(const struct zip *z, struct zip_directory *d, struct err *err)
{
    const size_t end = zip_end_at(z);
    const uint8_t *b = z->bytes + end;
    size_t limit = end;

    if (end == z->n_bytes)
        return zip_foreign(z, err);
    *d =
        (struct zip_directory){zip_number(b + 10, 2), zip_number(b + 16, 4), zip_number(b + 12, 4)};
    if (zip_read_end64(z, end, d, &limit, err) < 0)
        return err->code;
    if (d->at > limit || d->n_bytes > limit - d->at)
        return zip_damaged(z, err, "its central directory does not lie in the file");
    if (d->n > ZIP_MAX_MEMBERS || d->n > d->n_bytes / ZIP_ENTRY_BYTES)
        return zip_damaged(z, err, "its central directory is too small for its members");
    return 0;
}

/* The numbers of an entry that zip64's extra field replaces, in the order of that field. */
struct zip_sizes {
    uint64_t n_bytes, n_stored, header_at;
};

static int zip_read_extra(const uint8_t *extra, size_t len, struct zip_sizes *s)
{
    while (len >= 4) {
        const uint64_t id = zip_number(extra, 2), size = zip_number(extra + 2, 2);

        if (size > len - 4)
            return -1;
        if (id == 1) {
            uint64_t *const number[] = {&s->n_bytes, &s->n_stored, &s->header_at};
            size_t at = 0;

            for (int i = 0; i < 3; i++) {
                if (*number[i] != 0xffffffffu)
                    continue;
                if (size - at < 8)
                    return -1;
                *number[i] = zip_number(extra + 4 + at, 8);
                at += 8;
            }
            return 0;
        }
        extra += 4 + size;
        len -= 4 + (size_t)size;
    }
    return 0;
}

/* Find the content of m behind its local header; `limit` is where the directory begins. */
static int zip_place(const struct zip *z, struct zip_member *m, const struct zip_sizes *s,
                     size_t limit, struct err *err)
{
    const uint8_t *b;
    size_t name_len, left;

    if (s->header_at > limit || limit - s->header_at < ZIP_LOCAL_BYTES)
        return zip_damaged(z, err, "a member does not lie in the file");
    b = z->bytes + s->header_at;
    name_len = (size_t)zip_number(b + 26, 2);
    left = limit - (size_t)s->header_at - ZIP_LOCAL_BYTES;
    if (zip_number(b, 4) != ZIP_LOCAL || name_len != strlen(m->name) || name_len > left ||
        memcmp(b + ZIP_LOCAL_BYTES, m->name, name_len) != 0)
        return zip_damaged(z, err, "a member's own header is not the one of the directory");
    left -= name_len;
    if (zip_number(b + 28, 2) > left || s->n_bytes > left - zip_number(b + 28, 2))
        return zip_damaged(z, err, "a member does not lie in the file");
    m->header_at = (size_t)s->header_at;
    m->at = limit - left + (size_t)zip_number(b + 28, 2);
    m->n_bytes = (size_t)s->n_bytes;
    return 0;
}

/* Read the entry at b, of which `left` bytes are in the directory.  Returns its length. */
static int zip_read_entry(struct zip *z, const uint8_t *b, size_t left, size_t limit,
                          struct err *err)
{
    struct zip_member *m = &z->member[z->n_members];
    const uint64_t flags = zip_number(b + 8, 2), method = zip_number(b + 10, 2);
    const size_t name_len = (size_t)zip_number(b + 28, 2), extra = (size_t)zip_number(b + 30, 2),
                 whole = ZIP_ENTRY_BYTES + name_len + extra + (size_t)zip_number(b + 32, 2);
    struct zip_sizes s = {zip_number(b + 24, 4), zip_number(b + 20, 4), zip_number(b + 42, 4)};
    char *name;

    if (zip_number(b, 4) != ZIP_ENTRY || whole > left)
        return zip_damaged(z, err, "its central directory ends early");
    name = arena_alloc(&z->arena, name_len + 1);
    memcpy(name, b + ZIP_ENTRY_BYTES, name_len);
    if (memchr(name, 0, name_len))
        return zip_damaged(z, err, "a member's name has a NUL");
    m->name = name;
    m->crc = (uint32_t)zip_number(b + 16, 4);
    if (method != 0 || flags & 1)
        return err_set(err, ERR_CONFIG,
                       "%s: member %s is %s, want stored members, as torch.export.save writes them",
                       z->path, name, flags & 1 ? "encrypted" : "compressed");
    if (zip_read_extra(b + ZIP_ENTRY_BYTES + name_len, extra, &s) < 0 || s.n_stored != s.n_bytes)
        return zip_damaged(z, err, "a member's sizes are wrong");
    if (zip_place(z, m, &s, limit, err) < 0)
        return err->code;
    z->n_members++;
    return (int)whole;
}

static int zip_by_place(const void *a, const void *b)
{
    const struct zip_member *x = a, *y = b;

    return x->header_at < y->header_at ? -1 : x->header_at > y->header_at;
}

static int zip_by_name(const void *a, const void *b)
{
    return strcmp(((const struct zip_member *)a)->name, ((const struct zip_member *)b)->name);
}

static int zip_check_apart(struct zip *z, struct err *err)
{
    qsort(z->member, (size_t)z->n_members, sizeof *z->member, zip_by_place);
    for (int i = 1; i < z->n_members; i++) {
        const struct zip_member *a = &z->member[i - 1], *b = &z->member[i];

        if (b->header_at < a->at + a->n_bytes)
            return err_set(err, ERR_CORRUPT, "%s: members %s and %s share bytes, want each its own",
                           z->path, a->name, b->name);
    }
    qsort(z->member, (size_t)z->n_members, sizeof *z->member, zip_by_name);
    for (int i = 1; i < z->n_members; i++)
        if (!strcmp(z->member[i - 1].name, z->member[i].name))
            return err_set(err, ERR_CORRUPT, "%s: two members have the name %s, want one", z->path,
                           z->member[i].name);
    return 0;
}

static int zip_read(struct zip *z, struct err *err)
{
    struct zip_directory d = {0};
    void *member;
    size_t at;

    if (zip_find_directory(z, &d, err) < 0)
        return err->code;
    if (try_alloc(&member, sizeof *z->member * ((size_t)d.n + 1), "an archive's members", err) < 0)
        return err->code;
    z->member = member;
    at = (size_t)d.at;
    for (uint64_t i = 0; i < d.n; i++) {
        const size_t left = (size_t)(d.at + d.n_bytes) - at;
        int len;

        if (left < ZIP_ENTRY_BYTES)
            return zip_damaged(z, err, "its central directory ends early");
        len = zip_read_entry(z, z->bytes + at, left, (size_t)d.at, err);
        if (len < 0)
            return len;
        at += (size_t)len;
    }
    return z->n_members > 1 ? zip_check_apart(z, err) : 0;
}

static struct zip *zip_new(const char *path)
{
    struct zip *z = xcalloc(1, sizeof *z);

    z->path = arena_strdup(&z->arena, path);
    return z;
}

static int zip_finish(struct zip *z, struct zip **out, struct err *err)
{
    const int rc = zip_read(z, err);

    if (rc < 0)
        zip_close(z);
    else
        *out = z;
    return rc;
}

int zip_open(const char *path, struct zip **out, struct err *err)
{
    struct zip *z;

    if (access(path, R_OK) < 0)
        return err_sys(err, errno, "model.import: file %s", path);
    z = zip_new(path);
    if (mapped_open(&z->file, path, err) < 0) {
        zip_close(z);
        return err->code;
    }
    z->bytes = z->file.bytes;
    z->n_bytes = z->file.n_bytes;
    return zip_finish(z, out, err);
}

int zip_parse(const void *bytes, size_t n_bytes, const char *path, struct zip **out,
              struct err *err)
{
    struct zip *z = zip_new(path);

    z->bytes = bytes;
    z->n_bytes = n_bytes;
    return zip_finish(z, out, err);
}

void zip_close(struct zip *z)
{
    if (!z)
        return;
    mapped_close(&z->file);
    free(z->member);
    arena_fini(&z->arena);
    free(z);
}

const struct zip_member *zip_find(const struct zip *z, const char *name)
{
    const struct zip_member key = {.name = name};

    return z->n_members ? bsearch(&key, z->member, (size_t)z->n_members, sizeof key, zip_by_name)
                        : NULL;
}

int zip_check(const struct zip *z, const struct zip_member *m, struct err *err)
{
    const uint32_t crc = (uint32_t)crc32_z(0, z->bytes + m->at, m->n_bytes);

    return crc == m->crc ? 0
                         : err_set(err, ERR_CORRUPT,
                                   "%s: member %s has the checksum %08x, want %08x; the file is "
                                   "damaged: export or copy it again",
                                   z->path, m->name, crc, m->crc);
}
