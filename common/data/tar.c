/* tar - headers of 512 bytes, each followed by its member's content, filled up to 512.
 *
 *     0  name[100]   124  size[12]   148  checksum[8]   156  type   257  "ustar"   345  prefix[155]
 *
 * Numbers are octal text; a size beyond that is binary, with the first bit set.  A header of type L
 * (GNU) or x (pax) holds the name of the member after it. */
#include "data/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

enum { MOST_EXTRA = 1 << 20 }; /* bytes of a header of type L or x */
enum { MOST_END = 64 }; /* blocks behind the last member in which another archive may begin */
enum { BLOCK = 512, SIZE = 124, CHECKSUM = 148, TYPE = 156, MAGIC = 257, PREFIX = 345 };

static int fail(const struct tar *t, int64_t offset, const char *why, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "%s: offset %lld: %s; was it copied whole?", t->path,
                   (long long)offset, why);
}

int tar_open(struct tar *t, const char *path, struct err *err)
{
    struct stat st;

    *t = (struct tar){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .path = path};
    if (t->fd < 0 || fstat(t->fd, &st) < 0) {
        const int why = errno;

        tar_close(t);
        return err_sys(err, why, "file %s", path);
    }
    if (!S_ISREG(st.st_mode)) { /* a pipe is no reason to wait, and it opens without a writer */
        tar_close(t);
        return err_set(err, ERR_IO, "file %s is not a regular file", path);
    }
    t->n_bytes = st.st_size;
    return 0;
}

void tar_close(struct tar *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

int tar_read(const struct tar *t, int64_t offset, void *to, int64_t n, struct err *err)
{
    for (int64_t got = 0; got < n;) {
        const ssize_t len = pread(t->fd, (char *)to + got, (size_t)(n - got), offset + got);

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno, "file %s: offset %lld", t->path, (long long)(offset + got));
        if (len == 0)
            return fail(t, offset + got, "the archive ends within a member", err);
        got += len;
    }
    return 0;
}

/* ---- numbers ---- */

/* An octal number of up to n digits; -1: there is none. */
static int64_t octal(const uint8_t *p, int n)
{
    int64_t v = -1;

    while (n > 0 && *p == ' ')
        p++, n--;
    for (; n > 0 && *p >= '0' && *p <= '7'; p++, n--)
        v = (v < 0 ? 0 : v) * 8 + (*p - '0');
    return v;
}

static int64_t size_of(const uint8_t *header)
{
    const uint8_t *p = header + SIZE;
    int64_t v = 0;

    if (!(p[0] & 0x80))
        return octal(p, 12);
    for (int i = 4; i < 12; i++)
        v = (int64_t)((uint64_t)v << 8 | p[i]);
    return v;
}

/* The checksum counts its own field as spaces. */
static int is_header(const uint8_t *header)
{
    int64_t sum = 0;

    for (int i = 0; i < BLOCK; i++)
        sum += i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : header[i];
    return sum == octal(header + CHECKSUM, 8);
}

static int is_empty(const uint8_t *header)
{
    for (int i = 0; i < BLOCK; i++)
        if (header[i])
            return 0;
    return 1;
}

/* ---- names ---- */

static void take_name(const uint8_t *header, char *name)
{
    const int has_prefix = !memcmp(header + MAGIC, "ustar\0", 6) && header[PREFIX];
    const int n_prefix = (int)strnlen((const char *)header + PREFIX, 155);
    size_t at = 0;

    if (has_prefix) {
        memcpy(name, header + PREFIX, (size_t)n_prefix);
        name[n_prefix] = '/';
        at = (size_t)n_prefix + 1;
    }
    memcpy(name + at, header, 100);
    name[at + 100] = 0;
}

static int keep_name(const struct tar *t, char *name, const char *from, struct err *err)
{
    if (strlen(from) >= TAR_NAME_BYTES)
        return fail(t, t->at, "a member's name is too long", err);
    strcpy(name, from);
    return 0;
}

/* Of pax's records "LENGTH KEY=VALUE\n" the values of path and size.  LENGTH counts the whole
 * record; other values may hold any bytes, NUL among them. */
static int take_pax(const struct tar *t, char *text, int64_t n, char *name, int64_t *n_bytes,
                    struct err *err)
{
    char *const end = text + n, *key;
    int rc = 0;

    for (char *record = text; rc == 0 && record < end;) {
        const long len = strtol(record, &key, 10);

        if (len <= key - record || len > end - record || *key != ' ' || record[len - 1] != '\n')
            return fail(t, t->at, "its extended header is broken", err);
        record += len;
        record[-1] = 0;
        if (!strncmp(key, " path=", 6))
            rc = keep_name(t, name, key + 6, err);
        if (!strncmp(key, " size=", 6))
            *n_bytes = strtoll(key + 6, NULL, 10);
    }
    return rc;
}

/* ---- members ---- */

/* TAR_END, or an error if another archive was appended to this one, as cat does it: it would go
 * unread. */
static int check_end(const struct tar *t, struct err *err)
{
    const int64_t end = min_i64(t->n_bytes, t->at + MOST_END * BLOCK);
    uint8_t header[BLOCK];

    for (int64_t at = t->at + BLOCK; at + BLOCK <= end; at += BLOCK) {
        if (tar_read(t, at, header, BLOCK, err) < 0)
            return err->code;
        if (is_empty(header))
            continue;
        if (!is_header(header))
            break;
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: a second archive follows the end of the first; make a "
                       "shard of each",
                       t->path, (long long)at);
    }
    return TAR_END;
}

/* The header at t->at, and how long its content is; TAR_END: it is empty. */
static int read_header(const struct tar *t, uint8_t *header, int64_t *n_bytes, struct err *err)
{
    if (t->n_bytes - t->at < BLOCK)
        return fail(t, t->at, "the archive ends without an empty header", err);
    if (tar_read(t, t->at, header, BLOCK, err) < 0)
        return err->code;
    if (is_empty(header))
        return check_end(t, err);
    if (t->at == 0 && header[0] == 0x1f && header[1] == 0x8b)
        return err_set(err, ERR_CORRUPT,
                       "%s is compressed by gzip, and shards are read in place; unpack it",
                       t->path);
    if (!is_header(header))
        return fail(t, t->at, "there is no header of a tar archive", err);
    *n_bytes = size_of(header);
    return *n_bytes < 0 ? fail(t, t->at + SIZE, "a member has no size", err) : 0;
}

static int check_content(const struct tar *t, int64_t n_bytes, struct err *err)
{
    return n_bytes < 0 || n_bytes > t->n_bytes - t->at - BLOCK
               ? fail(t, t->at, "the archive ends within this member", err)
               : 0;
}

/* Go past the header and its content. */
static void pass(struct tar *t, int64_t n_bytes)
{
    t->at = min_i64(t->at + BLOCK + round_up_i64(n_bytes, BLOCK), t->n_bytes);
}

/* A header that tells of the next member: its name, or its size. */
static int read_extra(const struct tar *t, int type, int64_t n_bytes, char *name, int64_t *size,
                      struct err *err)
{
    void *text;
    int rc;

    if (n_bytes > MOST_EXTRA)
        return fail(t, t->at, "its extended header is too long", err);
    if (try_alloc(&text, (size_t)n_bytes + 1, "a tar archive's extended header", err) < 0)
        return err->code;
    ((char *)text)[n_bytes] = 0;
    rc = tar_read(t, t->at + BLOCK, text, n_bytes, err);
    if (rc == 0)
        rc = type == 'x' ? take_pax(t, text, n_bytes, name, size, err)
                         : keep_name(t, name, text, err);
    free(text);
    return rc;
}

int tar_next(struct tar *t, struct tar_member *m, struct err *err)
{
    int64_t size = -1; /* by pax */
    uint8_t header[BLOCK];
    int rc;

    m->name[0] = 0;
    while ((rc = read_header(t, header, &m->n_bytes, err)) == 0) {
        const int type = header[TYPE], is_extra = type == 'x' || type == 'L';

        if (!is_extra && size >= 0)
            m->n_bytes = size;
        if (check_content(t, m->n_bytes, err) < 0 ||
            (is_extra && read_extra(t, type, m->n_bytes, m->name, &size, err) < 0))
            return err->code;
        m->offset = t->at + BLOCK;
        pass(t, m->n_bytes);
        if (type == '0' || type == 0 || type == '7')
            break;
        if (!is_extra && type != 'g') { /* a folder or a link */
            m->name[0] = 0;
            size = -1;
        }
    }
    if (rc == 0 && !m->name[0])
        take_name(header, m->name);
    return rc;
}
