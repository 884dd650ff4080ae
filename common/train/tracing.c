/* tracing - begins and ends records of steps, and cuts them into pieces.
 * A record begins with a step and ends with a step, so that all ranks have the same collectives. */
#include "train/tracing.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "train/trainer_impl.h"
#include "wire/msg.h"

void tracing_new(struct tracing *c, struct trainer *t)
{
    c->spans = spans_new();
    ring_record(t->ring, c->spans);
}

void tracing_free(struct tracing *c) { spans_free(c->spans); }

void trainer_trace(struct trainer *t, int64_t number, int64_t duration_ns)
{
    atomic_store(&t->tracing.duration_ns, duration_ns);
    atomic_store(&t->tracing.wanted, number);
}

struct spans_track *trainer_track(struct trainer *t)
{
    return spans_track(t->tracing.spans, SPANS_ENGINE);
}

/* ---- handing over ---- */

static void put_names(struct spans_piece *p, const struct spans_record *r)
{
    p->n_names = r->n_names;
    p->name = xcalloc((size_t)r->n_names + 1, sizeof *p->name);
    for (int i = 0; i < r->n_names; i++)
        memcpy(p->name[i].text, r->name[i], SPANS_NAME);
}

static void report_piece(struct trainer *t, const struct spans_record *r, int at)
{
    const struct tracing *c = &t->tracing;
    const int n = (int)min_i64(MSG_MAX_SPANS, r->n - at);
    struct report *report = report_new(REPORT_SPANS, 0);
    struct spans_piece *p = &report->spans;

    *p = (struct spans_piece){.number = c->number,
                              .first = c->first,
                              .last = max_i64(c->first, t->state->at.step - 1),
                              .is_last = at + n == r->n,
                              .is_cut = r->is_cut,
                              .is_launched = backend_queues(t->backend),
                              .n = n};
    if (at == 0)
        put_names(p, r);
    p->span = xcalloc((size_t)n + 1, sizeof *p->span);
    if (n > 0)
        memcpy(p->span, r->span + at, (size_t)n * sizeof *p->span);
    t->hooks.report(t->hooks.arg, report);
}

static void tracing_stop(struct trainer *t)
{
    struct spans_record r;
    int at = 0;

    spans_stop(t->tracing.spans);
    t->tracing.is_on = 0;
    spans_read(t->tracing.spans, &r);
    do {
        report_piece(t, &r, at);
        at += MSG_MAX_SPANS;
    } while (at < r.n);
    spans_record_fini(&r);
}

/* ---- beginning ---- */

static void tracing_start(struct trainer *t, int64_t number, int64_t last, int64_t until_ns)
{
    struct tracing *c = &t->tracing;
    struct err err;
    char *text;

    c->number = number;
    c->first = t->state->at.step;
    c->last = last;
    c->until_ns = until_ns;
    c->is_on = spans_start(c->spans, &err) == 0;
    if (c->is_on)
        return;
    text = xasprintf("rank %d records no timeline: %s", t->rank, err.msg);
    trainer_warn_at(t, c->first, text);
    free(text);
    report_piece(t, &(struct spans_record){.is_cut = 1}, 0); /* the driver waits for one */
}

/* 1: report.trace wants this step, and has none yet. */
static int is_due_by_job(const struct trainer *t)
{
    const struct option_ints *steps = &t->job->report.trace;
    const int64_t step = t->state->at.step;

    return steps->n == 2 && !t->tracing.is_job_done && step >= steps->v[0] && step <= steps->v[1];
}

static void start_if_wanted(struct trainer *t)
{
    struct tracing *c = &t->tracing;
    int64_t number;

    if (is_due_by_job(t)) {
        c->is_job_done = 1;
        tracing_start(t, 0, t->job->report.trace.v[1], INT64_MAX);
    }
    if (c->is_on || atomic_load_explicit(&c->wanted, memory_order_relaxed) == 0)
        return;
    number = atomic_exchange(&c->wanted, 0);
    tracing_start(t, number, INT64_MAX, clock_mono_ns() + atomic_load(&c->duration_ns));
}

void tracing_before_step(struct trainer *t)
{
    if (t->tracing.is_on && is_due_by_job(t))
        tracing_stop(t); /* the operator's timeline ends here, on all ranks */
    if (!t->tracing.is_on)
        start_if_wanted(t);
    spans_step(t->state->at.step);
}

/* ---- the end ---- */

void tracing_after_step(struct trainer *t)
{
    const struct tracing *c = &t->tracing;

    if (c->is_on && (t->state->at.step > c->last || clock_mono_ns() >= c->until_ns))
        tracing_stop(t);
}

void tracing_if_over(struct trainer *t, int is_over)
{
    if (t->tracing.is_on && (is_over || t->state->at.step >= t->total_steps))
        tracing_stop(t);
}
