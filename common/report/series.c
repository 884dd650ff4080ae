/* series - each call is a task of the writer.
 *
 * Happy path: series_go_on opens the file, reads its last row's step and cuts what lies beyond;
 * series_add appends rows.
 * Failure modes.  The writer's queue is full: the task is dropped, and the log says so.  The disk
 * takes only a part of the rows: the part is taken back.  The file was made by an older version
 * or by hand and has other columns: it is left alone, and no row is written. */
#include "report/series.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "report/run_dir.h"

enum { SERIES_HEADER = 256 }; /* more than any header has */

struct series {
    const struct series_kind *kind;
    char *run_dir, *path;
    struct writer *writer;
    atomic_int has_failed; /* told */

    /* The writer's. */
    int fd;            /* -1: not open, or given up */
    int64_t last_step; /* of the last row; 0: there is none */
};

/* A task: to go on from `step`, or to add the rows. */
struct series_task {
    struct task task;
    struct series *owner;
    int64_t step;
    int n;             /* 0: go on */
    max_align_t row[]; /* the rows, one after another */
};

struct series *series_new(const char *run_dir, const struct series_kind *kind,
                          struct writer *writer)
{
    struct series *c = xcalloc(1, sizeof *c);

    c->run_dir = xstrdup(run_dir);
    c->kind = kind;
    c->path = xasprintf("%s/%s", run_dir, kind->name);
    c->writer = writer;
    c->fd = -1;
    return c;
}

void series_free(struct series *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c->run_dir);
    free(c->path);
    free(c);
}

static void tell_failure(struct series *c, const char *why)
{
    if (!atomic_exchange(&c->has_failed, 1))
        log_warn("%s: rows are missing: %s; training goes on", c->path, why);
}

/* ---- in the writer's thread ---- */

/* Append all of the text or nothing. */
static int series_append(struct series *c, const char *text, size_t len)
{
    const off_t end = lseek(c->fd, 0, SEEK_END);
    ssize_t n;

    do
        n = write(c->fd, text, len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return 0;
    tell_failure(c, n < 0 ? strerror(errno) : "disk full");
    if (n > 0 && ftruncate(c->fd, end) < 0)
        log_warn("%s: a torn row could not be taken back: %s", c->path, strerror(errno));
    return -1;
}

/* The last line of the file's first `end` bytes, which are whole lines: its first byte, and its
 * step, or -1 if the line begins with no number, as the header does, or is longer than any row. */
static int64_t last_line(int fd, off_t end, off_t *begin)
{
    char text[512] = "", *stop;
    const off_t from = end > (off_t)sizeof text - 1 ? end - (off_t)sizeof text + 1 : 0;
    const ssize_t n = pread(fd, text, (size_t)(end - from), from);
    const char *nl = n > 1 ? memrchr(text, '\n', (size_t)n - 1) : NULL;
    const char *line = nl ? nl + 1 : text;
    const long long step = strtoll(line, &stop, 10);

    *begin = from + (line - text);
    return (nl || from == 0) && stop > line && *stop == ',' ? step : -1;
}

/* Cut the rows beyond `step`. */
static void cut_rows(struct series *c, int64_t step)
{
    off_t end = lseek(c->fd, 0, SEEK_END), begin = end;
    const off_t before = end;
    int64_t last;

    while ((last = last_line(c->fd, end, &begin)) > step)
        end = begin;
    c->last_step = max_i64(last, 0);
    if (end < before && ftruncate(c->fd, end) < 0)
        tell_failure(c, strerror(errno));
}

static int series_has_header(const struct series *c)
{
    char text[SERIES_HEADER] = "";
    const size_t len = strlen(c->kind->header);

    ASSERT(len < sizeof text);
    return pread(c->fd, text, len, 0) == (ssize_t)len && !strcmp(text, c->kind->header);
}

/* If the disk is full, the next row tries again. */
static int series_add_header(struct series *c)
{
    return series_append(c, c->kind->header, strlen(c->kind->header));
}

static void series_give_up(struct series *c, const char *why)
{
    tell_failure(c, why);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static void open_file(struct series *c)
{
    struct err err;

    c->fd = open(c->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (c->fd < 0)
        series_give_up(c, strerror(errno));
    else if (run_dir_cut_torn_line(c->fd, c->path, &err) < 0)
        series_give_up(c, err.msg);
    else if (lseek(c->fd, 0, SEEK_END) == 0)
        (void)series_add_header(c);
    else if (!series_has_header(c))
        series_give_up(c, "its first line is not this version's header; move the file away");
}

static void series_go_on_file(struct series *c, int64_t step)
{
    if (owner_is_other(c->run_dir))
        return;
    if (c->fd < 0)
        open_file(c);
    if (c->fd >= 0)
        cut_rows(c, step);
}

/* Those that the file does not have. */
static void series_add_lines(struct series *c, const void *row, int n)
{
    int64_t last = c->last_step;
    struct buf text = {0};

    if (c->fd < 0 || owner_is_other(c->run_dir))
        return;
    for (int i = 0; i < n; i++) {
        const void *one = (const char *)row + (size_t)i * c->kind->row_bytes;
        const int64_t step = *(const int64_t *)one;

        if (step > last)
            c->kind->put(&text, one);
        last = max_i64(last, step);
    }
    if (text.len && (lseek(c->fd, 0, SEEK_END) > 0 || series_add_header(c) == 0) &&
        series_append(c, (const char *)text.data, text.len) == 0)
        c->last_step = last;
    buf_fini(&text);
}

static void run_task(struct task *t)
{
    struct series_task *j = container_of(t, struct series_task, task);

    if (j->n > 0)
        series_add_lines(j->owner, j->row, j->n);
    else
        series_go_on_file(j->owner, j->step);
    free(j);
}

/* ---- the adding thread ---- */

static void series_queue(struct series *c, int64_t step, const void *row, int n)
{
    const size_t n_bytes = sizeof(struct series_task) + (size_t)n * c->kind->row_bytes;
    struct series_task *j = xmalloc(n_bytes);

    j->task = (struct task){.n_bytes = n_bytes, .run = run_task};
    j->owner = c;
    j->step = step;
    j->n = n;
    if (n > 0)
        memcpy(j->row, row, (size_t)n * c->kind->row_bytes);
    if (writer_put(c->writer, &j->task) != WRITER_FULL)
        return;
    tell_failure(c, "the disk hangs and the queue is full");
    free(j);
}

void series_go_on(struct series *c, int64_t step) { series_queue(c, step, NULL, 0); }

void series_add(struct series *c, const void *row, int n)
{
    if (n > 0)
        series_queue(c, 0, row, n);
}

void series_put_number(struct buf *out, double v, char after)
{
    if (isnan(v)) /* printf may give it a sign */
        buf_printf(out, "nan%c", after);
    else
        buf_printf(out, "%.9g%c", v, after);
}
