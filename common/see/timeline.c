/* timeline - puts the ranks' records on one clock, finds who came last, and writes the file.
 *
 * A span keeps the time of its rank's clock until it is written; the rank's offset is that of the
 * middle of its record.  Times in the file are microseconds since the first span. */
#include "see/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "report/json_text.h"

struct timeline_rank {
    char *host;
    int is_whole, is_cut, is_launched;
    int is_clock_ours;
    struct offset clock;
    struct offset_estimate measured; /* by heartbeats alone */
    int is_measured;
    int64_t offset_ns, error_ns; /* what is used; error_ns -1: the clock is not known */
    int64_t first, last;         /* steps */
    struct span_name *name;
    int n_names;
    struct trace_span *span;
    int n, cap;
};

struct timeline {
    int64_t number;
    int64_t asked_ns;           /* the driver's clock when the operator asked; 0: nobody did */
    struct timeline_rank *rank; /* [n] */
    int n;
    int64_t n_spans;                            /* of all */
    struct timeline_loss loss[TIMELINE_LOSSES]; /* [n_losses], with texts of their own */
    int n_losses;
};

struct timeline *timeline_new(int64_t number)
{
    struct timeline *t = xcalloc(1, sizeof *t);

    t->number = number;
    return t;
}

int64_t timeline_number(const struct timeline *t) { return t->number; }

static void timeline_clear(struct timeline_rank *r)
{
    free(r->host);
    free(r->name);
    free(r->span);
    *r = (struct timeline_rank){0};
}

void timeline_free(struct timeline *t)
{
    for (int i = 0; t && i < t->n; i++)
        timeline_clear(&t->rank[i]);
    for (int i = 0; t && i < t->n_losses; i++) {
        free((char *)(uintptr_t)t->loss[i].host);
        free((char *)(uintptr_t)t->loss[i].why);
    }
    if (t)
        free(t->rank);
    free(t);
}

static struct timeline_rank *timeline_rank_of(struct timeline *t, int rank)
{
    if (rank >= TIMELINE_RANKS)
        return NULL;
    if (rank >= t->n) {
        t->rank = xrealloc(t->rank, ((size_t)rank + 1) * sizeof *t->rank);
        memset(t->rank + t->n, 0, (size_t)(rank + 1 - t->n) * sizeof *t->rank);
        t->n = rank + 1;
    }
    return &t->rank[rank];
}

static void timeline_add_spans(struct timeline *t, struct timeline_rank *r,
                               const struct spans_piece *p)
{
    for (int i = 0; i < p->n; i++) {
        if (t->n_spans >= TIMELINE_MOST || p->span[i].name >= r->n_names ||
            p->span[i].kind >= r->n_names) {
            r->is_cut = 1;
            continue;
        }
        if (r->n == r->cap) {
            r->cap = r->cap ? 2 * r->cap : 1024;
            r->span = xrealloc(r->span, (size_t)r->cap * sizeof *r->span);
        }
        r->span[r->n++] = p->span[i];
        t->n_spans++;
    }
}

/* Clocks of one machine are one clock, unless the stamps say otherwise: a container may have a
 * clock of its own. */
static void settle_clock(struct timeline_rank *r)
{
    const int64_t begin = r->n ? r->span[0].begin_ns : 0;
    const int64_t end = r->n ? r->span[r->n - 1].begin_ns : 0;
    int64_t middle = begin + (end - begin) / 2;

    r->is_measured = offset_at(&r->clock, middle, &r->measured);
    if (r->is_measured) /* the middle is the rank's; the estimate wants the driver's */
        r->is_measured = offset_at(&r->clock, middle - r->measured.offset_ns, &r->measured);
    r->offset_ns = r->measured.offset_ns;
    r->measured.error_ns += (end - begin) / 2 / 1000000 * OFFSET_DRIFT_PPM;
    r->error_ns = r->is_measured ? r->measured.error_ns : -1;
    if (r->is_clock_ours && (!r->is_measured || llabs(r->offset_ns) <= r->error_ns))
        r->offset_ns = r->error_ns = 0;
}

void timeline_add(struct timeline *t, int rank, const char *host, const struct session_spans *s)
{
    struct timeline_rank *r = timeline_rank_of(t, rank);
    const struct spans_piece *p = &s->piece;

    t->asked_ns = s->asked_ns;
    if (!r || r->is_whole)
        return;
    if (p->n_names > 0 || !r->host) {
        t->n_spans -= r->n;
        timeline_clear(r); /* what a rank of this number had begun to send is of a lost one */
        r->host = xstrdup(host ? host : "?");
        r->name = xcalloc((size_t)p->n_names + 1, sizeof *r->name);
        if (p->n_names > 0)
            memcpy(r->name, p->name, (size_t)p->n_names * sizeof *r->name);
        r->n_names = p->n_names;
    }
    r->is_clock_ours = s->is_clock_ours;
    r->clock = s->clock;
    r->first = p->first;
    r->last = p->last;
    r->is_cut |= p->is_cut;
    r->is_launched |= p->is_launched;
    timeline_add_spans(t, r, p);
    r->is_whole = p->is_last;
    if (r->is_whole)
        settle_clock(r);
}

void timeline_lost(struct timeline *t, struct timeline_loss loss)
{
    struct timeline_loss *to = &t->loss[t->n_losses];

    if (t->n_losses == TIMELINE_LOSSES)
        return;
    *to = loss;
    to->host = xstrdup(loss.host ? loss.host : "?");
    to->why = xstrdup(loss.why ? loss.why : "?");
    t->n_losses++;
}

/* ---- who came last ---- */

struct arrival { /* a rank begins a collective */
    int64_t collective;
    int64_t at_ns; /* by the driver's clock */
    int64_t error_ns;
    int rank;
};

struct last_come { /* to a collective */
    int64_t collective;
    int64_t at_ns, lead_ns; /* when it came, and for how long the first one had waited */
    int rank;               /* -1: the clocks cannot tell */
    int n;                  /* ranks whose record has the collective */
};

static int by_collective(const void *x, const void *y)
{
    const struct arrival *a = x, *b = y;

    if (a->collective != b->collective)
        return a->collective < b->collective ? -1 : 1;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

/* In the order of collectives, then of time.  *n: how many; for free(). */
static struct arrival *timeline_arrivals(const struct timeline *t, int *n)
{
    struct arrival *a = xcalloc((size_t)t->n_spans + 1, sizeof *a);

    *n = 0;

    for (int k = 0; k < t->n; k++) {
        const struct timeline_rank *r = &t->rank[k];

        for (int i = 0; r->is_whole && i < r->n; i++)
            if (r->span[i].collective > 0)
                a[(*n)++] = (struct arrival){.collective = r->span[i].collective,
                                             .at_ns = r->span[i].begin_ns - r->offset_ns,
                                             .error_ns = r->error_ns,
                                             .rank = k};
    }
    qsort(a, (size_t)*n, sizeof *a, by_collective);
    return a;
}

/* n arrivals at one collective, in their order. */
static struct last_come last_of(const struct arrival *a, int n)
{
    const struct arrival *last = &a[n - 1];
    struct last_come out = {.collective = a->collective,
                            .rank = -1,
                            .n = n,
                            .at_ns = last->at_ns,
                            .lead_ns = last->at_ns - a->at_ns};

    for (int i = 0; i < n; i++)
        if (a[i].error_ns < 0)
            return out;
    if (n > 1 && last->at_ns - last[-1].at_ns >= last->error_ns + last[-1].error_ns)
        out.rank = last->rank;
    return out;
}

/* Of each collective, by number.  *n: how many; for free(). */
static struct last_come *timeline_lasts(const struct timeline *t, int *n)
{
    int n_arrivals, end;
    struct arrival *a = timeline_arrivals(t, &n_arrivals);
    struct last_come *last = xcalloc((size_t)n_arrivals + 1, sizeof *last);

    *n = 0;
    for (int at = 0; at < n_arrivals; at = end) {
        for (end = at + 1; end < n_arrivals && a[end].collective == a[at].collective;)
            end++;
        last[(*n)++] = last_of(a + at, end - at);
    }
    free(a);
    return last;
}

static int by_number(const void *key, const void *element)
{
    const int64_t x = *(const int64_t *)key, y = ((const struct last_come *)element)->collective;

    return (x > y) - (x < y);
}

/* ---- writing ---- */

enum { US_TEXT = 32 };

struct timeline_out {
    const struct timeline *t;
    const struct last_come *last; /* [n_last] by collective */
    int n_last;
    struct buf *out;
    int64_t zero_ns,
        end_ns;  /* the driver's clock at the first span or loss, and at the last one's end */
    char **name; /* of the rank that is written, as JSON */
    int n;       /* events so far */
};

static char *timeline_quoted(const char *text)
{
    json_t *j = json_text(text);
    char *quoted = json_dumps(j, JSON_ENCODE_ANY);

    ASSERT(quoted);
    json_decref(j);
    return quoted;
}

static void timeline_text(struct buf *out, const char *text)
{
    char *quoted = timeline_quoted(text);

    buf_printf(out, "%s", quoted);
    free(quoted);
}

/* ns / 10^n_places in decimals; the text stands at the end of `out`.  A timeline has hundreds of
 * thousands of numbers, for which printf takes several times as long. */
static const char *decimal_text(int64_t ns, int n_places, char out[US_TEXT])
{
    uint64_t rest = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    char *at = out + US_TEXT - 1;

    *at = '\0';
    for (int i = 0; i <= n_places || rest > 0; i++) {
        if (i == n_places && i > 0)
            *--at = '.';
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    }
    if (ns < 0)
        *--at = '-';
    return at;
}

/* Microseconds. */
static const char *us_text(int64_t ns, char out[US_TEXT]) { return decimal_text(ns, 3, out); }

static void put_text(struct buf *out, const char *text) { buf_append(out, text, strlen(text)); }

/* The text, and then the number. */
static void put_whole(struct buf *out, const char *text, int64_t n)
{
    char digits[US_TEXT];

    put_text(out, text);
    put_text(out, decimal_text(n, 0, digits));
}

static void put_us(struct buf *out, const char *key, int64_t ns)
{
    char text[US_TEXT];

    buf_printf(out, "\"%s\":%s", key, us_text(ns, text));
}

static void begin_event(struct timeline_out *o) { put_text(o->out, o->n++ ? ",\n{" : "\n{"); }

static void put_name_event(struct timeline_out *o, int rank, int track, const char *what,
                           const char *name)
{
    begin_event(o);
    buf_printf(o->out,
               "\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", rank,
               track, what);
    timeline_text(o->out, name);
    buf_printf(o->out, "}}");
}

static void put_names_of(struct timeline_out *o, int rank, const struct timeline_rank *r)
{
    char *label = xasprintf("rank %d (%s)", rank, r->host ? r->host : "?");

    put_name_event(o, rank, 0, "process_name", label);
    free(label);
    begin_event(o);
    buf_printf(o->out,
               "\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\","
               "\"args\":{\"sort_index\":%d}}",
               rank, rank);
    for (int i = 0; i < SPANS_TRACKS; i++)
        put_name_event(o, rank, i, "thread_name", spans_thread_name((enum spans_thread)i));
}

static void put_last(struct timeline_out *o, const struct trace_span *s)
{
    const struct last_come *last =
        bsearch(&s->collective, o->last, (size_t)o->n_last, sizeof *last, by_number);
    char at[US_TEXT], lead[US_TEXT];

    buf_printf(o->out, ",\"collective\":\"%lld.%lld\"", (long long)(s->collective >> 32),
               (long long)(s->collective & UINT32_MAX));
    if (last && last->rank >= 0)
        buf_printf(o->out, ",\"last_rank\":%d", last->rank);
    if (last && last->n >= 2)
        buf_printf(o->out, ",\"last_us\":%s,\"first_waited_us\":%s",
                   us_text(last->at_ns - o->zero_ns, at), us_text(last->lead_ns, lead));
}

static void put_span(struct timeline_out *o, int rank, const struct timeline_rank *r,
                     const struct trace_span *s)
{
    char text[US_TEXT];

    begin_event(o);
    put_whole(o->out, "\"ph\":\"X\",\"pid\":", rank);
    put_whole(o->out, ",\"tid\":", s->track);
    put_text(o->out, ",\"ts\":");
    put_text(o->out, us_text(s->begin_ns - r->offset_ns - o->zero_ns, text));
    put_text(o->out, ",\"dur\":");
    put_text(o->out, us_text(s->took_ns, text));
    put_text(o->out, ",\"name\":");
    put_text(o->out, o->name[s->name]);
    put_text(o->out, ",\"cat\":");
    put_text(o->out, o->name[s->kind]);
    put_whole(o->out, ",\"args\":{\"step\":", s->step);
    if (s->bucket >= 0)
        put_whole(o->out, ",\"bucket\":", s->bucket);
    if (s->n_bytes > 0)
        put_whole(o->out, ",\"bytes\":", s->n_bytes);
    if (s->collective > 0)
        put_last(o, s);
    buf_append(o->out, "}}", 2);
}

static void put_rank_events(struct timeline_out *o, int rank, const struct timeline_rank *r)
{
    o->name = xcalloc((size_t)r->n_names + 1, sizeof *o->name);
    for (int i = 0; i < r->n_names; i++)
        o->name[i] = timeline_quoted(r->name[i].text);
    put_names_of(o, rank, r);
    for (int i = 0; i < r->n; i++)
        put_span(o, rank, r, &r->span[i]);
    for (int i = 0; i < r->n_names; i++)
        free(o->name[i]);
    free(o->name);
}

/* ---- metadata ---- */

static void put_clock(struct buf *out, const struct timeline_rank *r)
{
    if (r->error_ns >= 0) {
        put_us(out, "offset_us", r->offset_ns);
        buf_printf(out, ",");
        put_us(out, "error_us", r->error_ns);
    } else {
        buf_printf(out, "\"offset_us\":null,\"error_us\":null");
    }
    buf_printf(out, ",\"is_driver_clock\":%s", r->error_ns == 0 ? "true" : "false");
    if (!r->is_measured)
        return;
    buf_printf(out, ",");
    put_us(out, "measured_offset_us", r->measured.offset_ns);
    buf_printf(out, ",");
    put_us(out, "measured_error_us", r->measured.error_ns);
    if (r->measured.drift_error_ppm > 0)
        buf_printf(out, ",\"drift_ppm\":%.3f,\"drift_error_ppm\":%.3f", r->measured.drift_ppm,
                   r->measured.drift_error_ppm);
}

/* Why a rank's record is not whole. */
static const char *why_missing(const struct timeline *t, int rank)
{
    const char *why = "it had not sent its record when the run ended";

    for (int i = 0; i < t->n_losses; i++)
        if (t->loss[i].rank == rank)
            why = t->loss[i].why;
    return why;
}

/* 1: the loss was during the record, or before the rank had sent its part. */
static int is_within(const struct timeline_out *o, const struct timeline_loss *loss)
{
    const int has_part = loss->rank < o->t->n && o->t->rank[loss->rank].is_whole;

    return loss->at_ns >= o->zero_ns && (loss->at_ns <= o->end_ns || !has_part);
}

static void put_losses(const struct timeline_out *o)
{
    const struct timeline_loss *loss = o->t->loss;
    int n = 0;

    buf_printf(o->out, "\"lost\":[");
    for (int i = 0; i < o->t->n_losses; i++) {
        if (!is_within(o, &loss[i]))
            continue;
        buf_printf(o->out, "%s{\"rank\":%d,\"host\":", n++ ? "," : "", loss[i].rank);
        timeline_text(o->out, loss[i].host);
        buf_printf(o->out, ",\"reason\":");
        timeline_text(o->out, loss[i].why);
        buf_printf(o->out, ",");
        put_us(o->out, "at_us", loss[i].at_ns - o->zero_ns);
        buf_printf(o->out, "}");
    }
    buf_printf(o->out, "],");
}

static void timeline_put_rank(const struct timeline *t, int rank, struct buf *out)
{
    const struct timeline_rank *r = rank < t->n ? &t->rank[rank] : NULL;

    buf_printf(out, "%s{\"rank\":%d,\"host\":", rank ? "," : "", rank);
    timeline_text(out, r && r->host ? r->host : "?");
    if (!r || !r->is_whole) {
        buf_printf(out, ",\"missing\":");
        timeline_text(out, why_missing(t, rank));
        buf_printf(out, "}");
        return;
    }
    buf_printf(out, ",\"first_step\":%lld,\"last_step\":%lld,\"truncated\":%s,\"kernels\":\"%s\",",
               (long long)r->first, (long long)r->last, r->is_cut ? "true" : "false",
               r->is_launched ? "launches only" : "executed");
    put_clock(out, r);
    buf_printf(out, "}");
}

/* The largest error of a clock, in ns; -1: one is not known. */
static int64_t worst_error(const struct timeline *t)
{
    int64_t worst = 0;

    for (int k = 0; k < t->n; k++) {
        if (t->rank[k].is_whole && t->rank[k].error_ns < 0)
            return -1;
        if (t->rank[k].is_whole)
            worst = max_i64(worst, t->rank[k].error_ns);
    }
    return worst;
}

static int is_any_cut(const struct timeline *t)
{
    int is_cut = 0;

    for (int k = 0; k < t->n; k++)
        is_cut |= t->rank[k].is_cut;
    return is_cut;
}

static void put_metadata(const struct timeline_out *o, const char *run, int n_ranks)
{
    const struct timeline *t = o->t;
    const int64_t worst = worst_error(t);
    struct buf *out = o->out;

    buf_printf(out, "\"metadata\":{\"run\":");
    timeline_text(out, run);
    buf_printf(out, ",\"clock\":\"CLOCK_MONOTONIC of rank 0\",");
    if (worst >= 0)
        put_us(out, "clock_error_us", worst);
    else
        buf_printf(out, "\"clock_error_us\":null");
    buf_printf(out, ",");
    put_losses(o);
    buf_printf(out, "\"truncated\":%s,\"ranks_not_shown\":%d,\"ranks\":[",
               is_any_cut(t) ? "true" : "false", (int)max_i64(0, n_ranks - TIMELINE_RANKS));
    for (int k = 0; k < max_i64(t->n, min_i64(n_ranks, TIMELINE_RANKS)); k++)
        timeline_put_rank(t, k, out);
    buf_printf(out, "]},\n");
}

/* A rank that was lost when the record had been asked for, and before any rank's first step of it,
 * belongs to it, too. */
static void begin_with_losses(struct timeline_out *o)
{
    const struct timeline *t = o->t;

    for (int i = 0; t->asked_ns && i < t->n_losses; i++)
        if (t->loss[i].at_ns >= t->asked_ns)
            o->zero_ns = min_i64(o->zero_ns, t->loss[i].at_ns);
}

/* The time of the record, by the driver's clock. */
static void find_bounds(struct timeline_out *o)
{
    const struct timeline *t = o->t;

    o->zero_ns = INT64_MAX;
    for (int k = 0; k < t->n; k++)
        for (int i = 0; t->rank[k].is_whole && i < t->rank[k].n; i++) {
            const struct trace_span *s = &t->rank[k].span[i];
            const int64_t begin_ns = s->begin_ns - t->rank[k].offset_ns;

            o->zero_ns = min_i64(o->zero_ns, begin_ns);
            o->end_ns = max_i64(o->end_ns, begin_ns + s->took_ns);
        }
    begin_with_losses(o);
    o->end_ns = max_i64(o->end_ns, o->zero_ns);
}

/* A line through all ranks where one was lost. */
static void put_loss_events(struct timeline_out *o)
{
    const struct timeline_loss *loss = o->t->loss;
    char at[US_TEXT];

    for (int i = 0; i < o->t->n_losses; i++) {
        if (!is_within(o, &loss[i]))
            continue;
        begin_event(o);
        buf_printf(o->out,
                   "\"ph\":\"i\",\"s\":\"g\",\"pid\":0,\"tid\":0,\"ts\":%s,"
                   "\"name\":\"rank %d is lost\",\"cat\":\"lost\",\"args\":{\"reason\":",
                   us_text(loss[i].at_ns - o->zero_ns, at), loss[i].rank);
        timeline_text(o->out, loss[i].why);
        buf_printf(o->out, "}}");
    }
}

void timeline_json(const struct timeline *t, const char *run, int n_ranks, struct buf *out)
{
    struct timeline_out o = {.t = t, .out = out, .end_ns = INT64_MIN};
    struct last_come *last = timeline_lasts(t, &o.n_last);

    o.last = last;
    find_bounds(&o);
    buf_printf(out, "{\"displayTimeUnit\":\"ms\",\n");
    put_metadata(&o, run, n_ranks);
    buf_printf(out, "\"traceEvents\":[");
    for (int k = 0; k < t->n; k++)
        if (t->rank[k].is_whole)
            put_rank_events(&o, k, &t->rank[k]);
    put_loss_events(&o);
    buf_printf(out, "\n]}\n");
    free(last);
}
