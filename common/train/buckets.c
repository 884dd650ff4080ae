/* buckets - measures the buckets of the first steps, decides on a size, and cuts anew.
 *
 * Cutting anew happens between two steps, or when ranks form: what was made with the former buckets
 * (programs, update, strategy) is freed, and made again with the new ones.  If that fails, because
 * memory is short, the layout has no valid size, so that the next formation cuts again. */
#include "train/buckets.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "strategy/exchange.h"
#include "train/trainer_impl.h"

/* ---- the model ---- */

static const size_t sizes[] = {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 25 << 20};

static const double least_gain = 0.02;

struct link {
    double latency, per_byte; /* seconds */
};

static double buckets_bytes_of(const struct bucket *b)
{
    return (double)b->length * (double)dtype_size(b->dtype);
}

/* The sums that a fit of t = a + p * x with weights 1 / t^2 needs. */
struct sums {
    double w, wx, wxx, wt, wxt;
};

static struct sums add_times(const struct layout *l, const double *sum_s)
{
    struct sums s = {0};

    for (int b = 0; b < l->n_buckets; b++) {
        const double t = sum_s[b], x = buckets_bytes_of(&l->bucket[b]), w = 1 / (t * t);

        if (!isfinite(t) || !(t > 0))
            continue;
        s.w += w;
        s.wx += w * x;
        s.wxx += w * x * x;
        s.wt += w * t;
        s.wxt += w * x * t;
    }
    return s;
}

/* Find the link's latency and rate.  Returns 0 if the times do not tell the two apart, because all
 * buckets have about the same size. */
static int buckets_fit(const struct layout *l, const double *sum_s, struct link *out)
{
    const struct sums s = add_times(l, sum_s);
    const double det = s.w * s.wxx - s.wx * s.wx;

    if (!(det > 1e-3 * s.w * s.wxx))
        return 0;
    out->per_byte = (s.w * s.wxt - s.wx * s.wt) / det;
    out->latency = (s.wxx * s.wt - s.wx * s.wxt) / det;
    if (out->latency < 0)
        *out = (struct link){0, s.wxt / s.wxx};
    else if (out->per_byte < 0)
        *out = (struct link){s.wt / s.w, 0};
    return 1;
}

/* The time at which the first `end` elements are ready. */
static double ready_at(const struct layout *l, const double *ready_s, int64_t end)
{
    double from_s = 0;
    int64_t from = 0;

    for (int b = 0; b < l->n_buckets; b++) {
        const int64_t to = l->bucket[b].offset + l->bucket[b].length;
        const double s = ready_s[b] > from_s ? ready_s[b] : from_s;

        if (end <= to)
            return from_s + (s - from_s) * (double)(end - from) / (double)(to - from);
        from = to;
        from_s = s;
    }
    return from_s;
}

/* The time at which the last sum ends if buckets have this size.  `cut` is room for the buckets. */
static double last_end(const struct layout *l, const double *ready_s, struct link link, size_t size,
                       struct bucket *cut)
{
    const int n = layout_plan(l, size, cut);
    double end = 0;

    for (int b = 0; b < n; b++) {
        const double ready = ready_at(l, ready_s, cut[b].offset + cut[b].length);

        end =
            (ready > end ? ready : end) + link.latency + link.per_byte * buckets_bytes_of(&cut[b]);
    }
    return end;
}

size_t buckets_choose(const struct layout *l, const double *ready_s, const double *sum_s)
{
    struct bucket *cut;
    struct link link;
    size_t best = l->bucket_bytes;
    double least;

    if (!buckets_fit(l, sum_s, &link))
        return best;
    cut = xcalloc((size_t)layout_most_buckets(l), sizeof *cut);
    least = last_end(l, ready_s, link, best, cut) * (1 - least_gain);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const double end = last_end(l, ready_s, link, sizes[i], cut);

        if (end < least) {
            least = end;
            best = sizes[i];
        }
    }
    free(cut);
    return best;
}

/* ---- measuring ---- */

/* The shortest sums of each bucket, in seconds, as far as the record goes back.  A bucket may have
 * a second, smaller collective (the control vector's), which does not count. */
static void buckets_read_record(const struct trainer *t, double *sum_s)
{
    struct collective *c = xcalloc(RING_LEN, sizeof *c);
    const int n = ring_read(t->ring, c), n_buckets = t->layout->n_buckets;
    int64_t *n_bytes = xcalloc((size_t)n_buckets, sizeof *n_bytes);

    for (int b = 0; b < n_buckets; b++)
        sum_s[b] = INFINITY;
    for (int i = 0; i < n; i++) {
        const int64_t b = c[i].bucket;
        const double took = 1e-9 * (double)(c[i].ended_ns - c[i].began_ns);

        if (b < 0 || b >= n_buckets || c[i].step < t->buckets.from || c[i].is_failed ||
            c[i].began_ns == 0 || c[i].ended_ns == 0 || c[i].n_bytes < n_bytes[b])
            continue;
        sum_s[b] = c[i].n_bytes > n_bytes[b] ? took : fmin(sum_s[b], took);
        n_bytes[b] = c[i].n_bytes;
    }
    free(n_bytes);
    free(c);
}

static void read_sums(const struct trainer *t, double *sum_s)
{
    const int64_t *ns = t->step.watch.summed_ns;

    if (!ns)
        buckets_read_record(t, sum_s);
    for (int b = 0; b < t->layout->n_buckets && ns; b++)
        sum_s[b] = ns[b] < INT64_MAX ? 1e-9 * (double)ns[b] : INFINITY;
}

/* own [2 * n_buckets]: when each bucket was ready on this rank, then how long each bucket's sum
 * took.  buckets_decide() gets the same of all ranks, one rank after another. */
static void write_own(const struct trainer *t, double *own)
{
    const int n = t->layout->n_buckets;

    for (int b = 0; b < n; b++)
        own[b] = 1e-9 * (double)t->step.watch.filled_ns[b];
    read_sums(t, own + n);
}

static size_t buckets_decide(const struct trainer *t, const double *all)
{
    const int n = t->layout->n_buckets;
    double *of = xcalloc(2 * (size_t)n, sizeof *of);
    size_t choice;

    for (int i = 0; i < 2 * n; i++)
        of[i] = all[i];
    for (int r = 1; r < t->n_ranks; r++)
        for (int b = 0; b < n; b++) {
            of[b] = fmax(of[b], all[2 * n * r + b]);
            of[n + b] = fmin(of[n + b], all[2 * n * r + n + b]);
        }
    choice = buckets_choose(t->layout, of, of + n);
    free(of);
    return t->o.bucket_choice ? t->o.bucket_choice : choice;
}

/* All ranks tell their figures, and rank 0 tells what it decided. */
static int buckets_agree(struct trainer *t, int64_t *choice, struct err *err)
{
    const size_t n = 2 * (size_t)t->layout->n_buckets;
    const int64_t id =
        ring_hand(t->ring, t->state->at.step, RING_STATE, 0, PHASE_UPDATE, RING_OF_ALLGATHER);
    double *own = xcalloc(n, sizeof *own), *all = xcalloc(n * (size_t)t->n_ranks, sizeof *all);
    int rc;

    write_own(t, own);
    ring_run(t->ring, id, clock_mono_ns());
    rc = coll_allgather(t->step.coll, own, n * sizeof *own, all, err);
    if (rc == 0 && t->rank == 0)
        *choice = (int64_t)buckets_decide(t, all);
    if (rc == 0)
        rc = coll_broadcast(t->step.coll, choice, sizeof *choice, 0, err);
    ring_end(t->ring, id, clock_mono_ns(), rc < 0);
    free(all);
    free(own);
    return rc;
}

/* ---- cutting ---- */

size_t buckets_at_first(const struct trainer *t)
{
    const int64_t of_job = t->job->train.bucket_bytes;

    if (t->o.bucket_bytes)
        return t->o.bucket_bytes;
    return (size_t)(of_job == BUCKETS_AUTO ? BUCKETS_DEFAULT : of_job);
}

static int buckets_cut(struct trainer *t, size_t size, struct err *err)
{
    int rc;

    programs_free(t->step.programs);
    t->step.programs = NULL;
    update_free(t->step.update);
    t->step.update = NULL;
    reducer_uncut(t->step.reducer);
    layout_cut(t->layout, size);
    buffers_cut(t->step.buffers, t->layout);
    rc = trainer_make_update(t, err);
    if (rc == 0)
        rc = reducer_recut(t->step.reducer, err);
    if (rc == 0)
        rc = trainer_make_programs(t, err);
    if (rc < 0)
        t->layout->bucket_bytes = 0;
    return rc;
}

static void report_buckets(struct trainer *t)
{
    struct report *r;

    if (t->rank != 0)
        return;
    r = report_new(REPORT_BUCKETS, 0);
    r->buckets.step = t->state->at.step;
    r->buckets.bucket_bytes = (int64_t)t->layout->bucket_bytes;
    r->buckets.n_buckets = t->layout->n_buckets;
    t->hooks.report(t->hooks.arg, r);
}

static int is_automatic(const struct trainer *t)
{
    return t->job->train.bucket_bytes == BUCKETS_AUTO &&
           reducer_promises(t->step.reducer)->buckets_may_change;
}

static int begin_measuring(struct trainer *t, struct err *err)
{
    if (!is_automatic(t) || t->n_ranks == 1 || t->state->at.bucket_bytes > 0)
        return 0;
    t->buckets.from = t->state->at.step;
    t->buckets.due = t->buckets.from + BUCKETS_STEPS;
    return watch_start(&t->step.watch, t->backend, t->layout->n_buckets, err);
}

int buckets_form(struct trainer *t, struct err *err)
{
    const int64_t decided = is_automatic(t) ? t->state->at.bucket_bytes : 0;
    const size_t want = decided > 0 ? (size_t)decided : buckets_at_first(t);

    watch_stop(&t->step.watch);
    if (t->layout->bucket_bytes != want) {
        if (buckets_cut(t, want, err) < 0)
            return err_wrap(err, "train.bucket_bytes");
        report_buckets(t);
    }
    return begin_measuring(t, err);
}

static int buckets_take(struct trainer *t, int64_t choice, int64_t last, struct err *err)
{
    int rc = 0;

    tapes_clear(t->step.tapes);
    watch_stop(&t->step.watch);
    t->state->at.bucket_bytes = choice;
    if (t->layout->bucket_bytes != (size_t)choice) {
        rc = buckets_cut(t, (size_t)choice, err);
        if (rc == 0)
            rc = trainer_start_feed(t, last, err);
    }
    if (rc == 0)
        report_buckets(t);
    return rc;
}

int buckets_if_due(struct trainer *t, int64_t last, struct err *err)
{
    int64_t choice = 0;
    int rc;

    if (!t->step.watch.filled_ns)
        return 0;
    rc = t->state->at.step > t->buckets.from ? watch_read(&t->step.watch, err) : 0;
    if (rc == 0 && t->state->at.step < t->buckets.due)
        return 0;
    if (rc == 0)
        rc = buckets_agree(t, &choice, err);
    if (rc == 0)
        rc = buckets_take(t, choice, last, err);
    return rc < 0 ? err_wrap(err, "train.bucket_bytes") : 0;
}
