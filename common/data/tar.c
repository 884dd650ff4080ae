/* tar - headers of 512 bytes, each followed by its member's content, filled up to 512.
 *
 *     0  name[100]   124  size[12]   148  checksum[8]   156  type   257  "ustar"   345  prefix[155]
 *
 * Numbers are octal text; a size beyond that is binary, with the first bit set.  A header of type L
 * or K (GNU) or x (pax) holds the name of the member after it, or where that member leads as a
 * link.
 *
 * A sparse member is of type S, with more headers behind its own if byte 482 is set (GNU's old
 * format), or has pax records GNU.sparse.*, of which GNU.sparse.name is its name. */
#include "data/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/util.h"

enum { MOST_EXTRA = 1 << 20 }; /* bytes of a header of type L, K or x */
enum { END_BYTES = 64 << 10 }; /* behind the last member, read at a time */
enum {
    BLOCK = 512,
    SIZE = 124,
    CHECKSUM = 148,
    TYPE = 156,
    LINK = 157,
    MAGIC = 257,
    PREFIX = 345,
    HAS_MAPS = 482,     /* in a header of type S: 1: a block of more spans follows */
    HAS_MORE_MAPS = 504 /* in such a block: another one follows */
};

/* The words of headers of types L, K and x about the member after them. */
struct extra {
    struct tar_member *m; /* gets the names */
    int64_t size;         /* -1: they do not say it */
    int is_sparse, has_real_name;
};

static int tar_fail(const struct tar *t, int64_t offset, const char *why, struct err *err)
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
            return tar_fail(t, offset + got, "the archive ends within a member", err);
        got += len;
    }
    return 0;
}

/* ---- numbers ---- */

/* An octal number of up to n digits; -1: there is none. */
static int64_t tar_octal(const uint8_t *p, int n)
{
    int64_t v = -1;

    while (n > 0 && *p == ' ')
        p++, n--;
    for (; n > 0 && *p >= '0' && *p <= '7'; p++, n--)
        v = (v < 0 ? 0 : v) * 8 + (*p - '0');
    return v;
}

static int64_t tar_size_of(const uint8_t *header)
{
    const uint8_t *p = header + SIZE;
    int64_t v = 0;

    if (!(p[0] & 0x80))
        return tar_octal(p, 12);
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
    return sum == tar_octal(header + CHECKSUM, 8);
}

static int tar_is_empty(const uint8_t *p, int64_t n)
{
    return n == 0 || (!p[0] && !memcmp(p, p + 1, (size_t)n - 1));
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
        return tar_fail(t, t->at, "a member's name is too long", err);
    strcpy(name, from);
    return 0;
}

/* A sparse member's real name stands above the one that old programs shall see. */
static int take_record(const struct tar *t, struct extra *x, const char *key, struct err *err)
{
    if (!strncmp(key, "size=", 5))
        x->size = strtoll(key + 5, NULL, 10);
    if (!strncmp(key, "linkpath=", 9))
        return keep_name(t, x->m->link, key + 9, err);
    if (!strncmp(key, "path=", 5) && !x->has_real_name)
        return keep_name(t, x->m->name, key + 5, err);
    if (strncmp(key, "GNU.sparse.", 11) != 0)
        return 0;
    x->is_sparse = 1;
    if (strncmp(key + 11, "name=", 5) != 0)
        return 0;
    x->has_real_name = 1;
    return keep_name(t, x->m->name, key + 16, err);
}

/* Pax's records are "LENGTH KEY=VALUE\n".  LENGTH counts the whole record; values may hold any
 * bytes, NUL among them. */
static int take_pax(const struct tar *t, char *text, int64_t n, struct extra *x, struct err *err)
{
    char *const end = text + n, *key;
    int rc = 0;

    for (char *record = text; rc == 0 && record < end;) {
        const long len = strtol(record, &key, 10);

        if (len <= key - record || len > end - record || *key != ' ' || record[len - 1] != '\n')
            return tar_fail(t, t->at, "its extended header is broken", err);
        record += len;
        record[-1] = 0;
        rc = take_record(t, x, key + 1, err);
    }
    return rc;
}

/* ---- members ---- */

/* There is something behind the end, in the `n` bytes at this offset. */
static int refuse_rest(const struct tar *t, int64_t offset, const uint8_t *bytes, int64_t n,
                       struct err *err)
{
    int64_t at = 0;

    while (at + BLOCK < n && tar_is_empty(bytes + at, BLOCK))
        at += BLOCK;
    if (at + BLOCK <= n && is_header(bytes + at))
        return err_set(err, ERR_CORRUPT,
                       "%s: offset %lld: a second archive follows the end of the first; make a "
                       "shard of each",
                       t->path, (long long)(offset + at));
    return err_set(err, ERR_CORRUPT,
                   "%s: offset %lld: bytes that are no archive follow the end of the archive, at "
                   "offset %lld; make the shard anew, or cut them off",
                   t->path, (long long)(offset + at), (long long)t->at);
}

/* TAR_END, or an error if anything follows, such as another archive: it would go unread. */
static int check_end(const struct tar *t, struct err *err)
{
    uint8_t *bytes = xmalloc(END_BYTES);
    int rc = TAR_END;

    for (int64_t at = t->at + BLOCK; rc == TAR_END && at < t->n_bytes; at += END_BYTES) {
        const int64_t n = min_i64(t->n_bytes - at, END_BYTES);

        if (tar_read(t, at, bytes, n, err) < 0)
            rc = err->code;
        else if (!tar_is_empty(bytes, n))
            rc = refuse_rest(t, at, bytes, n, err);
    }
    free(bytes);
    return rc;
}

/* Links, devices, folders, pipes and labels have no content, whatever their size says; a label's is
 * empty. */
static int has_content(int type) { return (type < '1' || type > '6') && type != 'V'; }

/* The header at t->at, and how long its content is; TAR_END: it is empty. */
static int tar_read_header(const struct tar *t, uint8_t *header, int64_t *n_bytes, struct err *err)
{
    if (t->n_bytes - t->at < BLOCK)
        return tar_fail(t, t->at, "the archive ends without an empty header", err);
    if (tar_read(t, t->at, header, BLOCK, err) < 0)
        return err->code;
    if (tar_is_empty(header, BLOCK))
        return check_end(t, err);
    if (t->at == 0 && header[0] == 0x1f && header[1] == 0x8b)
        return err_set(err, ERR_CORRUPT,
                       "%s is compressed by gzip, and shards are read in place; unpack it",
                       t->path);
    if (!is_header(header))
        return tar_fail(t, t->at, "there is no header of a tar archive", err);
    *n_bytes = has_content(header[TYPE]) ? tar_size_of(header) : 0;
    return *n_bytes < 0 ? tar_fail(t, t->at + SIZE, "a member has no size", err) : 0;
}

static int check_content(const struct tar *t, int64_t n_bytes, struct err *err)
{
    return n_bytes < 0 || n_bytes > t->n_bytes - t->at - BLOCK
               ? tar_fail(t, t->at, "the archive ends within this member", err)
               : 0;
}

/* Go past the header and its content. */
static void tar_pass(struct tar *t, int64_t n_bytes)
{
    t->at = min_i64(t->at + BLOCK + round_up_i64(n_bytes, BLOCK), t->n_bytes);
}

/* A header that tells of the next member. */
static int read_extra(const struct tar *t, int type, int64_t n_bytes, struct extra *x,
                      struct err *err)
{
    void *text;
    int rc;

    if (n_bytes > MOST_EXTRA)
        return tar_fail(t, t->at, "its extended header is too long", err);
    if (try_alloc(&text, (size_t)n_bytes + 1, "a tar archive's extended header", err) < 0)
        return err->code;
    ((char *)text)[n_bytes] = 0;
    rc = tar_read(t, t->at + BLOCK, text, n_bytes, err);
    if (rc == 0 && (type == 'x' || type == 'X')) /* X: Solaris's */
        rc = take_pax(t, text, n_bytes, x, err);
    else if (rc == 0)
        rc = keep_name(t, type == 'K' ? x->m->link : x->m->name, text, err);
    free(text);
    return rc;
}

/* Go past the blocks of spans behind a header of type S. */
static int pass_maps(struct tar *t, const uint8_t *header, struct err *err)
{
    uint8_t block[BLOCK];
    int has_more = header[HAS_MAPS];

    while (has_more) {
        if (t->n_bytes - t->at < 2 * BLOCK)
            return tar_fail(t, t->at, "the archive ends within a sparse member's header", err);
        t->at += BLOCK;
        if (tar_read(t, t->at, block, BLOCK, err) < 0)
            return err->code;
        has_more = block[HAS_MORE_MAPS];
    }
    return 0;
}

static enum tar_kind tar_kind_of(int type, const struct extra *x)
{
    switch (type) {
    case 0:
    case '0':
    case '7':
        return x->is_sparse ? TAR_SPARSE : TAR_FILE;
    case '1':
        return TAR_HARD_LINK;
    case '2':
        return TAR_SYMBOLIC_LINK;
    case 'S':
        return TAR_SPARSE;
    default:
        return TAR_OTHER;
    }
}

static int is_extra(int type) { return type == 'x' || type == 'X' || type == 'L' || type == 'K'; }

/* Is it a folder (5, GNU's D), a label (V), or a header that says nothing of names and sizes (pax's
 * g, Solaris's A)? */
static int is_passed(int type)
{
    return type == '5' || type == 'D' || type == 'V' || type == 'g' || type == 'A';
}

/* Read one header, and go past it and its content. */
static int read_one(struct tar *t, struct extra *x, uint8_t *header, struct err *err)
{
    struct tar_member *m = x->m;
    int rc = tar_read_header(t, header, &m->n_bytes, err);

    if (rc != 0)
        return rc;
    if (!is_extra(header[TYPE]) && header[TYPE] != 'g' && has_content(header[TYPE]) && x->size >= 0)
        m->n_bytes = x->size;
    if (header[TYPE] == 'S')
        rc = pass_maps(t, header, err);
    if (rc < 0 || check_content(t, m->n_bytes, err) < 0 ||
        (is_extra(header[TYPE]) && read_extra(t, header[TYPE], m->n_bytes, x, err) < 0))
        return err->code;
    m->offset = t->at + BLOCK;
    tar_pass(t, m->n_bytes);
    return 0;
}

int tar_next(struct tar *t, struct tar_member *m, struct err *err)
{
    struct extra x = {m, .size = -1};
    uint8_t header[BLOCK];
    int rc;

    m->name[0] = m->link[0] = 0;
    while ((rc = read_one(t, &x, header, err)) == 0) {
        if (is_extra(header[TYPE]) || header[TYPE] == 'g')
            continue;
        if (!is_passed(header[TYPE]))
            break;
        m->name[0] = m->link[0] = 0;
        x = (struct extra){m, .size = -1};
    }
    if (rc == 0) {
        m->kind = tar_kind_of(header[TYPE], &x);
        if (!m->name[0])
            take_name(header, m->name);
        if (!m->link[0])
            memcpy(m->link, header + LINK, MAGIC - LINK), m->link[MAGIC - LINK] = 0;
    }
    return rc;
}
