/* loader - the data thread, the ring of slots, and the engine's side of both.
 *
 * Happy path: the engine starts some work.  The data thread plans the next batch under the lock,
 * fills a free slot without the lock, and counts the slot as filled.  The engine takes the batch
 * and releases it.
 *
 * Three counters, `filled` >= `taken` >= `released`, describe the whole ring.  Slot i % n_slots
 * belongs to the data thread from the release of batch i - n_slots until batch i is filled.  It
 * belongs to the engine from the taking of batch i until its release.
 *
 * Failure: a batch that cannot be read stops the work; loader_next gives the batches that were
 * filled before, then the error.  A start and loader_free plan no more batches, wait for the one
 * that is being filled, and forget it. */
#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"
#include "data/effort.h"
#include "data/pool.h"

enum { MAX_SLOTS = 64, NORMAL_SLOTS = 4, MAX_BATCH = 1 << 24 };

struct slot {
    struct batch batch;
    int64_t *index;
};

enum work_kind { NO_WORK, TRAIN, PASS };

/* The work that is still to be done. */
struct work {
    enum work_kind kind;
    struct sampler sampler; /* TRAIN */
    int accumulate;         /* TRAIN: micro-batches of a share */
    int micro;              /* TRAIN: the next micro-batch of the step */
    int n_ranks, rank;
    int64_t step, end_step; /* the next step, or batch of a pass; the end, exclusive */
    int64_t stride;         /* from one step that is this rank's to the next one */
    struct span part;       /* PASS: this rank's */
    int64_t batch;          /* PASS: samples in a batch */
};

struct loader {
    const struct dataset *dataset;
    struct loader_memory memory;
    int indices_only;
    int n_slots;
    int64_t capacity; /* samples a slot can hold */
    void *all;        /* memory of all slots' fields and index */
    pthread_t thread;
    struct pool *workers;      /* the data thread's; NULL: it reads alone */
    struct effort_sums effort; /* of the training batches that were measured */

    pthread_mutex_t lock; /* guards all that follows, but not the slots' content */
    pthread_cond_t changed, progress;
    struct work work;
    int64_t *bound; /* the work's own copy of the sampler's */
    int64_t filled, taken, released;
    int busy; /* the data thread is filling slot filled % n_slots */
    int quit;
    struct spans_track *track; /* of the data thread; NULL: nothing is recorded */
    struct err failure;        /* code 0: none */
    struct slot slot[MAX_SLOTS];
};

/* ---- the data thread ---- */

static int more_to_do(const struct work *w) { return w->kind != NO_WORK && w->step < w->end_step; }

static int n_micros(const struct work *w)
{
    const struct sampler_step at = sampler_at(&w->sampler, w->step);

    return sampler_n_micros(&at, w->n_ranks, w->rank, w->accumulate);
}

static void loader_advance(struct work *w)
{
    if (w->kind == TRAIN && ++w->micro < n_micros(w))
        return;
    w->micro = 0;
    w->step += w->stride;
}

static void plan_batch(const struct work *w, int64_t n_samples, struct batch *b)
{
    struct sampler_step at;
    struct span part;

    if (w->kind == PASS) {
        part = span_piece(w->part, w->batch, w->step);
        at = (struct sampler_step){.step = w->step, .n = n_samples};
    } else {
        at = sampler_at(&w->sampler, w->step);
        part = sampler_micro(&at, w->n_ranks, w->rank, w->accumulate, w->micro);
    }
    b->n = part.n;
    b->first = part.first;
    b->step = at.step;
    b->epoch = at.epoch;
    b->n_global = at.n;
    b->micro = w->micro;
}

/* A batch that workers read together. */
struct reading {
    const struct dataset *dataset;
    const struct dataset_draw *draw;
    const struct batch *batch;
    int64_t n_each;             /* samples that are read in one go */
    struct effort_sums *effort; /* NULL: this batch is not measured */
    pthread_mutex_t lock;       /* guards what follows */
    int64_t failed;             /* the first part that failed, and why; -1: none did */
    struct err err;
};

/* Read part i of the batch, to its place. */
static void read_part(void *arg, int64_t i)
{
    struct reading *r = arg;
    const struct sample_spec *spec = &r->dataset->spec;
    const int64_t first = i * r->n_each, n = min_i64(r->n_each, r->batch->n - first);
    void *to[SAMPLE_MAX_FIELDS];
    struct effort since = {0};
    struct err err;
    int rc;

    for (int k = 0; k < spec->n_fields; k++)
        to[k] = (char *)r->batch->field[k] + (size_t)first * sample_field_bytes(&spec->field[k]);
    if (r->effort)
        since = effort_begin();
    rc = dataset_gather_drawn(r->dataset, r->draw, r->batch->index + first, n, to, &err);
    if (r->effort)
        effort_end(r->effort, &since);
    if (rc == 0)
        return;
    pthread_mutex_lock(&r->lock);
    if (r->failed < 0 || i < r->failed) {
        r->failed = i;
        r->err = err;
    }
    pthread_mutex_unlock(&r->lock);
}

/* Read the batch's samples.  Of several that fail the first one is named.  One batch in four is
 * measured. */
static int read_batch(struct loader *l, const struct dataset_draw *draw, const struct batch *b,
                      struct err *err)
{
    enum { PARTS_EACH = 4, MEASURED_EACH = 4 };
    const struct dataset *ds = l->dataset;
    struct reading r = {.dataset = ds, .draw = draw, .batch = b, .failed = -1};

    r.effort = draw && b->step % MEASURED_EACH == 0 ? &l->effort : NULL;
    r.n_each = !l->workers   ? max_i64(b->n, 1)
               : ds->is_slow ? 1
                             : ceil_div_i64(max_i64(b->n, 1), PARTS_EACH * ds->n_workers);
    pthread_mutex_init(&r.lock, NULL);
    if (l->workers)
        pool_run(l->workers, read_part, &r, ceil_div_i64(b->n, r.n_each));
    else
        read_part(&r, 0);
    pthread_mutex_destroy(&r.lock);
    if (r.failed < 0)
        return 0;
    *err = r.err;
    return err->code;
}

static int fill_slot(struct loader *l, const struct work *w, struct slot *s, struct err *err)
{
    struct batch *b = &s->batch;
    const struct dataset_draw draw = {w->sampler.seed, b->epoch};

    if (w->kind == PASS) {
        for (int64_t i = 0; i < b->n; i++)
            s->index[i] = b->first + i;
    } else {
        struct sampler_step at = sampler_at(&w->sampler, b->step);

        sampler_list(&w->sampler, &at, (struct span){b->first, b->n}, s->index);
    }
    return l->indices_only ? 0 : read_batch(l, w->kind == PASS ? NULL : &draw, b, err);
}

/* Called with the lock held; releases it while the slot is filled. */
static void fill_next(struct loader *l)
{
    struct slot *s = &l->slot[l->filled % l->n_slots];
    struct work w = l->work;
    struct err err = {0};
    int64_t traced_ns;
    int rc;

    loader_advance(&l->work);
    l->busy = 1;
    spans_use(l->track);
    pthread_mutex_unlock(&l->lock);
    traced_ns = spans_begin();
    plan_batch(&w, l->dataset->n_samples, &s->batch);
    rc = fill_slot(l, &w, s, &err);
    spans_step(s->batch.step);
    spans_end(traced_ns, "read a batch", "data");
    pthread_mutex_lock(&l->lock);
    l->busy = 0;
    if (rc < 0) {
        l->failure = err;
        l->work.kind = NO_WORK;
    } else {
        l->filled++;
    }
    pthread_cond_signal(&l->progress);
}

static void *loader_run(void *arg)
{
    struct loader *l = arg;

    pthread_mutex_lock(&l->lock);
    while (!l->quit) {
        if (more_to_do(&l->work) && l->filled - l->released < l->n_slots)
            fill_next(l);
        else
            pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the engine's side ---- */

void loader_record(struct loader *l, struct spans_track *track)
{
    pthread_mutex_lock(&l->lock);
    l->track = track;
    pthread_mutex_unlock(&l->lock);
}

static int alloc_heap(void *arg, size_t n_bytes, const char *what, void **out, struct err *err)
{
    (void)arg;
    return try_alloc(out, n_bytes, what, err);
}

static void free_heap(void *arg, void *p)
{
    (void)arg;
    free(p);
}

/* Make slots for `n` samples each, while the data thread has no work. */
static int loader_reserve(struct loader *l, int64_t n, struct err *err)
{
    const struct sample_spec *spec = &l->dataset->spec;
    const size_t field_bytes = l->indices_only ? 0 : sample_place(spec, n, NULL, NULL);
    const size_t slot_bytes =
        field_bytes + (size_t)round_up_i64(n * (int64_t)sizeof(int64_t), SAMPLE_ALIGN);
    void *all;

    if (l->memory.alloc(l->memory.arg, (size_t)l->n_slots * slot_bytes, "batches read ahead", &all,
                        err) < 0)
        return err->code;
    l->memory.free(l->memory.arg, l->all);
    l->all = all;
    l->capacity = n;
    for (int i = 0; i < l->n_slots; i++) {
        char *at = (char *)all + (size_t)i * slot_bytes;
        struct slot *s = &l->slot[i];

        s->index = (void *)(at + field_bytes);
        s->batch = (struct batch){.index = s->index};
        if (!l->indices_only)
            (void)sample_place(spec, n, at, s->batch.field);
    }
    return 0;
}

static int loader_start_thread(struct loader *l, struct err *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&l->thread, NULL, loader_run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return err_sys(err, rc, "cannot start the data thread");
    pthread_setname_np(l->thread, "data");
    return 0;
}

static int start_workers(struct loader *l, struct err *err)
{
    const int n = l->dataset->n_workers;

    if (n <= 1 || l->indices_only || pool_new(&l->workers, n, err) == 0)
        return 0;
    return err_wrap(err, "set data.workers lower");
}

static void loader_destroy(struct loader *l)
{
    pthread_cond_destroy(&l->progress);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    pool_free(l->workers);
    l->memory.free(l->memory.arg, l->all);
    free(l->bound);
    free(l);
}

static int loader_check_options(const struct loader_options *o, struct err *err)
{
    if (o->n_slots && (o->n_slots < 2 || o->n_slots > MAX_SLOTS))
        return err_set(err, ERR_ARG, "%d batches ahead, want 2 to %d", o->n_slots, MAX_SLOTS);
    if (o->max_batch < 0 || o->max_batch > MAX_BATCH)
        return err_set(err, ERR_ARG, "batches of %lld samples, want at most %d",
                       (long long)o->max_batch, MAX_BATCH);
    return 0;
}

int loader_new(struct loader **out, const struct loader_options *o, struct err *err)
{
    struct loader *l;

    if (loader_check_options(o, err) < 0)
        return err->code;
    l = xcalloc(1, sizeof *l);
    l->dataset = o->dataset;
    l->n_slots = o->n_slots ? o->n_slots : NORMAL_SLOTS;
    l->indices_only = o->indices_only;
    l->memory = o->memory ? *o->memory : (struct loader_memory){alloc_heap, free_heap, NULL};
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    cond_init(&l->progress);
    if (loader_reserve(l, o->max_batch, err) < 0 || start_workers(l, err) < 0 ||
        loader_start_thread(l, err) < 0) {
        loader_destroy(l);
        return err->code;
    }
    *out = l;
    return 0;
}

struct effort loader_effort(const struct loader *l) { return effort_read(&l->effort); }

void loader_free(struct loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->quit = 1;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    loader_destroy(l);
}

/* When this returns the data thread sleeps, and the ring is empty. */
static void drop_work(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->work.kind = NO_WORK;
    while (l->busy)
        pthread_cond_wait(&l->progress, &l->lock);
    l->filled = l->taken = l->released = 0;
    l->failure.code = 0;
    pthread_mutex_unlock(&l->lock);
}

static int give_work(struct loader *l, const struct work *w, int64_t largest, struct err *err)
{
    if (largest > MAX_BATCH)
        return err_set(
            err, ERR_ARG,
            "batches of %lld samples on one rank, want at most %d; take a smaller batch, "
            "more ranks or train.accumulate",
            (long long)largest, MAX_BATCH);
    if (largest > l->capacity && loader_reserve(l, largest, err) < 0)
        return err->code;
    pthread_mutex_lock(&l->lock);
    l->work = *w;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static int loader_check_rank(int n_ranks, int rank, struct err *err)
{
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return err_set(err, ERR_ARG, "rank %d of %d, want 0 to %d", rank, n_ranks, n_ranks - 1);
    return 0;
}

static int loader_check_train(const struct loader *l, const struct sampler *s, const struct work *w,
                              struct err *err)
{
    if (loader_check_rank(w->n_ranks, w->rank, err) < 0 || sampler_check(s, err) < 0)
        return err->code;
    if (s->n_samples != l->dataset->n_samples)
        return err_set(err, ERR_ARG, "the sampler has %lld samples, the data set %lld",
                       (long long)s->n_samples, (long long)l->dataset->n_samples);
    if (w->accumulate < 1)
        return err_set(err, ERR_ARG, "%d micro-batches a step, want at least 1", w->accumulate);
    if (w->step < 0 || w->end_step < w->step)
        return err_set(err, ERR_ARG, "steps from %lld up to %lld, want a range from 0 on",
                       (long long)w->step, (long long)w->end_step);
    return 0;
}

int loader_start_train(struct loader *l, const struct sampler *s, int accumulate, int n_ranks,
                       int rank, int64_t first_step, int64_t end_step, struct err *err)
{
    struct work w = {.kind = TRAIN,
                     .sampler = *s,
                     .accumulate = accumulate,
                     .n_ranks = n_ranks,
                     .rank = rank,
                     .step = first_step,
                     .end_step = end_step,
                     .stride = 1};

    drop_work(l);
    if (loader_check_train(l, s, &w, err) < 0)
        return err->code;
    if (s->bound) {
        l->bound = xrealloc(l->bound, sizeof *l->bound * (size_t)(n_ranks + 1));
        memcpy(l->bound, s->bound, sizeof *l->bound * (size_t)(n_ranks + 1));
        w.sampler.bound = l->bound;
    }
    return give_work(l, &w, sampler_largest_micro(s, n_ranks, accumulate), err);
}

int loader_start_pass(struct loader *l, int64_t batch, int64_t unit, int n_ranks, int rank,
                      struct err *err)
{
    struct work w = {.kind = PASS, .n_ranks = n_ranks, .rank = rank, .batch = batch, .stride = 1};

    drop_work(l);
    if (loader_check_rank(n_ranks, rank, err) < 0)
        return err->code;
    if (batch < 1)
        return err_set(err, ERR_ARG, "batches of %lld samples, want at least 1", (long long)batch);
    if (unit < 1)
        return err_set(err, ERR_ARG, "units of %lld samples, want at least 1", (long long)unit);
    w.part = span_part_of_pieces((struct span){0, l->dataset->n_samples}, unit, n_ranks, rank);
    w.end_step = ceil_div_i64(w.part.n, batch);
    return give_work(l, &w, min_i64(batch, w.part.n), err);
}

int loader_start_turns(struct loader *l, const struct sampler *s, int n_ranks, int rank,
                       int64_t end, struct err *err)
{
    struct work w = {.kind = TRAIN,
                     .sampler = *s,
                     .accumulate = 1,
                     .n_ranks = 1,
                     .step = min_i64(rank, end),
                     .end_step = end,
                     .stride = n_ranks};

    ASSERT(!s->bound && !s->n_shares);
    drop_work(l);
    if (loader_check_rank(n_ranks, rank, err) < 0 || loader_check_train(l, s, &w, err) < 0)
        return err->code;
    return give_work(l, &w, sampler_largest_micro(s, 1, 1), err);
}

/* Wait for the data thread, until the time `until_ns`; <0: for ever.  With the lock held.
 * 1: the time has passed. */
static int wait_for_progress(struct loader *l, int64_t until_ns)
{
    if (until_ns >= 0)
        return cond_wait_until(&l->progress, &l->lock, until_ns);
    pthread_cond_wait(&l->progress, &l->lock);
    return 0;
}

/* Take the oldest batch that is filled.  With the lock held. */
static int take_batch(struct loader *l, int64_t until_ns, const struct batch **out, struct err *err)
{
    while (l->taken == l->filled) {
        if (l->failure.code) {
            *err = l->failure;
            return err->code;
        }
        if (!l->busy && !more_to_do(&l->work))
            return LOADER_END;
        if (wait_for_progress(l, until_ns) && l->taken == l->filled && !l->failure.code)
            return LOADER_LATE;
    }
    *out = &l->slot[l->taken++ % l->n_slots].batch;
    return 0;
}

static int next_until(struct loader *l, int64_t until_ns, const struct batch **out, struct err *err)
{
    int rc;

    pthread_mutex_lock(&l->lock);
    ASSERT(l->taken - l->released < l->n_slots);
    rc = take_batch(l, until_ns, out, err);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int loader_next(struct loader *l, const struct batch **out, struct err *err)
{
    return next_until(l, -1, out, err);
}

int loader_next_within(struct loader *l, int64_t limit_ns, const struct batch **out,
                       struct err *err)
{
    ASSERT(limit_ns >= 0);
    return next_until(l, clock_mono_ns() + limit_ns, out, err);
}

void loader_release(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    ASSERT(l->released < l->taken);
    l->released++;
    pthread_cond_signal(&l->changed);
    pthread_mutex_unlock(&l->lock);
}
