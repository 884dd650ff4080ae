/* lines - each line is a task of the writer, which appends it.
 *
 * Happy path: lines_add -> writer_put -> append in the writer's thread -> write(2).
 * Failure modes.  The queue is full: lines_add counts the line in `n_unfit`, and the next line that
 * fits carries that number along, so that the warning stands at the place of the gap.  The disk is
 * full: `n_failed` lines wait for the next line that can be written.  The disk hangs: the writer's
 * thread hangs with it, and the queue fills up. */
#include "report/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "report/run_dir.h"

struct lines {
    char *path, *run_dir, *what;
    int64_t most_bytes, most_queued, owner_ms;
    struct writer *writer;
    atomic_llong n_lost;
    atomic_llong n_queued; /* bytes of lines that the writer has not written yet */

    int64_t n_unfit; /* the adding thread's: lines that found no room since the last that did */
    double unfit_at; /* Unix time of the first of them */

    /* The writer's. */
    int fd;
    int64_t n_failed; /* lines that the disk did not take since the last that it took */
    double failed_at;
    int is_stuck;              /* the last rotation failed, and the log says so */
    int wants_lock;            /* another process had the lock when it was tried last */
    int64_t owner_read_ns;     /* when the owner was read last; 0: never */
    atomic_int is_other_owner; /* another driver owns the directory; the log says so */
};

struct line {
    struct task task;
    struct lines *owner;
    int64_t n_unfit; /* lines that are missing before this one */
    double unfit_at;
    size_t len; /* 0: there is no line, only the number of missing ones */
    char text[];
};

struct lines *lines_new(int fd, const struct lines_options *o)
{
    struct lines *l = xcalloc(1, sizeof *l);

    l->fd = fd;
    l->path = xstrdup(o->path);
    l->run_dir = o->run_dir ? xstrdup(o->run_dir) : NULL;
    l->what = xstrdup(o->what);
    l->most_bytes = o->most_bytes;
    l->most_queued = o->most_queued;
    l->owner_ms = o->owner_ms;
    l->wants_lock = o->wants_lock;
    l->writer = o->writer;
    return l;
}

void lines_free(struct lines *l)
{
    if (!l)
        return;
    close(l->fd);
    free(l->path);
    free(l->run_dir);
    free(l->what);
    free(l);
}

int lines_open(const char *path, int *out, struct err *err)
{
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, rc;
    int fd = open(path, flags, 0666);

    if (fd < 0)
        return err_sys(err, errno, "%s: cannot be written", path);
    rc = run_dir_cut_torn_line(fd, path, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

int64_t lines_lost(struct lines *l) { return atomic_load(&l->n_lost); }

/* ---- old files ---- */

char *lines_part(const char *path, int i)
{
    return i < LINES_OLD ? xasprintf("%s.%d", path, LINES_OLD - i) : xstrdup(path);
}

static int lines_each_of(const char *path, void (*each)(void *arg, const char *line, size_t n),
                         void *arg, struct err *err)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;

    if (!f)
        return errno == ENOENT ? 0 : err_sys(err, errno, "%s: cannot be read", path);
    while ((n = getline(&line, &cap, f)) > 0)
        each(arg, line, (size_t)n);
    if (ferror(f))
        rc = err_sys(err, errno, "%s: cannot be read", path);
    free(line);
    fclose(f);
    return rc;
}

int lines_each(const char *path, void (*each)(void *arg, const char *line, size_t n), void *arg,
               struct err *err)
{
    int rc = 0;

    for (int i = 0; i <= LINES_OLD; i++) {
        char *part = lines_part(path, i);
        const int one = lines_each_of(part, each, arg, err);

        rc = one < 0 ? one : rc;
        free(part);
    }
    return rc;
}

static int is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

/* FILE.n; for free(). */
static char *old_part(const char *path, int n) { return lines_part(path, LINES_OLD - n); }

/* Make room for a new FILE.1: FILE.1 becomes FILE.2, and so on, up to the first name that is free.
 * If none is, the last file is replaced.  So a rotation that is tried again and again shifts once,
 * and loses no part.  0: there is no FILE.1. */
static int lines_shift(const char *path)
{
    int rc = 0, free_one = 1;

    for (; free_one < LINES_OLD; free_one++) {
        char *part = old_part(path, free_one);
        int is_free = !is_there(part);

        free(part);
        if (is_free)
            break;
    }
    for (int n = free_one; rc == 0 && n > 1; n--) {
        char *from = old_part(path, n - 1), *to = old_part(path, n);

        rc = rename(from, to);
        free(from);
        free(to);
    }
    return rc;
}

/* Put the new file in the old one's place, without a moment in which there is none: another driver
 * could take the directory for a free one.  Where the file system cannot exchange names, there is
 * such a moment.  The old file becomes `first`.
 * 0: done.  -1: the old file is in its place still, with errno.  Only if renaming it back failed,
 * too, is it at `aside` or `first`. */
static int lines_exchange(const char *aside, const char *path, const char *first)
{
    int errnum;

    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        if (rename(aside, first) == 0)
            return 0;
        errnum = errno;
        (void)renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE);
        errno = errnum;
        return -1;
    }
    if (rename(path, first) < 0 && errno != ENOENT)
        return -1;
    if (rename(aside, path) == 0)
        return 0;
    errnum = errno;
    (void)rename(first, path);
    errno = errnum;
    return -1;
}

/* Free the name `aside`.  A file with lines there is an old part that a rotation, of this process
 * or of one that was killed, did not bring to its place: it becomes FILE.1.  0: the name is free.
 */
static int clear_aside(const char *path, const char *aside, const char *first)
{
    struct stat st;

    if (lstat(aside, &st) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return unlink(aside);
    return lines_shift(path) == 0 ? rename(aside, first) : -1;
}

/* The new file's descriptor, or -1 with errno.  Then lines go to the old file still. */
static int begin_file(const char *path, const char *aside, const char *first)
{
    int flags = O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    int fd = clear_aside(path, aside, first) == 0 ? open(aside, flags, 0666) : -1, errnum;

    if (fd < 0)
        return -1;
    (void)flock(fd, LOCK_EX | LOCK_NB); /* as the old one; no other process has it open */
    if (lines_shift(path) == 0 && lines_exchange(aside, path, first) == 0)
        return fd;
    errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

/* Begin a new file.  If that fails, the old one goes on growing, and the next line tries again. */
static void lines_rotate(struct lines *l)
{
    char *aside = xasprintf("%s.new", l->path), *first = old_part(l->path, 1);
    int fd = begin_file(l->path, aside, first);

    if (fd >= 0) {
        close(l->fd); /* with its lock; the new file has its own */
        l->fd = fd;
    } else if (!l->is_stuck) {
        log_warn("%s: a new part cannot be begun: %s; this one goes on growing", l->path,
                 strerror(errno));
    }
    l->is_stuck = fd < 0;
    free(aside);
    free(first);
}

/* ---- writing, in the writer's thread ---- */

static void note_failed(struct lines *l, int errnum)
{
    if (l->n_failed++ == 0) {
        l->failed_at = clock_wall_s();
        log_warn("%s: %s could not be written: %s; training goes on, and what follows is missing "
                 "until this is mended",
                 l->path, l->what, errnum ? strerror(errnum) : "disk full");
    }
    atomic_fetch_add(&l->n_lost, 1);
}

/* Write the line whole or not at all: a part of it would make the next line unreadable, too.
 * Returns 0, or -1 with *errnum. */
static int write_whole(struct lines *l, const char *text, size_t len, int *errnum)
{
    struct stat st = {0};
    ssize_t n;

    if (fstat(l->fd, &st) == 0 && st.st_size > 0 && st.st_size + (off_t)len > l->most_bytes) {
        lines_rotate(l);
        fstat(l->fd, &st);
    }
    do
        n = write(l->fd, text, len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return 0;
    *errnum = n < 0 ? errno : 0;
    if (n > 0 && ftruncate(l->fd, st.st_size) < 0)
        log_warn("%s: a torn line could not be taken back: %s", l->path, strerror(errno));
    return -1;
}

/* 0: the line that tells of missing lines is written, or there are none. */
static int lines_tell_missing(struct lines *l, int64_t n_unfit, double unfit_at, int *errnum)
{
    int64_t n = n_unfit + l->n_failed;
    double since = l->n_failed ? l->failed_at : unfit_at, now = clock_wall_s();
    char text[256];
    int len;

    if (n == 0)
        return 0;
    len = snprintf(text, sizeof text,
                   "{\"event\":\"warning\",\"time\":%.6f,\"rank\":null,\"step\":null,\"message\":"
                   "\"%lld lines are missing here: for %.0f s the disk took none\"}\n",
                   now, (long long)n, now - since);
    if (write_whole(l, text, (size_t)len, errnum) < 0)
        return -1;
    if (l->n_failed)
        log_info("%s: written again; %lld lines are missing", l->path, (long long)n);
    l->n_failed = 0;
    return 0;
}

/* 1: it is time to read the owner. */
static int is_owner_due(struct lines *l)
{
    int64_t now = clock_mono_ns();

    if (l->owner_read_ns && now - l->owner_read_ns < l->owner_ms * 1000000)
        return 0;
    l->owner_read_ns = now;
    return 1;
}

/* 1: another driver owns the directory. */
static int is_taken_over(struct lines *l)
{
    struct err err;

    if (!l->is_other_owner && l->run_dir && is_owner_due(l) &&
        owner_check(l->run_dir, &err) == ERR_REFUSED) {
        l->is_other_owner = 1;
        log_error("%s", err.msg);
    }
    return l->is_other_owner;
}

/* The driver before was frozen, and held the lock of a file that this driver claimed.  Once that
 * process is gone, the lock tells others that the directory is in use. */
static void try_lock(struct lines *l)
{
    if (l->wants_lock && flock(l->fd, LOCK_EX | LOCK_NB) == 0)
        l->wants_lock = 0;
}

static void lines_append(struct lines *l, const struct line *line)
{
    int errnum = 0;

    if (is_taken_over(l)) {
        atomic_fetch_add(&l->n_lost, line->len > 0);
        return;
    }
    try_lock(l);
    if (lines_tell_missing(l, line->n_unfit, line->unfit_at, &errnum) < 0) {
        l->n_failed += line->n_unfit; /* the next line tells of them */
        if (line->len)
            note_failed(l, errnum);
        return;
    }
    if (line->len && write_whole(l, line->text, line->len, &errnum) < 0)
        note_failed(l, errnum);
}

static void run_line(struct task *t)
{
    struct line *line = container_of(t, struct line, task);

    lines_append(line->owner, line);
    atomic_fetch_sub(&line->owner->n_queued, (long long)line->len);
    free(line);
}

/* ---- the adding thread ---- */

static struct line *new_line(struct lines *l, const char *text)
{
    size_t len = strlen(text);
    struct line *line = xmalloc(sizeof *line + len + 1);

    *line = (struct line){.task = {.n_bytes = len, .run = run_line},
                          .owner = l,
                          .n_unfit = l->n_unfit,
                          .unfit_at = l->unfit_at,
                          .len = len ? len + 1 : 0};
    memcpy(line->text, text, len);
    line->text[len] = '\n';
    return line;
}

/* This file's part of the queue has room for the line, or no line of it is queued. */
static int lines_fits(struct lines *l, const struct line *line)
{
    int64_t queued = atomic_load(&l->n_queued);

    return !l->most_queued || !queued || queued + (int64_t)line->len <= l->most_queued;
}

/* 0: the writer has it. */
static int lines_put(struct lines *l, const char *text)
{
    struct line *line = new_line(l, text);
    long long len = (long long)line->len; /* the writer frees the line */
    int rc = WRITER_FULL;

    if (lines_fits(l, line)) {
        atomic_fetch_add(&l->n_queued, len);
        rc = writer_put(l->writer, &line->task);
        if (rc == WRITER_FULL)
            atomic_fetch_sub(&l->n_queued, len);
    }
    if (rc == 0)
        l->n_unfit = 0;
    else
        free(line);
    return rc;
}

void lines_add(struct lines *l, const char *text)
{
    if (lines_put(l, text) == 0)
        return;
    if (l->n_unfit++ == 0) {
        l->unfit_at = clock_wall_s();
        log_warn("%s: the disk hangs and the queue is full: training goes on, and what follows is "
                 "missing until the disk answers",
                 l->path);
    }
    atomic_fetch_add(&l->n_lost, 1);
}

int lines_check_owner(struct lines *l)
{
    (void)lines_put(l, ""); /* where the queue is full, lines wait that look for the owner, too */
    return atomic_load(&l->is_other_owner);
}

int lines_flush(struct lines *l, int64_t patience_ms)
{
    int rc = writer_flush(l->writer, patience_ms);

    if (rc == 0 && l->n_unfit && lines_put(l, "") == 0)
        rc = writer_flush(l->writer, patience_ms);
    return rc;
}
