/* Timelines under way, by their numbers.  The disk's thread takes one when the session says that it
 * is whole (EVENT_TRACED), or the run ends, and makes the file. */
#include "driver/traces.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "ckpt/owner.h"
#include "report/run_dir.h"
#include "see/timeline.h"

enum { MOST_TRACES = 2 /* under way at the same time: the job's, and one of the operator's */ };

struct traces {
    char *run_dir, *run;
    struct writer *disk;
    struct timeline *under_way[MOST_TRACES]; /* [n] */
    int n;
    int n_ranks; /* of the formation */
    /* The newest losses, the n-th at n % TIMELINE_LOSSES; with texts of their own. */
    struct timeline_loss loss[TIMELINE_LOSSES];
    int64_t n_losses;
};

struct trace_task {
    struct task task;
    char *run_dir, *run;
    struct timeline *timeline;
    int n_ranks;
};

struct traces *traces_open(const char *run_dir, const char *run, struct writer *disk)
{
    struct traces *t = xcalloc(1, sizeof *t);

    t->run_dir = xstrdup(run_dir);
    t->run = xstrdup(run);
    t->disk = disk;
    return t;
}

static void loss_fini(struct timeline_loss *l)
{
    free((char *)(uintptr_t)l->host);
    free((char *)(uintptr_t)l->why);
}

void traces_free(struct traces *t)
{
    for (int i = 0; t && i < t->n; i++)
        timeline_free(t->under_way[i]);
    if (!t)
        return;
    for (int i = 0; i < TIMELINE_LOSSES; i++)
        loss_fini(&t->loss[i]);
    free(t->run_dir);
    free(t->run);
    free(t);
}

/* ---- in the disk's thread ---- */

/* The first of trace.json, trace-2.json, ... that is not there, for free(). */
static char *free_path(const char *run_dir)
{
    char *path = xasprintf("%s/trace.json", run_dir);

    for (int i = 2; access(path, F_OK) == 0; i++) {
        free(path);
        path = xasprintf("%s/trace-%d.json", run_dir, i);
    }
    return path;
}

static void trace_task_free(struct trace_task *k)
{
    timeline_free(k->timeline);
    free(k->run_dir);
    free(k->run);
    free(k);
}

static void trace_write(struct task *task)
{
    struct trace_task *k = container_of(task, struct trace_task, task);
    char *path = free_path(k->run_dir);
    struct buf text = {0};
    struct err err;

    if (!owner_is_other(k->run_dir)) {
        timeline_json(k->timeline, k->run, k->n_ranks, &text);
        if (run_dir_replace(path, text.data, text.len, &err) < 0)
            log_warn("the timeline is not written: %s; training goes on", err.msg);
        else
            log_info("the timeline is in %s: open it in https://ui.perfetto.dev or in "
                     "chrome://tracing",
                     path);
    }
    buf_fini(&text);
    free(path);
    trace_task_free(k);
}

/* ---- the driver's side ---- */

static void traces_put(struct traces *t, int i)
{
    struct trace_task *k = xmalloc(sizeof *k);

    for (int64_t n = max_i64(0, t->n_losses - TIMELINE_LOSSES); n < t->n_losses; n++)
        timeline_lost(t->under_way[i], t->loss[n % TIMELINE_LOSSES]);

    /* The record is in memory whether it waits or not, so it does not count against the queue. */
    *k = (struct trace_task){.task = {.n_bytes = sizeof *k, .run = trace_write},
                             .run_dir = xstrdup(t->run_dir),
                             .run = xstrdup(t->run),
                             .timeline = t->under_way[i],
                             .n_ranks = t->n_ranks};
    t->under_way[i] = t->under_way[--t->n];
    if (writer_put(t->disk, &k->task) != WRITER_FULL)
        return;
    log_warn("the timeline is not written: the disk hangs");
    trace_task_free(k);
}

/* The place of the timeline of this number; -1: nothing has come of it. */
static int traces_find(const struct traces *t, int64_t number)
{
    for (int i = 0; i < t->n; i++)
        if (timeline_number(t->under_way[i]) == number)
            return i;
    return -1;
}

static void take_spans(struct traces *t, const struct session_event *ev)
{
    int i = traces_find(t, ev->spans.piece.number);

    t->n_ranks = ev->spans.n_ranks;
    if (i < 0) {
        ASSERT(t->n < MOST_TRACES);
        i = t->n++;
        t->under_way[i] = timeline_new(ev->spans.piece.number);
    }
    timeline_add(t->under_way[i], ev->rank, ev->host, &ev->spans);
}

/* A record is not known here before its first piece comes, so losses are kept. */
static void keep_loss(struct traces *t, int rank, const char *host, const char *why)
{
    struct timeline_loss *to = &t->loss[t->n_losses++ % TIMELINE_LOSSES];

    loss_fini(to);
    *to = (struct timeline_loss){.rank = rank,
                                 .host = xstrdup(host ? host : "?"),
                                 .why = xstrdup(why ? why : "?"),
                                 .at_ns = clock_mono_ns()};
}

/* Another driver led before this one.  Ranks go on with their records, and send them here. */
static void keep_driver(struct traces *t, const struct session_event *ev)
{
    keep_loss(t, 0, ev->host,
              "the driver before this one was lost, with its spans and the parts that ranks had "
              "sent to it");
}

static void traces_close(struct traces *t, const struct session_event *ev)
{
    const int i = traces_find(t, ev->traced.number);

    t->n_ranks = ev->traced.n_ranks;
    if (i >= 0)
        traces_put(t, i);
}

void traces_event(struct traces *t, const struct session_event *ev)
{
    if (ev->kind == EVENT_SPANS)
        take_spans(t, ev);
    else if (ev->kind == EVENT_FORM)
        t->n_ranks = ev->form.n_ranks;
    else if (ev->kind == EVENT_LOST)
        keep_loss(t, ev->rank, ev->host, ev->text);
    else if (ev->kind == EVENT_LEADER)
        keep_driver(t, ev);
    else if (ev->kind == EVENT_TRACED)
        traces_close(t, ev);
}

void traces_end(struct traces *t)
{
    while (t->n > 0)
        traces_put(t, t->n - 1);
}
