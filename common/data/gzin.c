/* gzin - reads bytes that may be compressed: plain input is copied, gzip input goes through zlib
 * block by block, straight into the caller's memory. */
#include "data/gzin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/util.h"

enum {
    BLOCK = 64 << 10,   /* input is read in such pieces */
    MAX_RATIO = 1032,   /* of deflate: 258 bytes from two bits */
    WINDOW = 64 << 10,  /* more than what inflate may hold back */
    MAX_IO = 1 << 30,   /* the most that one read, or one inflate, is asked for */
    WANT_GZIP = 16 + 15 /* zlib: gzip format, largest window */
};

struct gzin {
    int fd;                /* -1: memory */
    int64_t size, taken;   /* bytes of the input: all, and read from it so far */
    const uint8_t *memory; /* with fd -1 */
    const uint8_t *in;     /* input that was read but not yet used */
    size_t n_in;
    int gzip;   /* compressed, `z` is initialised */
    int member; /* within a gzip member, not between two */
    z_stream z; /* counts what it was given and gave as unsigned int: pieces of MAX_IO */
    uint8_t *block;
};

/* The place in the input of the next unused byte. */
static int64_t gzin_offset(const struct gzin *g) { return g->taken - (int64_t)g->n_in; }

/* Read up to `n` bytes of raw input into dst; *got is 0 at its end. */
static int gzin_take(struct gzin *g, uint8_t *dst, size_t n, size_t *got, struct err *err)
{
    ssize_t k;

    do
        k = read(g->fd, dst, n < MAX_IO ? n : MAX_IO);
    while (k < 0 && errno == EINTR);
    if (k < 0)
        return err_sys(err, errno, "offset %lld: reading failed", (long long)g->taken);
    g->taken += k;
    *got = (size_t)k;
    return 0;
}

/* Read the next block of input, if all of the last one is used. */
static int gzin_fill(struct gzin *g, struct err *err)
{
    if (g->n_in || g->fd < 0)
        return 0;
    g->in = g->block;
    return gzin_take(g, g->block, BLOCK, &g->n_in, err);
}

static int gzin_start(struct gzin *g, struct err *err)
{
    if (gzin_fill(g, err) < 0)
        return err->code;
    g->gzip = g->n_in >= 2 && g->in[0] == 0x1f && g->in[1] == 0x8b;
    if (!g->gzip)
        return 0;
    g->member = 1;
    if (inflateInit2(&g->z, WANT_GZIP) != Z_OK) {
        g->gzip = 0;
        return err_set(err, ERR_NOMEM, "out of memory: zlib cannot start");
    }
    return 0;
}

int gzin_open_memory(struct gzin **out, const uint8_t *bytes, size_t n_bytes, struct err *err)
{
    struct gzin *g = xcalloc(1, sizeof *g);

    g->fd = -1;
    g->size = g->taken = (int64_t)n_bytes;
    g->in = bytes;
    g->n_in = n_bytes;
    if (gzin_start(g, err) < 0) {
        gzin_close(g);
        return err->code;
    }
    *out = g;
    return 0;
}

static int open_regular(struct gzin *g, const char *path, struct err *err)
{
    struct stat st;

    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (g->fd < 0 || fstat(g->fd, &st) < 0)
        return err_sys(err, errno, "cannot open it");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_IO, "is not a regular file");
    g->size = st.st_size;
    return gzin_start(g, err);
}

int gzin_open_file(struct gzin **out, const char *path, struct err *err)
{
    struct gzin *g = xcalloc(1, sizeof *g);

    g->block = xmalloc(BLOCK);
    if (open_regular(g, path, err) < 0) {
        gzin_close(g);
        return err->code;
    }
    *out = g;
    return 0;
}

void gzin_close(struct gzin *g)
{
    if (!g)
        return;
    if (g->gzip)
        inflateEnd(&g->z);
    if (g->fd >= 0)
        close(g->fd);
    free(g->block);
    free(g);
}

static int read_plain(struct gzin *g, uint8_t *dst, size_t n, size_t *got, struct err *err)
{
    size_t k = g->n_in < n ? g->n_in : n;

    if (k)
        memcpy(dst, g->in, k);
    g->in += k;
    g->n_in -= k;
    *got = k;
    while (g->fd >= 0 && *got < n) {
        if (gzin_take(g, dst + *got, n - *got, &k, err) < 0)
            return err->code;
        if (k == 0)
            return 0;
        *got += k;
    }
    return 0;
}

/* Go on after a member: another one follows, or garbage. */
static int next_member(struct gzin *g, struct err *err)
{
    if (g->in[0] != 0x1f)
        return err_set(err, ERR_CORRUPT,
                       "offset %lld of the compressed file: other bytes follow the gzip data, want "
                       "its end; fetch the file again",
                       (long long)gzin_offset(g));
    inflateReset(&g->z);
    g->member = 1;
    return 0;
}

static int gzin_damaged(const struct gzin *g, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "offset %lld of the compressed file: gzip data is damaged (%s); fetch the file "
                   "again",
                   (long long)gzin_offset(g), g->z.msg ? g->z.msg : "unknown reason");
}

/* One call of inflate on the block at hand. */
static int inflate_block(struct gzin *g, uint8_t *dst, size_t n, size_t *got, struct err *err)
{
    uInt n_in = (uInt)(g->n_in < MAX_IO ? g->n_in : MAX_IO);
    uInt n_out = (uInt)(n < MAX_IO ? n : MAX_IO);
    int rc;

    g->z.next_in = (Bytef *)(uintptr_t)g->in; /* zlib does not write there */
    g->z.avail_in = n_in;
    g->z.next_out = dst;
    g->z.avail_out = n_out;
    rc = inflate(&g->z, Z_NO_FLUSH);
    g->in += n_in - g->z.avail_in;
    g->n_in -= n_in - g->z.avail_in;
    *got = n_out - g->z.avail_out;
    if (rc == Z_STREAM_END)
        g->member = 0;
    return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR ? 0 : gzin_damaged(g, err);
}

static int read_gzip(struct gzin *g, uint8_t *dst, size_t n, size_t *got, struct err *err)
{
    *got = 0;
    while (*got < n) {
        size_t k;

        if (gzin_fill(g, err) < 0)
            return err->code;
        if (!g->n_in && !g->member)
            return 0;
        if (!g->n_in)
            return err_set(err, ERR_CORRUPT,
                           "offset %lld of the compressed file: it ends within the gzip data "
                           "(truncated); fetch the file again",
                           (long long)gzin_offset(g));
        if (!g->member && next_member(g, err) < 0)
            return err->code;
        if (inflate_block(g, dst + *got, n - *got, &k, err) < 0)
            return err->code;
        *got += k;
    }
    return 0;
}

int gzin_read(struct gzin *g, void *dst, size_t n, size_t *got, struct err *err)
{
    return g->gzip ? read_gzip(g, dst, n, got, err) : read_plain(g, dst, n, got, err);
}

int64_t gzin_most_left(const struct gzin *g)
{
    int64_t left = max_i64(g->size - gzin_offset(g), 0);

    return g->gzip ? left * MAX_RATIO + WINDOW : left;
}

int gzin_compressed(const struct gzin *g) { return g->gzip; }
