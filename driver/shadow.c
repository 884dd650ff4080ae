/* shadow - the files are copied, and those of the checkpoint, which may be large and which no
 * driver writes to, are linked.  Of the events only those stay that tell of epochs: with the others
 * a driver would look for ranks, votes and checkpoints that are not of this folder. */
#include "driver/shadow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "ckpt/generations.h"
#include "job/imported.h"
#include "report/lines.h"

/* ---- checkpoints ---- */

static char *shadow_folder(const char *run, int64_t step)
{
    return xasprintf("%s/checkpoints/step-%08lld", run, (long long)step);
}

static int is_planned(const struct ckpt_plan *plan, int64_t step)
{
    return !plan || ckpt_plan_newest(plan, step) == step;
}

int64_t shadow_checkpoint(const char *run, int64_t step, const struct ckpt_plan *plan)
{
    char *path = generations_folder(run);
    struct generation *g = NULL;
    struct err ignored;
    int64_t newest = 0;
    int n = 0;

    if (generations_list(path, &g, &n, &ignored) < 0)
        n = 0;
    for (int i = 0; i < n && newest == 0; i++) {
        char *folder = shadow_folder(run, g[i].step);

        if (g[i].step < step && is_planned(plan, g[i].step) && ckpt_is_folder(folder))
            newest = g[i].step;
        free(folder);
    }
    free(g);
    free(path);
    return newest;
}

int shadow_check(const char *run, int64_t step, struct err *err)
{
    char *folder = shadow_folder(run, step);
    struct ckpt *c = NULL;
    const int rc = ckpt_load_folder(folder, &c, err);

    ckpt_close(c);
    free(folder);
    return rc;
}

/* ---- events ---- */

static int shadow_each_event(const char *run, void (*take)(void *arg, const char *line, size_t n),
                             void *arg, struct err *err)
{
    char *path = xasprintf("%s/events.jsonl", run);
    const int rc = lines_each(path, take, arg, err);

    free(path);
    return rc;
}

/* The event, if the line is one of this kind, for json_decref; else NULL.  The other lines, most of
 * a run's, are mostly not parsed. */
static json_t *shadow_event_of(const char *line, const char *kind)
{
    json_t *o = strstr(line, kind) ? json_loads(line, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));

    if (event && !strcmp(event, kind))
        return o;
    json_decref(o);
    return NULL;
}

struct past {
    int64_t step; /* of the checkpoint */
    int64_t last; /* the newest step that was told */
    struct buf kept;
};

static void shadow_take_event(void *arg, const char *line, size_t n)
{
    struct past *p = arg;
    json_t *o = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const int is_epoch = event && !strcmp(event, "epoch");

    (void)n;
    if (is_epoch || (event && (!strcmp(event, "checkpoint") || !strcmp(event, "done"))))
        p->last = max_i64(p->last, step);
    if (event && (!strcmp(event, "start") || (is_epoch && step <= p->step)))
        buf_printf(&p->kept, "%.*s\n", (int)strcspn(line, "\n"), line);
    json_decref(o);
}

int64_t shadow_last_step(const char *run)
{
    struct past p = {.step = 0};
    struct err ignored;

    (void)shadow_each_event(run, shadow_take_event, &p, &ignored);
    buf_fini(&p.kept);
    return max_i64(p.last, shadow_checkpoint(run, INT64_MAX, NULL));
}

/* ---- making ---- */

static int shadow_mkdir(const char *path, struct err *err)
{
    return mkdir(path, 0777) < 0 ? err_sys(err, errno, "folder %s", path) : 0;
}

static int shadow_write(const char *path, const void *data, size_t len, struct err *err)
{
    int fd, rc = file_create(path, &fd, err);

    if (rc < 0)
        return rc;
    rc = file_put(fd, path, data, len, err);
    close(fd);
    return rc;
}

/* may_lack: 1: the run may have no such file. */
static int shadow_copy(const char *run, const char *name, const char *to, int may_lack,
                       struct err *err)
{
    char *from = xasprintf("%s/%s", run, name), *path = xasprintf("%s/%s", to, name);
    int64_t n_bytes = 0;
    void *data = NULL;
    int fd = -1, rc = 0;

    if (!may_lack || access(from, F_OK) == 0)
        rc = file_open(from, &fd, &n_bytes, err);
    if (rc == 0 && fd >= 0)
        rc = try_alloc(&data, (size_t)n_bytes + 1, from, err);
    if (rc == 0 && fd >= 0)
        rc = file_read_at(fd, from, data, (size_t)n_bytes, 0, err);
    if (rc == 0 && fd >= 0)
        rc = shadow_write(path, data, (size_t)n_bytes, err);
    if (fd >= 0)
        close(fd);
    free(data);
    free(from);
    free(path);
    return rc;
}

/* Link the files of the folder `from`, an absolute path, in the new folder `to`. */
static int shadow_link(const char *from, const char *to, struct err *err)
{
    DIR *d = opendir(from);
    struct dirent *e;
    int rc = d ? shadow_mkdir(to, err) : err_sys(err, errno, "%s", from);

    while (rc == 0 && (e = readdir(d))) {
        char *file = xasprintf("%s/%s", from, e->d_name), *path = xasprintf("%s/%s", to, e->d_name);
        struct stat st;

        if (stat(file, &st) == 0 && S_ISREG(st.st_mode) && symlink(file, path) < 0)
            rc = err_sys(err, errno, "link %s", path);
        free(file);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

static int shadow_link_checkpoint(const char *run, int64_t step, const char *path, struct err *err)
{
    char *named = shadow_folder(run, step), *from = realpath(named, NULL);
    char *to = shadow_folder(path, step);
    const int rc = from ? shadow_link(from, to, err) : err_sys(err, errno, "%s", named);

    free(named);
    free(from);
    free(to);
    return rc;
}

int shadow_make(const char *run, int64_t step, const char *path, struct err *err)
{
    char *checkpoints = xasprintf("%s/checkpoints", path);
    char *events = xasprintf("%s/events.jsonl", path);
    struct past p = {.step = step};
    int rc = shadow_mkdir(path, err);

    if (rc == 0)
        rc = shadow_mkdir(checkpoints, err);
    if (rc == 0)
        rc = shadow_copy(run, "job.yaml", path, 0, err);
    if (rc == 0)
        rc = shadow_copy(run, IMPORTED_FILE, path, 1, err);
    if (rc == 0)
        rc = shadow_each_event(run, shadow_take_event, &p, err);
    if (rc == 0)
        rc = shadow_write(events, p.kept.data, p.kept.len, err);
    if (rc == 0 && step > 0)
        rc = shadow_link_checkpoint(run, step, path, err);
    buf_fini(&p.kept);
    free(checkpoints);
    free(events);
    return rc;
}

/* ---- going back ---- */

struct back {
    int64_t from, to; /* steps */
};

struct backs {
    struct back *back;
    int n, room;
};

static void shadow_take_back(void *arg, const char *line, size_t len)
{
    struct backs *b = arg;
    json_t *o = shadow_event_of(line, "spike");
    const json_t *to = json_object_get(o, "back_to");

    (void)len;
    if (json_is_integer(to)) {
        if (b->n == b->room) {
            b->room = b->room ? 2 * b->room : 8;
            b->back = xrealloc(b->back, (size_t)b->room * sizeof *b->back);
        }
        b->back[b->n++] =
            (struct back){json_integer_value(json_object_get(o, "step")), json_integer_value(to)};
    }
    json_decref(o);
}

/* Where the run went back to from the step, the last time that it did; -1: it did not. */
static int64_t shadow_find_back(const struct backs *b, int64_t from)
{
    int i = b->n;

    while (i > 0 && b->back[i - 1].from != from)
        i--;
    return i > 0 ? b->back[i - 1].to : -1;
}

int shadow_check_backs(const char *run, const char *path, struct err *err)
{
    struct backs was = {NULL}, is = {NULL};
    int rc = shadow_each_event(run, shadow_take_back, &was, err);

    if (rc == 0)
        rc = shadow_each_event(path, shadow_take_back, &is, err);
    for (int i = 0; i < is.n && rc == 0; i++) {
        const struct back *b = &is.back[i];
        const int64_t to = shadow_find_back(&was, b->from);

        if (to >= 0 && to != b->to)
            rc = err_set(err, ERR_CONFIG,
                         "after the spike of step %lld the run went back to step %lld, and its job "
                         "goes back to step %lld: the run lacked that checkpoint, or had another "
                         "checkpoint.every_steps or every_epochs, so the steps after the spike "
                         "cannot be computed again",
                         (long long)b->from, (long long)to, (long long)b->to);
    }
    free(was.back);
    free(is.back);
    return rc;
}

/* ---- rates ---- */

struct rates_found {
    struct shadow_rate *rate;
    int n, room;
};

/* After a change, and when a run goes on, its ranks form; the line has the newest rate.  A run that
 * goes on from an older step loses the rates beyond it, but for the one that the line has. */
static void shadow_take_form(void *arg, const char *line, size_t len)
{
    struct rates_found *f = arg;
    json_t *o = shadow_event_of(line, "form");
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const int64_t since = json_integer_value(json_object_get(o, "live_step"));
    const double lr = json_number_value(json_object_get(o, "live_lr"));

    (void)len;
    if (o) {
        while (f->n > 0 && f->rate[f->n - 1].step >= step)
            f->n--;
        if (f->n == f->room) {
            f->room = f->room ? 2 * f->room : 8;
            f->rate = xrealloc(f->rate, (size_t)f->room * sizeof *f->rate);
        }
        if (lr > 0 && since >= step)
            f->rate[f->n++] = (struct shadow_rate){since, lr};
    }
    json_decref(o);
}

int shadow_rates(const char *run, int64_t from, int64_t to, struct shadow_rate **out, int *n,
                 struct err *err)
{
    struct rates_found f = {NULL};
    const int rc = shadow_each_event(run, shadow_take_form, &f, err);

    *n = 0;
    for (int i = 0; i < f.n; i++)
        if (f.rate[i].step >= from && f.rate[i].step < to)
            f.rate[(*n)++] = f.rate[i];
    *out = f.rate;
    return rc;
}

int shadow_give_rate(const char *path, int64_t step, const struct shadow_rate *rate,
                     struct err *err)
{
    char *events = xasprintf("%s/events.jsonl", path);
    FILE *f = fopen(events, "ae");
    int rc = 0;

    if (!f || fprintf(f,
                      "{\"event\": \"form\", \"step\": %lld, \"live_lr\": %.17g, "
                      "\"live_step\": %lld}\n",
                      (long long)step, rate->lr, (long long)rate->step) < 0)
        rc = err_sys(err, errno, "%s", events);
    if (f && fclose(f) != 0 && rc == 0)
        rc = err_sys(err, errno, "%s", events);
    free(events);
    return rc;
}
