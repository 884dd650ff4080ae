/* saver - the thread that writes checkpoints, and the memory that it shares with the engine.
 *
 * Happy path: the engine finds the saver idle, copies the state into the snapshot, sets `is_busy`
 * and signals.  The thread writes the snapshot, reports, and clears `is_busy`.  The snapshot
 * belongs to the engine while is_busy is 0, and to the thread while it is 1.  So does the state of
 * the last checkpoint, which is not copied.  While is_copying is 1 the thread reads what an update
 * changes in the state, and the engine only reads that, too.
 *
 * Failure modes:
 *   - The disk is full or fails: the report says so, and the next checkpoint is tried afresh.
 *   - The disk hangs: is_busy stays 1, and steps go on.  The end of the epoch waits, and the
 *     driver's deadline ends that wait.
 *   - The formation breaks off while the engine waits: the wait ends, the write goes on.  If it
 *     writes the state itself, the next formation begins with a wait for it (saver_settle). */
#include "state/saver.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "ckpt/ckpt.h"
#include "state/snapshot.h"

struct saver {
    char *run_dir;
    struct saver_hooks hooks;
    const struct state *state;
    struct snapshot *snapshot;
    int keep;
    int has_borrowed;        /* of the engine: the newest snapshot refers to the state itself */
    int has_warned_unlinked; /* of the thread that writes checkpoints */
    pthread_t thread;
    int has_thread;

    /* Guards all fields below. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_busy, must_end;
    int is_held;            /* 1: busy with a checkpoint that others write (saver_hold) */
    int is_copying;         /* 1: the thread still has to copy a part of the state */
    int64_t wait_ns;        /* since when saver_copied waits for that; 0: it does not */
    int is_awaited;         /* 1: saver_save waits for the outcome and takes it */
    struct report *outcome; /* for saver_save; else NULL */
    int64_t step, start_ns; /* of the checkpoint under way */
    int64_t generation;     /* of the formation whose ranks write it together; 0: rank 0 alone */
    double exposed_s;
    int64_t saved_step; /* the step that this process wrote last; -1 none */
};

struct saver *saver_new(const char *run_dir, const struct saver_hooks *hooks)
{
    struct saver *v = xcalloc(1, sizeof *v);

    v->run_dir = xstrdup(run_dir);
    v->hooks = *hooks;
    v->saved_step = -1;
    pthread_mutex_init(&v->lock, NULL);
    pthread_cond_init(&v->changed, NULL);
    return v;
}

void saver_free(struct saver *v)
{
    if (!v)
        return;
    if (v->has_thread) {
        pthread_mutex_lock(&v->lock);
        v->must_end = 1;
        pthread_cond_broadcast(&v->changed);
        pthread_mutex_unlock(&v->lock);
        pthread_join(v->thread, NULL);
    }
    if (v->outcome)
        report_free(v->outcome);
    snapshot_free(v->snapshot);
    pthread_cond_destroy(&v->changed);
    pthread_mutex_destroy(&v->lock);
    free(v->run_dir);
    free(v);
}

/* ---- the thread ---- */

static struct report *report_of(const struct saver *v, int64_t step, double exposed_s)
{
    struct report *r = report_new(REPORT_CHECKPOINT, 0);

    r->checkpoint.step = step;
    r->checkpoint.seconds = clock_since_s(v->start_ns);
    r->checkpoint.exposed_seconds = exposed_s;
    r->checkpoint.is_unasked = 1;
    return r;
}

void saver_warn_unlinked(struct saver *v, int64_t step, const char *why)
{
    struct report *r;

    if (v->has_warned_unlinked)
        return;
    v->has_warned_unlinked = 1;
    r = report_new(REPORT_WARNING, 0);
    r->warning.step = step;
    r->warning.text = xasprintf("the checkpoint of step %lld is written, but no link to it: %s",
                                (long long)step, why);
    v->hooks.report(v->hooks.arg, r);
}

/* Takes `error`. */
static void set_error(const struct saver *v, struct report *r, char *error)
{
    struct err ignored;

    r->checkpoint.error = error;
    r->checkpoint.is_gone = error && ckpt_check_run_dir(v->run_dir, &ignored) < 0;
}

void saver_tell_damaged(const struct saver *v, int rank, const char *file, int is_mended)
{
    struct report *r = report_new(REPORT_CORRUPTION, v->generation);

    r->corruption.step = v->step;
    r->corruption.rank = rank;
    r->corruption.is_proven = 1;
    r->corruption.what = CORRUPTION_CHECKPOINT;
    r->corruption.share = -1;
    r->corruption.is_healed = is_mended;
    r->corruption.tensor = file ? xstrdup(file) : NULL;
    v->hooks.report(v->hooks.arg, r);
}

/* A file of a checkpoint that this thread writes, as rank 0's. */
static void saver_hear_damaged(void *arg, const char *file, int is_mended)
{
    saver_tell_damaged(arg, 0, file, is_mended);
}

/* Copy what saver_begin_beside left, if it did.  The lock is held, but for the copy. */
static void saver_copy_rest(struct saver *v)
{
    int64_t traced_ns;

    if (!v->is_copying)
        return;
    pthread_mutex_unlock(&v->lock);
    traced_ns = spans_begin();
    snapshot_take_rest(v->snapshot);
    spans_end(traced_ns, "copy the state", "checkpoint");
    pthread_mutex_lock(&v->lock);
    if (v->wait_ns)
        v->exposed_s += clock_since_s(v->wait_ns);
    v->is_copying = 0;
    pthread_cond_broadcast(&v->changed);
}

static struct report *write_snapshot(struct saver *v)
{
    const struct ckpt_told told = {v, saver_hear_damaged};
    char *path = NULL;
    struct err err;
    int rc = snapshot_save(v->snapshot, v->run_dir, v->keep, &told, &path, &err);
    struct report *r = report_of(v, v->step, v->exposed_s);

    if (rc > 0)
        saver_warn_unlinked(v, v->step, err.msg);

    r->checkpoint.path = path;
    if (rc < 0)
        set_error(v, r, xstrdup(err.msg));
    return r;
}

/* Report the outcome, or give it to saver_await, and become idle.  The lock is held. */
static void hand_in(struct saver *v, struct report *r)
{
    const int is_given_up = !r->checkpoint.error && !r->checkpoint.path;

    ASSERT(v->is_busy && !v->outcome && r->checkpoint.step == v->step);
    ASSERT(!r->checkpoint.error || !r->checkpoint.path);
    if (r->checkpoint.path)
        v->saved_step = r->checkpoint.step;
    if (v->is_awaited)
        v->outcome = r;
    else if (is_given_up)
        report_free(r);
    else
        v->hooks.report(v->hooks.arg, r);
    v->is_busy = v->is_held = 0;
    pthread_cond_broadcast(&v->changed);
}

static void *main_of_saver(void *arg)
{
    struct saver *v = arg;

    spans_use(v->hooks.track);
    pthread_mutex_lock(&v->lock);
    for (;;) {
        struct report *r;
        int64_t traced_ns;

        while ((!v->is_busy || v->is_held) && !v->must_end)
            pthread_cond_wait(&v->changed, &v->lock);
        if (!v->is_busy || v->is_held)
            break;
        saver_copy_rest(v);
        pthread_mutex_unlock(&v->lock);
        traced_ns = spans_begin();
        r = write_snapshot(v);
        spans_end(traced_ns, "write a checkpoint", "checkpoint");
        pthread_mutex_lock(&v->lock);
        ASSERT(!v->is_held); /* the snapshot was the thread's all the time */
        hand_in(v, r);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

int saver_open(struct saver *v, const struct state *s, int keep, int has_room, struct err *err)
{
    int rc = snapshot_new(s, has_room, &v->snapshot, err);

    ASSERT(!v->has_thread && keep >= 1);
    if (rc < 0)
        return rc;
    v->state = s;
    v->keep = keep;
    rc = pthread_create(&v->thread, NULL, main_of_saver, v);
    if (rc != 0)
        return err_sys(err, rc, "starting the thread that writes checkpoints");
    v->has_thread = 1;
    return 0;
}

/* ---- the engine's side ---- */

static int is_saved(struct saver *v)
{
    int yes;

    pthread_mutex_lock(&v->lock);
    yes = (v->is_busy ? v->step : v->saved_step) == v->state->at.step;
    pthread_mutex_unlock(&v->lock);
    return yes;
}

static int saver_wait_idle(struct saver *v, struct err *err)
{
    int rc = 0;

    pthread_mutex_lock(&v->lock);
    while (v->is_busy && rc == 0) {
        if (v->hooks.canceled(v->hooks.arg))
            rc = err_set(err, ERR_CANCELED, "waiting for a checkpoint to be written was canceled");
        else
            pthread_cond_wait(&v->changed, &v->lock);
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

int saver_settle(struct saver *v, struct err *err)
{
    return v->has_borrowed ? saver_wait_idle(v, err) : 0;
}

int saver_wants(struct saver *v, int *wants, struct err *err)
{
    const int rc = saver_wait_idle(v, err);

    *wants = rc == 0 && !is_saved(v);
    return rc;
}

/* How a checkpoint begins. */
struct start {
    int n_ranks;
    int is_last;             /* 1: the state need not be copied */
    int is_beside;           /* 1: the thread copies what only an update changes */
    int is_awaited, is_held; /* as in struct saver */
    int64_t generation;      /* likewise */
};

/* Mark the checkpoint of the state's step as under way. */
static void set_busy(struct saver *v, const struct start *how, double exposed_s)
{
    pthread_mutex_lock(&v->lock);
    ASSERT(!v->is_busy && !v->is_held && !v->outcome); /* what was written before was taken */
    ASSERT(v->has_thread && !v->must_end);
    v->step = v->state->at.step;
    v->exposed_s = exposed_s;
    v->is_awaited = how->is_awaited;
    v->is_held = how->is_held;
    v->generation = how->generation;
    v->is_copying = how->is_beside;
    v->is_busy = 1;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
}

/* Have the state, or a copy of it, written.  Nothing is under way.  since_ns: the time at which
 * training stopped for this checkpoint. */
static int saver_start(struct saver *v, const struct start *how, int64_t since_ns, struct err *err)
{
    int rc;

    ASSERT(!saver_under_way(v, NULL, NULL)); /* the snapshot is the engine's */
    v->start_ns = clock_mono_ns();
    v->has_borrowed = how->is_last || snapshot_borrows_frozen(v->state);
    rc = how->is_last     ? snapshot_borrow(v->snapshot, v->state, how->n_ranks, err)
         : how->is_beside ? snapshot_take_first(v->snapshot, v->state, how->n_ranks, err)
                          : snapshot_take(v->snapshot, v->state, how->n_ranks, err);
    if (rc < 0)
        return err_wrap(err, "checkpoint of step %lld", (long long)v->state->at.step);
    set_busy(v, how, clock_since_s(since_ns));
    return 0;
}

void saver_hold(struct saver *v, int is_awaited, int64_t generation)
{
    v->start_ns = clock_mono_ns();
    v->has_borrowed = 0;
    set_busy(v, &(struct start){.is_awaited = is_awaited, .is_held = 1, .generation = generation},
             0);
}

void saver_deliver(struct saver *v, char *path, char *error, double exposed_s)
{
    struct report *r = report_of(v, v->step, exposed_s);

    r->checkpoint.path = path;
    set_error(v, r, error);
    pthread_mutex_lock(&v->lock);
    ASSERT(v->is_held);
    hand_in(v, r);
    pthread_mutex_unlock(&v->lock);
}

static int saver_begin_as(struct saver *v, const struct start *how, struct err *err)
{
    int64_t since_ns = clock_mono_ns();
    int rc = is_saved(v) ? 0 : saver_wait_idle(v, err);

    if (rc == 0 && !is_saved(v))
        rc = saver_start(v, how, since_ns, err);
    return rc;
}

int saver_begin(struct saver *v, int n_ranks, struct err *err)
{
    return saver_begin_as(v, &(struct start){.n_ranks = n_ranks}, err);
}

int saver_begin_beside(struct saver *v, int n_ranks, struct err *err)
{
    return saver_begin_as(v, &(struct start){.n_ranks = n_ranks, .is_beside = 1}, err);
}

void saver_copied(struct saver *v)
{
    pthread_mutex_lock(&v->lock);
    v->wait_ns = v->is_copying ? clock_mono_ns() : 0;
    while (v->is_copying)
        pthread_cond_wait(&v->changed, &v->lock);
    v->wait_ns = 0;
    pthread_mutex_unlock(&v->lock);
}

int saver_begin_last(struct saver *v, int n_ranks, struct err *err)
{
    return saver_begin_as(v, &(struct start){.n_ranks = n_ranks, .is_last = 1}, err);
}

/* The wait for the outcome was broken off, so it goes to the hook: from here if it is known
 * already, else from the saver's thread. */
void saver_disown(struct saver *v)
{
    struct report *r;

    pthread_mutex_lock(&v->lock);
    v->is_awaited = 0;
    r = v->outcome;
    v->outcome = NULL;
    pthread_mutex_unlock(&v->lock);
    if (r && (r->checkpoint.path || r->checkpoint.error))
        v->hooks.report(v->hooks.arg, r);
    else if (r)
        report_free(r);
}

static void take_outcome(struct saver *v, int64_t since_ns, struct report *r)
{
    struct report *own;

    pthread_mutex_lock(&v->lock);
    own = v->outcome;
    v->outcome = NULL;
    ASSERT(own && v->is_awaited && !v->is_busy);
    ASSERT(own->checkpoint.step == v->step);
    pthread_mutex_unlock(&v->lock);
    r->checkpoint = own->checkpoint;
    r->checkpoint.is_unasked = 0;
    r->checkpoint.exposed_seconds = clock_since_s(since_ns);
    own->checkpoint.path = own->checkpoint.error = NULL;
    report_free(own);
}

int saver_await(struct saver *v, int64_t since_ns, struct report *r, struct err *err)
{
    const int rc = saver_wait_idle(v, err);

    if (rc < 0)
        saver_disown(v);
    else
        take_outcome(v, since_ns, r);
    return rc;
}

int saver_save(struct saver *v, int n_ranks, struct report *r, struct err *err)
{
    int64_t since_ns = clock_mono_ns();
    int rc = saver_wait_idle(v, err);

    if (rc < 0 || is_saved(v))
        return rc;
    rc = saver_start(v, &(struct start){.n_ranks = n_ranks, .is_last = 1, .is_awaited = 1},
                     since_ns, err);
    return rc < 0 ? rc : saver_await(v, since_ns, r, err);
}

void saver_finish(struct saver *v)
{
    pthread_mutex_lock(&v->lock);
    while (v->is_busy)
        pthread_cond_wait(&v->changed, &v->lock);
    pthread_mutex_unlock(&v->lock);
}

int saver_under_way(struct saver *v, int64_t *step, double *seconds)
{
    int yes;

    pthread_mutex_lock(&v->lock);
    yes = v->is_busy;
    if (yes && step)
        *step = v->step;
    if (yes && seconds)
        *seconds = clock_since_s(v->start_ns);
    pthread_mutex_unlock(&v->lock);
    return yes;
}

void saver_interrupt(struct saver *v)
{
    pthread_mutex_lock(&v->lock);
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->lock);
}
