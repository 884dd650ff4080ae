/* The job's threads only put tasks; all reading and writing is the disk's.  A picture that fails is
 * left out. */
#include "driver/drawing.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "see/curves.h"
#include "see/plot.h"

enum { DRAWING_EACH = 100 }; /* see drawing.h */

struct drawing {
    char *run_dir;
    struct writer *disk;
    int columns, is_utf8; /* of the plot, constant; 0 columns: none */

    /* The disk's. */
    int64_t next_ns; /* not before */
    int has_failed;  /* told */
    struct buf plot;
};

struct drawing_task {
    struct task task;
    struct drawing *owner;
    int is_end;
};

/* 1: the user's locale says so; the process itself keeps to "C". */
static int drawing_is_utf8(void)
{
    const locale_t locale = newlocale(LC_CTYPE_MASK, "", NULL);
    const int is = locale && !strcmp(nl_langinfo_l(CODESET, locale), "UTF-8");

    if (locale)
        freelocale(locale);
    return is;
}

struct drawing *drawing_new(const char *run_dir, struct writer *disk, int fd)
{
    struct drawing *d = xcalloc(1, sizeof *d);
    struct winsize size;

    d->run_dir = xstrdup(run_dir);
    d->disk = disk;
    if (isatty(fd))
        d->columns = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
    d->is_utf8 = drawing_is_utf8();
    return d;
}

void drawing_free(struct drawing *d)
{
    if (!d)
        return;
    buf_fini(&d->plot);
    free(d->run_dir);
    free(d);
}

/* ---- in the disk's thread ---- */

static void drawing_tell(struct drawing *d, const struct err *err)
{
    if (!d->has_failed)
        log_warn("the run is not drawn: %s; training goes on", err->msg);
    d->has_failed = 1;
}

static void drawing_draw(struct drawing *d, int is_end)
{
    struct history h;
    struct err err;

    if (history_read(d->run_dir, &h, &err) < 0) {
        drawing_tell(d, &err);
        return;
    }
    if (curves_save(&h, d->run_dir, &err) < 0)
        drawing_tell(d, &err);
    if (is_end && d->columns)
        plot_loss(&h, d->columns, d->is_utf8, &d->plot);
    history_fini(&h);
}

static void drawing_run(struct task *t)
{
    const struct drawing_task *j = container_of(t, struct drawing_task, task);
    struct drawing *d = j->owner;
    const int64_t begun_ns = clock_mono_ns();

    if ((j->is_end || begun_ns >= d->next_ns) && !owner_is_other(d->run_dir)) {
        drawing_draw(d, j->is_end);
        d->next_ns = clock_mono_ns() + DRAWING_EACH * (clock_mono_ns() - begun_ns);
    }
    free(t);
}

/* ---- the other threads ---- */

static void drawing_put(struct drawing *d, int is_end)
{
    struct drawing_task *j = xmalloc(sizeof *j);

    *j = (struct drawing_task){
        .task = {.n_bytes = sizeof *j, .run = drawing_run}, .owner = d, .is_end = is_end};
    if (writer_put(d->disk, &j->task) == WRITER_FULL)
        free(j); /* the disk hangs, which the events report */
}

void drawing_epoch(struct drawing *d) { drawing_put(d, 0); }

void drawing_end(struct drawing *d) { drawing_put(d, 1); }

const char *drawing_plot(struct drawing *d) { return buf_cstr(&d->plot); }
