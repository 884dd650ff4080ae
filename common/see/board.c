/* board - each call is a task of the writer, with its record made.
 *
 * Happy path: board_event(EVENT_FORM) opens the file and makes its head; a row or an epoch is a
 * record, and the rows of one call are appended together.
 * Failure modes.  The disk is full: the record is taken back and left out; the head of the file is
 * tried again before the next record.  The writer's queue is full: the record is left out.  The run
 * goes back to an older step: a new start is written, and later steps count anew. */
#include "see/board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "model/losses.h"
#include "report/run_dir.h"
#include "see/board_events.h"
#include "see/matrix.h"

static const char prefix[] = "events.out.tfevents.";

enum board_kind { BOARD_ROW, BOARD_EPOCH, BOARD_SERIES, BOARD_START = BOARD_SERIES, BOARD_END };

struct board {
    char *run_dir, *folder, *run;
    const struct job *job;
    struct writer *writer;
    atomic_int has_failed; /* told */
    int has_no_matrix;     /* told */

    /* The writer's. */
    int fd;            /* -1: not open */
    struct buf head;   /* records that must stand before the next one */
    int64_t last_step; /* of any record */
    int64_t last[BOARD_SERIES];
};

struct board_task {
    struct task task;
    struct board *owner;
    enum board_kind kind;
    int64_t step;
    struct board_scalar scalar[BOARD_SCALARS];
    int n;
    double time;
    char *figures;           /* of a validation, or NULL */
    struct metrics_row *row; /* [n_rows], of BOARD_ROW */
    int n_rows;
};

static void board_task_fini(struct board_task *t)
{
    free(t->figures);
    free(t->row);
}

struct board *board_new(const char *run_dir, const char *run, const struct job *job,
                        struct writer *writer)
{
    struct board *b = xcalloc(1, sizeof *b);

    b->run_dir = xstrdup(run_dir);
    b->folder = xasprintf("%s/tensorboard", run_dir);
    b->run = xstrdup(run);
    b->job = job;
    b->writer = writer;
    b->fd = -1;
    return b;
}

void board_free(struct board *b)
{
    if (!b)
        return;
    if (b->fd >= 0)
        close(b->fd);
    buf_fini(&b->head);
    free(b->run_dir);
    free(b->folder);
    free(b->run);
    free(b);
}

static void board_tell(struct board *b, const char *why)
{
    if (!atomic_exchange(&b->has_failed, 1))
        log_warn("%s: points are missing: %s; training goes on", b->folder, why);
}

/* ---- in the writer's thread ---- */

/* Append all of it or nothing. */
static int board_append(struct board *b, const struct buf *records)
{
    const off_t end = lseek(b->fd, 0, SEEK_END);
    ssize_t n;

    do
        n = write(b->fd, records->data, records->len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)records->len)
        return 0;
    board_tell(b, n < 0 ? strerror(errno) : "disk full");
    if (n > 0 && ftruncate(b->fd, end) < 0)
        log_warn("%s: a torn record could not be taken back: %s", b->folder, strerror(errno));
    return -1;
}

/* The seconds in the name of the newest file; -1: there is none. */
static int64_t newest_seconds(const char *folder)
{
    DIR *d = opendir(folder);
    int64_t newest = -1;
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, prefix, strlen(prefix)))
            newest = max_i64(newest, strtoll(e->d_name + strlen(prefix), NULL, 10));
    if (d)
        closedir(d);
    return newest;
}

static int board_open(struct board *b)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    char host[HOST_NAME_MAX + 1] = "", *path;
    int64_t seconds;

    if (mkdir(b->folder, 0777) < 0 && errno != EEXIST) {
        board_tell(b, strerror(errno));
        return -1;
    }
    gethostname(host, sizeof host - 1);
    seconds = max_i64((int64_t)clock_wall_s(), newest_seconds(b->folder) + 1);
    path = xasprintf("%s/%s%010lld.%s.%ld", b->folder, prefix, (long long)seconds, host,
                     (long)getpid());
    b->fd = open(path, flags, 0666);
    if (b->fd < 0)
        board_tell(b, strerror(errno));
    else
        board_put_version(&b->head, clock_wall_s());
    free(path);
    return b->fd < 0 ? -1 : 0;
}

/* The run goes on from `step`, whose points stay. */
static void board_start(struct board *b, const struct board_task *t)
{
    const int64_t first = t->step ? t->step + 1 : 0;
    const int is_new = b->fd < 0;

    if (is_new && board_open(b) < 0)
        return;
    if (!is_new && t->step >= b->last_step)
        return;
    board_put_start(&b->head, t->time, first);
    if (is_new)
        board_put_job(&b->head, t->time, first, b->job, b->run);
    b->last_step = b->last[BOARD_ROW] = b->last[BOARD_EPOCH] = t->step;
}

/* The confusion matrix of a validation, if it has one: a picture, and the run's table. */
static void board_matrix(const struct board *b, const struct board_task *t, struct buf *out)
{
    struct board_picture p = {.tag = "confusion/validation"};
    struct buf png = {0}, table = {0};
    struct matrix m;
    struct err err;
    char *path;

    if (!matrix_read(t->figures, &m))
        return;
    if (matrix_png(&m, t->step, &png, &p.width, &p.height)) {
        p.png = png.data;
        p.n = png.len;
        board_put_picture(out, t->time, t->step, &p);
    }
    matrix_csv(&m, &table);
    path = xasprintf("%s/confusion.csv", b->run_dir);
    if (run_dir_replace(path, table.data, table.len, &err) < 0)
        log_warn("the confusion matrix is not written: %s; training goes on", err.msg);
    free(path);
    buf_fini(&png);
    buf_fini(&table);
    matrix_fini(&m);
}

static void board_add(struct board_task *t, const char *tag, double value)
{
    t->scalar[t->n++] = (struct board_scalar){tag, value};
}

/* A loss that is no number is shown as such.  Of other figures NAN says that they are not known. */
static void board_add_known(struct board_task *t, const char *tag, double value)
{
    if (!isnan(value))
        board_add(t, tag, value);
}

static void board_put_row(struct buf *out, double time, const struct metrics_row *row)
{
    struct board_task t = {0};

    board_add(&t, "loss/train", row->loss);
    board_add_known(&t, "learning_rate", row->learning_rate);
    board_add_known(&t, "grad_norm", row->grad_norm);
    board_add_known(&t, "samples_per_second", row->samples_per_second);
    board_put_scalars(out, time, row->step, t.scalar, t.n);
}

/* Those that the file does not have. */
static void board_put_rows(const struct board *b, const struct board_task *t, struct buf *out)
{
    int64_t last = b->last[BOARD_ROW];

    for (int i = 0; i < t->n_rows; i++) {
        if (t->row[i].step > last)
            board_put_row(out, t->time, &t->row[i]);
        last = max_i64(last, t->row[i].step);
    }
}

static void board_write(struct board *b, const struct board_task *t)
{
    struct buf record = {0};

    if (t->kind == BOARD_END)
        board_put_end(&record, t->time, b->last_step);
    else if (t->kind == BOARD_ROW)
        board_put_rows(b, t, &record);
    else if (t->kind < BOARD_SERIES)
        board_put_scalars(&record, t->time, t->step, t->scalar, t->n);
    board_matrix(b, t, &record);
    if (b->head.len && board_append(b, &b->head) == 0)
        buf_clear(&b->head);
    if (record.len && !b->head.len && board_append(b, &record) == 0 && t->kind < BOARD_SERIES) {
        b->last[t->kind] = t->step;
        b->last_step = max_i64(b->last_step, t->step);
    }
    buf_fini(&record);
}

static void board_run(struct task *task)
{
    struct board_task *t = container_of(task, struct board_task, task);
    struct board *b = t->owner;

    if (!owner_is_other(b->run_dir)) {
        if (t->kind == BOARD_START)
            board_start(b, t);
        if (b->fd >= 0 && (t->kind >= BOARD_SERIES || t->step > b->last[t->kind]))
            board_write(b, t);
    }
    board_task_fini(t);
    free(t);
}

/* ---- the other threads ---- */

static void board_put(struct board *b, const struct board_task *what)
{
    struct board_task *t = xmalloc(sizeof *t);

    *t = *what;
    t->task = (struct task){.n_bytes = sizeof *t + (t->figures ? strlen(t->figures) : 0) +
                                       (size_t)t->n_rows * sizeof *t->row,
                            .run = board_run};
    t->owner = b;
    t->time = clock_wall_s();
    if (writer_put(b->writer, &t->task) != WRITER_FULL)
        return;
    board_tell(b, "the disk hangs and the queue is full");
    board_task_fini(t);
    free(t);
}

void board_rows(struct board *b, const struct metrics_row *row, int n)
{
    struct board_task t = {.kind = BOARD_ROW, .n_rows = n};

    if (n == 0)
        return;
    t.step = row[n - 1].step;
    t.row = xmalloc((size_t)n * sizeof *row);
    memcpy(t.row, row, (size_t)n * sizeof *row);
    board_put(b, &t);
}

/* Classes are told, or the loss compares outputs with none, so confusions were not counted. */
static void board_tell_no_matrix(struct board *b)
{
    if (!b->has_no_matrix)
        log_info("%s: there is no confusion matrix; it is drawn where a target is one of up to %d "
                 "classes that the loss compares outputs with, but for the next token",
                 b->folder, MATRIX_MOST);
    b->has_no_matrix = 1;
}

static void board_epoch(struct board *b, const struct session_epoch *e)
{
    struct board_task t = {.kind = BOARD_EPOCH, .step = e->step};

    if (b->job->report.every_steps == 0) {
        board_add(&t, "loss/train", e->train_loss);
        board_add_known(&t, "samples_per_second", e->samples_per_second);
    }
    if (e->is_validated) {
        board_add(&t, "loss/validation", e->validation_loss);
        if (e->validation_accuracy != NOT_MEASURED)
            board_add_known(&t, "accuracy/validation", e->validation_accuracy);
        if (!e->figures &&
            (e->validation_accuracy != NOT_MEASURED || loss_is_free(b->job->model.loss)))
            board_tell_no_matrix(b);
        t.figures = e->figures ? xstrdup(e->figures) : NULL;
    }
    if (t.n)
        board_put(b, &t);
}

void board_event(struct board *b, const struct session_event *ev)
{
    if (ev->kind == EVENT_FORM)
        board_put(b, &(struct board_task){.kind = BOARD_START, .step = max_i64(ev->step, 0)});
    else if (ev->kind == EVENT_EPOCH)
        board_epoch(b, &ev->epoch);
}

void board_end(struct board *b) { board_put(b, &(struct board_task){.kind = BOARD_END}); }
