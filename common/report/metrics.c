/* metrics - each call is a task of the writer.
 *
 * Happy path: metrics_go_on opens the file, reads its last row's step and cuts what lies beyond;
 * metrics_add appends rows.
 * Failure modes.  The writer's queue is full: the task is dropped, and the log says so.  The disk
 * takes only a part of the rows: the part is taken back.  The file was made by an older version
 * or by hand and has other columns: it is left alone, and no row is written. */
#include "report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
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

static const char header[] = "step,epoch,loss,learning_rate,grad_norm,samples_per_second\n";

enum { ROW_BYTES = 256 };

struct metrics {
    char *run_dir, *path;
    struct writer *writer;
    atomic_int has_failed; /* told */

    /* The writer's. */
    int fd;            /* -1: not open, or given up */
    int64_t last_step; /* of the last row; 0: there is none */
};

/* A task: to go on from `step`, or to add the rows. */
struct metrics_task {
    struct task task;
    struct metrics *owner;
    int64_t step;
    int n; /* 0: go on */
    struct metrics_row row[];
};

struct metrics *metrics_new(const char *run_dir, struct writer *writer)
{
    struct metrics *m = xcalloc(1, sizeof *m);

    m->run_dir = xstrdup(run_dir);
    m->path = xasprintf("%s/metrics.csv", run_dir);
    m->writer = writer;
    m->fd = -1;
    return m;
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    free(m->run_dir);
    free(m->path);
    free(m);
}

static void tell_failure(struct metrics *m, const char *why)
{
    if (!atomic_exchange(&m->has_failed, 1))
        log_warn("%s: rows are missing: %s; training goes on", m->path, why);
}

/* ---- in the writer's thread ---- */

/* Append all of the text or nothing. */
static int metrics_append(struct metrics *m, const char *text, size_t len)
{
    const off_t end = lseek(m->fd, 0, SEEK_END);
    ssize_t n;

    do
        n = write(m->fd, text, len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)len)
        return 0;
    tell_failure(m, n < 0 ? strerror(errno) : "disk full");
    if (n > 0 && ftruncate(m->fd, end) < 0)
        log_warn("%s: a torn row could not be taken back: %s", m->path, strerror(errno));
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
static void cut_rows(struct metrics *m, int64_t step)
{
    off_t end = lseek(m->fd, 0, SEEK_END), begin = end;
    const off_t before = end;
    int64_t last;

    while ((last = last_line(m->fd, end, &begin)) > step)
        end = begin;
    m->last_step = max_i64(last, 0);
    if (end < before && ftruncate(m->fd, end) < 0)
        tell_failure(m, strerror(errno));
}

static int has_header(int fd)
{
    char text[sizeof header] = "";

    return pread(fd, text, sizeof header - 1, 0) == (ssize_t)sizeof header - 1 &&
           !strcmp(text, header);
}

/* If the disk is full, the next row tries again. */
static int add_header(struct metrics *m) { return metrics_append(m, header, sizeof header - 1); }

static void metrics_give_up(struct metrics *m, const char *why)
{
    tell_failure(m, why);
    if (m->fd >= 0)
        close(m->fd);
    m->fd = -1;
}

static void open_file(struct metrics *m)
{
    struct err err;

    m->fd = open(m->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (m->fd < 0)
        metrics_give_up(m, strerror(errno));
    else if (run_dir_cut_torn_line(m->fd, m->path, &err) < 0)
        metrics_give_up(m, err.msg);
    else if (lseek(m->fd, 0, SEEK_END) == 0)
        (void)add_header(m);
    else if (!has_header(m->fd))
        metrics_give_up(m, "its first line is not this version's header; move the file away");
}

static void metrics_go_on_file(struct metrics *m, int64_t step)
{
    if (owner_is_other(m->run_dir))
        return;
    if (m->fd < 0)
        open_file(m);
    if (m->fd >= 0)
        cut_rows(m, step);
}

/* %.9g tells any two float32 apart.  A sum of losses that was too large to be kept is "inf", as
 * numpy and pandas read and write it; a number that is undefined or not known is "nan". */
static void metrics_put(char text[ROW_BYTES], double v, char after)
{
    const size_t len = strlen(text);

    if (isnan(v)) /* printf may give it a sign */
        snprintf(text + len, ROW_BYTES - len, "nan%c", after);
    else
        snprintf(text + len, ROW_BYTES - len, "%.9g%c", v, after);
}

static void metrics_put_row(struct buf *out, const struct metrics_row *row)
{
    char text[ROW_BYTES];

    snprintf(text, sizeof text, "%lld,%lld,", (long long)row->step, (long long)row->epoch);
    metrics_put(text, row->loss, ',');
    metrics_put(text, row->learning_rate, ',');
    metrics_put(text, row->grad_norm, ',');
    metrics_put(text, row->samples_per_second, '\n');
    buf_append(out, text, strlen(text));
}

/* Those that the file does not have. */
static void metrics_add_lines(struct metrics *m, const struct metrics_row *row, int n)
{
    int64_t last = m->last_step;
    struct buf text = {0};

    if (m->fd < 0 || owner_is_other(m->run_dir))
        return;
    for (int i = 0; i < n; i++) {
        if (row[i].step > last)
            metrics_put_row(&text, &row[i]);
        last = max_i64(last, row[i].step);
    }
    if (text.len && (lseek(m->fd, 0, SEEK_END) > 0 || add_header(m) == 0) &&
        metrics_append(m, (const char *)text.data, text.len) == 0)
        m->last_step = last;
    buf_fini(&text);
}

static void run_task(struct task *t)
{
    struct metrics_task *j = container_of(t, struct metrics_task, task);

    if (j->n > 0)
        metrics_add_lines(j->owner, j->row, j->n);
    else
        metrics_go_on_file(j->owner, j->step);
    free(j);
}

/* ---- the adding thread ---- */

static void metrics_queue(struct metrics *m, int64_t step, const struct metrics_row *row, int n)
{
    const size_t n_bytes = sizeof(struct metrics_task) + (size_t)n * sizeof *row;
    struct metrics_task *j = xmalloc(n_bytes);

    j->task = (struct task){.n_bytes = n_bytes, .run = run_task};
    j->owner = m;
    j->step = step;
    j->n = n;
    if (n > 0)
        memcpy(j->row, row, (size_t)n * sizeof *row);
    if (writer_put(m->writer, &j->task) != WRITER_FULL)
        return;
    tell_failure(m, "the disk hangs and the queue is full");
    free(j);
}

void metrics_go_on(struct metrics *m, int64_t step) { metrics_queue(m, step, NULL, 0); }

void metrics_add(struct metrics *m, const struct metrics_row *row, int n)
{
    if (n > 0)
        metrics_queue(m, 0, row, n);
}
