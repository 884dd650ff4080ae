/* Both files are read from their beginning, line by line.  events.jsonl comes first: it says from
 * which step the run went on. */
#include "see/history.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/util.h"
#include "report/lines.h"

enum {
    HISTORY_MOST_MARKS = 2000,     /* more would be a black bar */
    HISTORY_MOST_BYTES = 16 << 20, /* of rows that are taken */
};

/* ---- lines ---- */

/* Make each two neighbours one. */
static void history_halve(struct history_line *line)
{
    for (int i = 0; i < line->n; i++) {
        const struct history_point b = line->point[i];
        struct history_point *a = &line->point[i / 2];

        if (i % 2 == 0) {
            *a = b;
            continue;
        }
        if (a->n + b.n)
            a->mean += (b.mean - a->mean) * (double)b.n / (double)(a->n + b.n);
        a->least = b.n && (!a->n || b.least < a->least) ? b.least : a->least;
        a->most = b.n && (!a->n || b.most > a->most) ? b.most : a->most;
        a->step = b.step;
        a->n += b.n;
        a->n_missing += b.n_missing;
    }
    line->n = (line->n + 1) / 2;
    line->n_each *= 2;
}

static struct history_point *history_open_point(struct history_line *line)
{
    if (!line->point) {
        line->point = xcalloc(HISTORY_MOST, sizeof *line->point);
        line->n_each = 1;
    }
    if (line->n) {
        struct history_point *last = &line->point[line->n - 1];

        if (last->n + last->n_missing < line->n_each)
            return last;
    }
    if (line->n == HISTORY_MOST) {
        history_halve(line);
        return history_open_point(line);
    }
    line->point[line->n] = (struct history_point){0};
    return &line->point[line->n++];
}

void history_add(struct history_line *line, int64_t step, double v)
{
    struct history_point *p = history_open_point(line);

    p->step = step;
    if (!isfinite(v)) {
        p->n_missing++;
        return;
    }
    p->least = p->n && p->least < v ? p->least : v;
    p->most = p->n && p->most > v ? p->most : v;
    p->n++;
    p->mean += (v - p->mean) / (double)p->n;
}

int history_range(const struct history_line *line, double *least, double *most)
{
    int is_any = 0;

    for (int i = 0; i < line->n; i++) {
        const struct history_point *p = &line->point[i];

        if (!p->n)
            continue;
        *least = is_any ? fmin(*least, p->mean) : p->mean;
        *most = is_any ? fmax(*most, p->mean) : p->mean;
        is_any = 1;
    }
    return is_any;
}

/* Drop the points beyond `step`. */
static void history_cut(struct history_line *line, int64_t step)
{
    while (line->n && line->point[line->n - 1].step > step)
        line->n--;
}

/* ---- events ---- */

static void history_put_mark(struct history *h, enum history_mark_kind kind, int64_t step,
                             const char *text)
{
    struct history_mark *m;

    if (h->n_marks == HISTORY_MOST_MARKS)
        return;
    if (!h->mark)
        h->mark = xcalloc(HISTORY_MOST_MARKS, sizeof *h->mark);
    m = &h->mark[h->n_marks++];
    m->kind = kind;
    m->step = step;
    snprintf(m->text, sizeof m->text, "%s", text);
}

static int64_t history_int(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(o, key);

    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static void history_put_number(struct history *h, enum history_of of, int64_t step, const json_t *o,
                               const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (json_is_number(v))
        history_add(&h->line[of], step, json_number_value(v));
}

static void history_put_epoch(struct history *h, const json_t *o)
{
    const int64_t step = history_int(o, "step", -1);

    if (step < 0)
        return;
    for (int i = 0; i < HISTORY_COUNT; i++) /* an epoch that was trained again */
        history_cut(&h->line[i], step - 1);
    history_put_number(h, HISTORY_TRAIN_LOSS, step, o, "train_loss");
    history_put_number(h, HISTORY_TRAIN_ACCURACY, step, o, "train_accuracy");
    history_put_number(h, HISTORY_VALIDATION_LOSS, step, o, "validation_loss");
    history_put_number(h, HISTORY_VALIDATION_ACCURACY, step, o, "validation_accuracy");
    history_put_number(h, HISTORY_SPEED, step, o, "samples_per_second");
    h->n_epochs = history_int(o, "epoch", h->n_epochs);
    h->last_step = step;
}

/* The marks that have no step yet are at this one.  A checkpoint, which has one, may have been
 * written since. */
static void history_settle(struct history *h, int64_t step)
{
    for (int i = h->n_settled; i < h->n_marks; i++)
        if (h->mark[i].step < 0)
            h->mark[i].step = step;
    h->n_settled = h->n_marks;
}

static void history_put_lost(struct history *h, const json_t *o)
{
    char text[96];
    const int64_t rank = history_int(o, "rank", -1);

    if (rank >= 0)
        snprintf(text, sizeof text, "rank %lld lost", (long long)rank);
    else
        snprintf(text, sizeof text, "a rank lost");
    history_put_mark(h, HISTORY_LOST, -1, text);
}

/* The event comes when the step after that of the formation is done. */
static void history_put_recovered(struct history *h, const json_t *o)
{
    const double seconds = json_number_value(json_object_get(o, "seconds"));
    const int64_t n = history_int(o, "steps_lost", 0);
    char text[96];

    snprintf(text, sizeof text, "recovered after %.2f s, %lld step%s lost", seconds, (long long)n,
             n == 1 ? "" : "s");
    history_put_mark(h, HISTORY_RECOVERED, h->last_step + 1, text);
}

static void history_put_event(struct history *h, const json_t *o)
{
    const char *event = json_string_value(json_object_get(o, "event"));
    const int64_t step = history_int(o, "step", -1);

    if (!event)
        return;
    h->is_done = !strcmp(event, "done");
    if (!strcmp(event, "epoch")) {
        history_put_epoch(h, o);
    } else if (!strcmp(event, "lost")) {
        history_put_lost(h, o);
    } else if (!strcmp(event, "recovered")) {
        history_put_recovered(h, o);
    } else if (!strcmp(event, "leader")) {
        history_put_mark(h, HISTORY_LEADER, -1, "another driver leads");
    } else if (!strcmp(event, "start") && h->last_step) {
        history_put_mark(h, HISTORY_RESUMED, -1, "resumed");
    } else if (!strcmp(event, "form") && step >= 0) {
        history_settle(h, step);
        for (int i = 0; i < HISTORY_COUNT; i++)
            history_cut(&h->line[i], step);
        h->last_step = step;
    } else if (!strcmp(event, "checkpoint") && step >= 0) {
        history_put_mark(h, HISTORY_CHECKPOINT, step, "checkpoint");
        h->last_step = max_i64(h->last_step, step);
    }
}

/* ---- files ---- */

/* Of how many lines one is taken. */
static int64_t history_skip(FILE *f)
{
    struct stat st;

    return f && fstat(fileno(f), &st) == 0 ? 1 + st.st_size / HISTORY_MOST_BYTES : 1;
}

/* Call each(h, line) for the whole lines of a file; may_skip: for some of them, if there are many.
 */
static void history_event_line(void *arg, const char *line, size_t n)
{
    static const char join[] = "{\"event\":\"join\",";
    struct history *h = arg;
    json_t *o;

    if (line[n - 1] != '\n')
        return;
    if (n > sizeof join && !memcmp(line, join, sizeof join - 1)) { /* one for each rank */
        h->is_done = 0;
        return;
    }
    o = json_loadb(line, n, 0, NULL);
    if (o)
        history_put_event(h, o);
    json_decref(o);
}

/* step,epoch,loss,learning_rate,grad_norm,samples_per_second; later versions may add columns. */
static void history_row(struct history *h, char *line)
{
    static const int of[] = {-1, HISTORY_TRAIN_LOSS, HISTORY_LEARNING_RATE, HISTORY_GRAD_NORM,
                             HISTORY_SPEED};
    double v[ARRAY_LEN(of)];
    char *at, *end;
    const long long step = strtoll(line, &at, 10);

    if (at == line || step < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(of); i++) {
        if (*at != ',')
            return;
        v[i] = strtod(at + 1, &end);
        if (end == at + 1)
            return;
        at = end;
    }
    for (size_t i = 1; i < ARRAY_LEN(of); i++)
        history_add(&h->line[of[i]], step, v[i]);
    h->last_step = max_i64(h->last_step, step);
}

static int history_read_rows(struct history *h, const char *run_dir, struct err *err)
{
    char *path = xasprintf("%s/metrics.csv", run_dir), *line = NULL;
    FILE *f = fopen(path, "re");
    const int64_t skip = history_skip(f);
    int64_t i = 0;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;

    if (!f && errno != ENOENT)
        rc = err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    while (f && (n = getline(&line, &cap, f)) > 0)
        if (i++ % skip == 0 && line[n - 1] == '\n')
            history_row(h, line);
    if (f && ferror(f))
        rc = err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (f)
        fclose(f);
    free(line);
    free(path);
    return rc;
}

int history_live_read(const char *run_dir, struct history_live *out, struct err *err)
{
    char *events = xasprintf("%s/events.jsonl", run_dir);
    int rc;

    *out = (struct history_live){0};
    rc = lines_each(events, history_event_line, &out->events, err);
    free(events);
    if (rc == 0)
        rc = history_read_rows(&out->rows, run_dir, err);
    if (rc < 0)
        history_live_fini(out);
    return rc;
}

/* metrics.csv has more points of a line than there are epochs; take whichever has more. */
struct history history_now(const struct history_live *h)
{
    struct history now = h->events;

    now.last_step = max_i64(h->events.last_step, h->rows.last_step);
    for (int i = 0; i < HISTORY_COUNT; i++)
        if (h->rows.line[i].n > now.line[i].n)
            now.line[i] = h->rows.line[i];
    return now;
}

int64_t history_mark_step(const struct history *h, const struct history_mark *mark)
{
    return mark->step < 0 ? h->last_step : min_i64(mark->step, h->last_step);
}

int history_read(const char *run_dir, struct history *out, struct err *err)
{
    struct history_live all;
    int rc = history_live_read(run_dir, &all, err);

    *out = (struct history){0};
    if (rc < 0)
        return rc;
    *out = history_now(&all);
    history_settle(out, out->last_step);
    for (int i = 0; i < HISTORY_COUNT; i++) /* the other lines */
        free(out->line[i].point == all.rows.line[i].point ? all.events.line[i].point
                                                          : all.rows.line[i].point);
    return 0;
}

/* ---- a run that goes on ---- */

/* A row as JSON.  A number that is not finite is null there. */
static void history_hear_row(struct history *h, const json_t *o)
{
    static const struct {
        enum history_of of;
        const char *key;
    } column[] = {{HISTORY_TRAIN_LOSS, "loss"},
                  {HISTORY_LEARNING_RATE, "learning_rate"},
                  {HISTORY_GRAD_NORM, "grad_norm"},
                  {HISTORY_SPEED, "samples_per_second"}};
    const int64_t step = history_int(o, "step", -1);

    if (step < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(column); i++) {
        const json_t *v = json_object_get(o, column[i].key);

        history_add(&h->line[column[i].of], step, json_is_number(v) ? json_number_value(v) : NAN);
    }
    h->last_step = max_i64(h->last_step, step);
}

/* The run goes on from `step`: the rows beyond it are gone. */
static void history_cut_rows(struct history *rows, int64_t step)
{
    for (int i = 0; i < HISTORY_COUNT; i++)
        history_cut(&rows->line[i], step);
    rows->last_step = min_i64(rows->last_step, step);
}

void history_hear(struct history_live *h, const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *event = o ? json_string_value(json_object_get(o, "event")) : NULL;

    if (event && !strcmp(event, "row")) {
        history_hear_row(&h->rows, o);
    } else if (event) {
        history_put_event(&h->events, o);
        if (!strcmp(event, "form"))
            history_cut_rows(&h->rows, history_int(o, "step", INT64_MAX));
    }
    json_decref(o);
}

void history_live_fini(struct history_live *h)
{
    history_fini(&h->events);
    history_fini(&h->rows);
}

void history_fini(struct history *h)
{
    for (int i = 0; i < HISTORY_COUNT; i++)
        free(h->line[i].point);
    free(h->mark);
    *h = (struct history){0};
}
