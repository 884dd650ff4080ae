/* picture_cache - makes files of pictures, each by all processes that want it.
 *
 * The happy path: the file is there.  Else PATH.part is created, and filled in chunks of some
 * pictures.  A thread that makes a chunk locks a byte that stands for it, appends the pixels,
 * brings them to the disk, and then writes the chunk's entries.  When no chunk is left the file
 * gets its name.  A chunk that another process has locked is skipped, and waited for at the end; if
 * that process died, the chunk is made here.
 *
 * Locks are those of an open file description (fcntl), which end with its process.  Threads of one
 * process share theirs, and do not take the same chunk, so a mutex is enough between them.  A part
 * of other pictures is removed from its folder; a process that still writes it finds that its part
 * has lost its name, and looks again. */
#include "data/picture_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/log.h"
#include "base/util.h"
#include "data/pool.h"

enum {
    CACHE_CHUNK = 16,     /* pictures that are made at once */
    CACHE_MOST_TRIES = 5, /* each ends by another process's doing */
    CACHE_TELL_S = 10,
    CACHE_HEADER_LOCK = 0, /* the byte that stands for the header; that of chunk c follows */
};

struct cache_making {
    const struct picture_cache *what;
    const char *part; /* the file that is written */
    int fd;
    pthread_mutex_t lock; /* guards what follows, and the header's `end` between threads */
    int64_t n_made;       /* pictures, here */
    int64_t told_ns;
    struct err err; /* the first failure; code 0: none */
};

/* ---- the system ---- */

/* Lock or unlock one byte.  1: another process has it.  <0: errno says why. */
static int cache_lock(int fd, int64_t byte, int type, int waits)
{
    struct flock l = {
        .l_type = (short)type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};

    while (fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &l) < 0) {
        if (errno == EAGAIN || errno == EACCES)
            return 1;
        if (errno != EINTR)
            return -1;
    }
    return 0;
}

static int cache_lock_failed(const char *part, struct err *err)
{
    return err_sys(err, errno,
                   "cannot lock %s; data.cache wants a folder whose files can be locked", part);
}

static int cache_write(const struct cache_making *m, const void *data, size_t n, int64_t offset,
                       struct err *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t len =
            pwrite(m->fd, (const char *)data + done, n - done, (off_t)(offset + (int64_t)done));

        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return err_sys(err, errno,
                           "cannot write the pictures of %s to %s, after %lld MB; what is written "
                           "stays, and the next start goes on from there, so make room, or "
                           "remove it and set data.cache to another folder",
                           m->what->pictures, m->part, (long long)(offset >> 20));
        done += (size_t)len;
    }
    return 0;
}

static int cache_read(const struct cache_making *m, void *to, size_t n, int64_t offset,
                      struct err *err)
{
    const ssize_t len = pread(m->fd, to, n, (off_t)offset);

    if (len < 0)
        return err_sys(err, errno, "file %s", m->part);
    return (size_t)len == n ? 0
                            : err_set(err, ERR_IO, "file %s: offset %lld: it ends here; remove it",
                                      m->part, (long long)offset);
}

/* 1: the file is still the one of this name. */
static int cache_has_name(int fd, const char *path)
{
    struct stat mine, there;

    return fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
}

/* ---- chunks ---- */

static int64_t cache_n_chunks(const struct cache_making *m)
{
    return ceil_div_i64(m->what->n, CACHE_CHUNK);
}

static int64_t cache_chunk_len(const struct cache_making *m, int64_t chunk)
{
    return min_i64(CACHE_CHUNK, m->what->n - chunk * CACHE_CHUNK);
}

static int cache_read_entries(const struct cache_making *m, int64_t chunk,
                              struct picture_entry entry[CACHE_CHUNK], struct err *err)
{
    return cache_read(m, entry, (size_t)cache_chunk_len(m, chunk) * sizeof *entry,
                      picture_file_entry_at(chunk * CACHE_CHUNK), err);
}

static int cache_is_made(const struct picture_entry *entry, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (!entry[k].offset)
            return 0;
    return 1;
}

/* Move the header's `end` by n bytes; *at is where it was.  The mutex is held. */
static int cache_move_end(struct cache_making *m, size_t n, int64_t *at, struct err *err)
{
    struct picture_header h;
    int rc;

    if (cache_lock(m->fd, CACHE_HEADER_LOCK, F_WRLCK, 1) != 0)
        return cache_lock_failed(m->part, err);
    rc = cache_read(m, &h, sizeof h, 0, err);
    if (rc == 0) {
        *at = h.end;
        h.end += (int64_t)n;
        rc = cache_write(m, &h, sizeof h, 0, err);
    }
    (void)cache_lock(m->fd, CACHE_HEADER_LOCK, F_UNLCK, 0);
    return rc;
}

static int cache_reserve(struct cache_making *m, size_t n, int64_t *at, struct err *err)
{
    int rc;

    pthread_mutex_lock(&m->lock);
    rc = cache_move_end(m, n, at, err);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void cache_count(struct cache_making *m, int64_t n, int64_t end)
{
    pthread_mutex_lock(&m->lock);
    m->n_made += n;
    if (clock_since_s(m->told_ns) > CACHE_TELL_S) {
        m->told_ns = clock_mono_ns();
        log_info("data.cache: %lld of %lld pictures are made here, %lld MB in all",
                 (long long)m->n_made, (long long)m->what->n, (long long)(end >> 20));
    }
    pthread_mutex_unlock(&m->lock);
}

/* The pixels are on the disk before the entries say so. */
static int cache_keep(struct cache_making *m, int64_t chunk, const struct buf *pixels,
                      struct picture_entry *entry, const int64_t *place, struct err *err)
{
    const int64_t n = cache_chunk_len(m, chunk);
    int64_t at = 0;
    int rc = cache_reserve(m, pixels->len, &at, err);

    if (rc == 0)
        rc = cache_write(m, pixels->data, pixels->len, at, err);
    if (rc == 0 && fdatasync(m->fd) < 0)
        rc = err_sys(err, errno, "cannot write the pictures to %s", m->part);
    for (int64_t k = 0; k < n; k++)
        if (place[k] >= 0)
            entry[k].offset = (uint64_t)(at + place[k]);
    if (rc == 0)
        rc = cache_write(m, entry, (size_t)n * sizeof *entry,
                         picture_file_entry_at(chunk * CACHE_CHUNK), err);
    if (rc == 0)
        cache_count(m, n, at);
    return rc;
}

/* The chunk is locked. */
static int cache_make_chunk(struct cache_making *m, int64_t chunk, struct err *err)
{
    const int64_t n = cache_chunk_len(m, chunk);
    struct picture_entry entry[CACHE_CHUNK];
    int64_t place[CACHE_CHUNK]; /* in `pixels`; -1: it is not there */
    struct buf pixels = {0};
    int rc = cache_read_entries(m, chunk, entry, err);

    if (rc < 0 || cache_is_made(entry, n))
        return rc;
    for (int64_t k = 0; rc == 0 && k < n; k++) {
        const size_t len = pixels.len;

        place[k] = -1;
        if (entry[k].offset)
            continue;
        rc = m->what->make(m->what->arg, chunk * CACHE_CHUNK + k, &pixels, &entry[k], err);
        if (rc == PICTURE_FILE_LOST) {
            entry[k].offset = PICTURE_ENTRY_LOST;
            rc = 0;
        } else {
            place[k] = (int64_t)len;
        }
    }
    if (rc == 0)
        rc = cache_keep(m, chunk, &pixels, entry, place, err);
    buf_fini(&pixels);
    return rc;
}

static int cache_has_failed(struct cache_making *m)
{
    int has;

    pthread_mutex_lock(&m->lock);
    has = m->err.code != 0;
    pthread_mutex_unlock(&m->lock);
    return has;
}

/* Make a chunk, unless another process is at it. */
static void cache_take_chunk(void *arg, int64_t chunk)
{
    struct cache_making *m = arg;
    const int64_t byte = CACHE_HEADER_LOCK + 1 + chunk;
    struct err err;
    int rc;

    if (cache_has_failed(m))
        return;
    rc = cache_lock(m->fd, byte, F_WRLCK, 0);
    if (rc == 1)
        return;
    rc = rc < 0 ? cache_lock_failed(m->part, &err) : cache_make_chunk(m, chunk, &err);
    (void)cache_lock(m->fd, byte, F_UNLCK, 0);
    if (rc == 0)
        return;
    pthread_mutex_lock(&m->lock);
    if (!m->err.code)
        m->err = err;
    pthread_mutex_unlock(&m->lock);
}

/* The first chunk that is not made; -1: there is none. */
static int cache_find_rest(const struct cache_making *m, int64_t *chunk, struct err *err)
{
    struct picture_entry entry[CACHE_CHUNK];

    for (*chunk = 0; *chunk < cache_n_chunks(m); ++*chunk) {
        if (cache_read_entries(m, *chunk, entry, err) < 0)
            return err->code;
        if (!cache_is_made(entry, cache_chunk_len(m, *chunk)))
            return 0;
    }
    *chunk = -1;
    return 0;
}

static int cache_wait(const struct cache_making *m, int64_t chunk, struct err *err)
{
    const int64_t byte = CACHE_HEADER_LOCK + 1 + chunk;

    log_info("data.cache: another process makes pictures of %s; waiting for it", m->part);
    if (cache_lock(m->fd, byte, F_WRLCK, 1) != 0)
        return cache_lock_failed(m->part, err);
    (void)cache_lock(m->fd, byte, F_UNLCK, 0);
    return 0;
}

/* Return when all chunks are made, here or by others. */
static int cache_fill(struct cache_making *m, struct pool *pool, struct err *err)
{
    for (;;) {
        int64_t chunk;

        pool_run(pool, cache_take_chunk, m, cache_n_chunks(m));
        if (m->err.code) {
            *err = m->err;
            return err->code;
        }
        if (cache_find_rest(m, &chunk, err) < 0)
            return err->code;
        if (chunk < 0)
            return 0;
        if (cache_wait(m, chunk, err) < 0)
            return err->code;
    }
}

/* ---- the file ---- */

/* Give the part its name, unless another process has done so.  The header is locked. */
static int cache_name(const struct cache_making *m, const char *path, struct err *err)
{
    struct picture_header h;

    if (!cache_has_name(m->fd, m->part))
        return 0;
    if (cache_read(m, &h, sizeof h, 0, err) < 0)
        return err->code;
    h.is_whole = 1;
    if (cache_write(m, &h, sizeof h, 0, err) < 0)
        return err->code;
    if (fsync(m->fd) < 0)
        return err_sys(err, errno, "cannot write the pictures to %s", m->part);
    if (rename(m->part, path) < 0)
        return err_sys(err, errno, "cannot rename %s to %s", m->part, path);
    log_info("data.cache: %s has the %lld pictures of %s, %lld MB", path, (long long)h.n,
             m->what->pictures, (long long)(h.end >> 20));
    return 0;
}

static int cache_finish(const struct cache_making *m, const char *path, struct err *err)
{
    int rc;

    if (cache_lock(m->fd, CACHE_HEADER_LOCK, F_WRLCK, 1) != 0)
        return cache_lock_failed(m->part, err);
    rc = cache_name(m, path, err);
    (void)cache_lock(m->fd, CACHE_HEADER_LOCK, F_UNLCK, 0);
    return rc;
}

/* The part's header becomes that of this request, or is.  1: the part is another one's, or has lost
 * its name: look again.  The header is locked. */
static int cache_begin(const struct cache_making *m, struct err *err)
{
    const struct picture_cache *what = m->what;
    struct picture_header h;
    struct stat st;

    if (!cache_has_name(m->fd, m->part))
        return 1;
    if (fstat(m->fd, &st) < 0)
        return err_sys(err, errno, "file %s", m->part);
    if (st.st_size >= picture_file_entry_at(what->n)) {
        if (cache_read(m, &h, sizeof h, 0, err) < 0)
            return err->code;
        if (picture_file_is_of(&h, what->key, what->n)) {
            log_info("data.cache: going on with %s, which has %lld MB", m->part,
                     (long long)(h.end >> 20));
            return 0;
        }
    }
    if (st.st_size > 0) {
        log_warn("data.cache: %s was not finished, and is of other pictures than %s has now; it "
                 "is made anew",
                 m->part, what->pictures);
        return unlink(m->part) < 0 ? err_sys(err, errno, "cannot remove %s", m->part) : 1;
    }
    log_info("data.cache: making %s of the %lld pictures of %s", m->part, (long long)what->n,
             what->pictures);
    if (ftruncate(m->fd, (off_t)picture_file_entry_at(what->n)) < 0)
        return err_sys(err, errno, "file %s", m->part);
    h = picture_file_header(what->key, what->n);
    return cache_write(m, &h, sizeof h, 0, err);
}

static int cache_run(struct cache_making *m, const char *path, struct err *err)
{
    struct pool *pool = NULL;
    struct cores cores;
    int rc;

    cores_read("", &cores);
    if (cache_lock(m->fd, CACHE_HEADER_LOCK, F_WRLCK, 1) != 0)
        return cache_lock_failed(m->part, err);
    rc = cache_begin(m, err);
    (void)cache_lock(m->fd, CACHE_HEADER_LOCK, F_UNLCK, 0);
    if (rc == 0)
        rc = pool_new(&pool, (int)min_i64(cores_limit(&cores, cores.n, 1), POOL_MAX_THREADS), err);
    if (rc == 0)
        rc = cache_fill(m, pool, err);
    pool_free(pool);
    return rc == 0 ? cache_finish(m, path, err) : rc;
}

/* Make the file, or a part of it while others make the rest.  Then it may be there. */
static int cache_make(const struct picture_cache *what, const char *path, const char *part,
                      struct err *err)
{
    struct cache_making m = {.what = what, .part = part, .told_ns = clock_mono_ns()};
    int rc;

    m.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (m.fd < 0)
        return err_sys(err, errno,
                       "the pictures of %s cannot be kept in %s; want a folder that can be "
                       "written, data.cache",
                       what->pictures, what->folder);
    pthread_mutex_init(&m.lock, NULL);
    rc = cache_run(&m, path, err);
    pthread_mutex_destroy(&m.lock);
    close(m.fd);
    return rc;
}

static int cache_look(struct picture_file *out, const struct picture_cache *what, const char *path,
                      const char *part, struct err *err)
{
    for (int i = 0; i < CACHE_MOST_TRIES; i++) {
        int rc = picture_file_open(out, path, what->key, what->n, err);

        if (rc == PICTURE_FILE_OTHER && i == 0)
            log_warn("data.cache: the pictures of %s have changed since %s was made; it is made "
                     "anew",
                     what->pictures, path);
        if (rc > 0)
            rc = cache_make(what, path, part, err) < 0 ? err->code : 1;
        if (rc <= 0)
            return rc;
    }
    return err_set(err, ERR_IO,
                   "file %s is not there, or not whole, after it was made %d times; do the "
                   "pictures of %s change?",
                   path, CACHE_MOST_TRIES, what->pictures);
}

int picture_cache_open(struct picture_file *out, const struct picture_cache *what, struct err *err)
{
    char name[HASH_TEXT_LEN], *path, *part;
    int rc;

    hash_to_text(what->name, name);
    path = xasprintf("%s/.dptrain-%s.pictures", what->folder, name);
    part = xasprintf("%s.part", path);
    rc = cache_look(out, what, path, part, err);
    free(part);
    free(path);
    return rc;
}
