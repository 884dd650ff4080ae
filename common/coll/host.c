/* coll/host - queues of collectives in CPU memory, and the threads that run them.
 *
 * host.h says how a kind of coll uses these.  The engine's thread adds to a lane's queue, and the
 * lane's comm thread takes from it; both hold the lock then. */
#include "coll/host.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"

int host_canceled(struct err *err)
{
    return err_set(err, ERR_CANCELED, "collectives were canceled (coll_abort)");
}

/* ---- the comm threads ---- */

static void host_fail(struct coll_host *h, const struct err *cause)
{
    if (!h->has_failed)
        h->cause = *cause;
    h->has_failed = 1;
}

/* Run one collective.  The lock is held, and released while the collective runs. */
static int run_unlocked(struct coll_host *h, const struct coll_job *job)
{
    struct err err;
    int rc;

    if (h->has_failed)
        return h->cause.code;
    if (h->aborted) {
        rc = host_canceled(&err);
    } else {
        pthread_mutex_unlock(&h->lock);
        rc = h->ops->run(h, job, &err);
        pthread_mutex_lock(&h->lock);
        if (rc < 0 && h->aborted) /* the abort is the cause, whatever error it showed as */
            rc = host_canceled(&err);
    }
    if (rc < 0)
        host_fail(h, &err);
    return rc;
}

/* Run the collective that follows `completed`.  The lock is held. */
static void run_next(struct host_lane *l)
{
    struct coll_host *h = l->host;
    const int64_t number = l->completed + 1;
    const struct coll_job job = l->jobs[number % COLL_RING];
    const int64_t t0 = job.has_begun ? job.begun_ns : clock_mono_ns();
    int64_t t1;
    int rc;

    if (!job.has_begun)
        coll_tell(&h->base, job.tag, COLL_BEGINS, t0);
    rc = run_unlocked(h, &job);
    t1 = clock_mono_ns();
    h->stats.busy_ns += t1 - t0;
    coll_tell(&h->base, job.tag, rc < 0 ? COLL_FAILS : COLL_ENDS, t1);
    if (rc == 0) {
        h->stats.n_calls++;
        h->stats.n_bytes += (int64_t)job.n_bytes;
    } else if (!l->failed) {
        l->failed = number;
    }
    l->completed = number;
    pthread_cond_broadcast(&l->done);
}

static void *comm_main(void *arg)
{
    struct host_lane *l = arg;
    struct coll_host *h = l->host;

    pthread_mutex_lock(&h->lock);
    for (;;) {
        if (l->completed < l->queued && !l->is_left)
            run_next(l);
        else if (h->stop)
            break;
        else
            pthread_cond_wait(&l->work, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* ---- the engine's side ---- */

/* Wait until collective `number` has ended, and add the time to the statistics (wait_ns). */
static void host_wait_for(struct host_lane *l, int64_t number)
{
    int64_t t0;

    if (l->completed >= number)
        return;
    t0 = clock_mono_ns();
    if (l->is_left) { /* it stays so until then, and the comm thread leaves it alone */
        run_next(l);
        l->is_left = 0;
    }
    while (l->completed < number)
        pthread_cond_wait(&l->done, &l->host->lock);
    l->host->stats.wait_ns += clock_mono_ns() - t0;
}

/* The work of a collective with one rank: copy the part that the rank gives itself. */
static void host_copy_own(const struct coll_job *job)
{
    struct coll_part own = {NULL, 0};

    if (job->what == COLL_ALLGATHER)
        own = (struct coll_part){(uint8_t *)job->mine, job->n_bytes};
    else if (job->what == COLL_ALL_TO_ALL)
        own = coll_part_to(job, 0);
    if (own.n_bytes)
        memcpy(job->what == COLL_ALLGATHER ? job->x : coll_part_from(job, 0).x, own.x, own.n_bytes);
}

static void complete_alone(struct host_lane *l, const struct coll_job *job)
{
    struct coll_host *h = l->host;
    const int64_t now = clock_mono_ns();

    host_copy_own(job);
    coll_tell(&h->base, job->tag, COLL_BEGINS, now);
    coll_tell(&h->base, job->tag, COLL_ENDS, now);
    l->completed = ++l->queued;
    h->stats.n_calls++;
    h->stats.n_bytes += (int64_t)job->n_bytes;
}

/* Have the comm thread run what is queued, also what was left to the engine's thread. */
static void host_call_thread(struct host_lane *l)
{
    l->is_left = 0;
    pthread_cond_signal(&l->work);
}

/* 1: the collective may be left to the engine's thread, if it can be begun: none is outstanding
 * before it, and nothing but a wait asks for its end.  (A watcher of bulk collectives may.) */
static int may_be_left(const struct host_lane *l, const struct coll_job *job)
{
    return l->host->ops->begin && l->completed == l->queued &&
           (job->channel == COLL_URGENT || job->tag == COLL_TAG_NONE);
}

/* Begin the collective, if the kind can.  The lock is held, and released meanwhile. */
static void host_begin(struct host_lane *l, struct coll_job *job)
{
    struct coll_host *h = l->host;
    struct err err;
    int rc;

    job->begun_ns = clock_mono_ns();
    pthread_mutex_unlock(&h->lock);
    rc = h->ops->begin(h, job, &err);
    pthread_mutex_lock(&h->lock);
    if (rc < 0 && h->aborted)
        rc = host_canceled(&err);
    if (rc < 0)
        host_fail(h, &err);
    job->has_begun = rc > 0;
    if (job->has_begun) {
        coll_tell(&h->base, job->tag, COLL_BEGINS, job->begun_ns);
        h->stats.wait_ns += clock_mono_ns() - job->begun_ns;
    }
}

static int queue_locked(struct host_lane *l, struct coll_job *job, struct err *err)
{
    struct coll_host *h = l->host;

    if (h->aborted && !h->has_failed)
        return host_canceled(err);
    if (!h->started)
        return err_set(err, ERR_ARG, "a collective before the ranks are connected");
    if (l->has_thread)
        host_wait_for(l, l->queued + 1 - COLL_RING);
    if (h->has_failed) {
        *err = h->cause;
        return err->code;
    }
    if (!l->has_thread) {
        complete_alone(l, job);
        return 0;
    }
    if (may_be_left(l, job))
        host_begin(l, job);
    l->queued++;
    l->jobs[l->queued % COLL_RING] = *job;
    if (job->has_begun)
        l->is_left = 1;
    else
        host_call_thread(l);
    return 0;
}

static int64_t host_queue(struct coll *c, const struct coll_job *job, struct err *err)
{
    struct coll_host *h = (struct coll_host *)c;
    struct host_lane *l = &h->lane[job->channel];
    struct coll_job mine = *job;
    int64_t ticket;

    pthread_mutex_lock(&h->lock);
    ticket = queue_locked(l, &mine, err);
    if (ticket == 0)
        ticket = coll_ticket(job->channel, l->queued);
    pthread_mutex_unlock(&h->lock);
    return ticket;
}

static int host_wait(struct coll *c, int64_t ticket, struct err *err)
{
    struct coll_host *h = (struct coll_host *)c;
    struct host_lane *l = &h->lane[coll_channel_of(ticket)];
    const int64_t number = coll_number_of(ticket);
    int rc = 0;

    pthread_mutex_lock(&h->lock);
    if (number > l->queued) {
        rc = err_set(err, ERR_ARG, "waiting for collective %lld, the last one queued is %lld",
                     (long long)number, (long long)l->queued);
    } else {
        host_wait_for(l, number);
        if (l->failed && number >= l->failed) {
            *err = h->cause;
            rc = err->code;
        }
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void wake_all(struct coll_host *h)
{
    for (int ch = 0; ch < COLL_CHANNELS; ch++)
        pthread_cond_signal(&h->lane[ch].work);
}

static void host_abort(struct coll *c)
{
    struct coll_host *h = (struct coll_host *)c;

    pthread_mutex_lock(&h->lock);
    h->aborted = 1;
    wake_all(h);
    pthread_mutex_unlock(&h->lock);
    h->ops->interrupt(h);
}

static void host_stats(struct coll *c, struct coll_stats *out)
{
    struct coll_host *h = (struct coll_host *)c;

    pthread_mutex_lock(&h->lock);
    *out = h->stats;
    pthread_mutex_unlock(&h->lock);
    if (h->ops->stats)
        h->ops->stats(h, out);
}

/* ---- life ---- */

static void coll_host_free(struct coll *c)
{
    struct coll_host *h = (struct coll_host *)c;
    int pending = 0;

    pthread_mutex_lock(&h->lock);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        pending |= h->lane[ch].completed < h->lane[ch].queued;
        h->lane[ch].is_left = 0;
    }
    h->stop = 1;
    wake_all(h);
    pthread_mutex_unlock(&h->lock);
    if (pending)
        host_abort(c);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        if (h->lane[ch].has_thread)
            pthread_join(h->lane[ch].thread, NULL);
        pthread_cond_destroy(&h->lane[ch].work);
        pthread_cond_destroy(&h->lane[ch].done);
    }
    pthread_mutex_destroy(&h->lock);
    h->ops->free(h);
}

static const struct coll_ops host_coll_ops = {
    .queue = host_queue,
    .wait = host_wait,
    .abort = host_abort,
    .free = coll_host_free,
    .stats = host_stats,
};

void host_init(struct coll_host *h, const struct host_ops *ops, int rank, int size)
{
    coll_init(&h->base, &host_coll_ops, ops->name, rank, size);
    h->base.dtypes |= 1u << DTYPE_BF16 | 1u << DTYPE_F16; /* coll/reduce.h has them */
    ASSERT(ops->run && ops->interrupt && ops->free);
    h->ops = ops;
    pthread_mutex_init(&h->lock, NULL);
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        h->lane[ch].host = h;
        pthread_cond_init(&h->lane[ch].work, NULL);
        pthread_cond_init(&h->lane[ch].done, NULL);
    }
}

/* Start a comm thread.  It takes no signals, so a write to a lost peer fails instead of raising
 * SIGPIPE. */
static int start_lane(struct host_lane *l, struct err *err)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&l->thread, NULL, comm_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return err_sys(err, rc, "starting a comm thread");
    l->has_thread = 1;
    return 0;
}

int host_start(struct coll_host *h, struct err *err)
{
    int rc = 0;

    for (int ch = 0; ch < COLL_CHANNELS && h->base.size > 1 && rc == 0; ch++)
        rc = start_lane(&h->lane[ch], err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    h->started = 1;
    pthread_mutex_unlock(&h->lock);
    return 0;
}

int host_aborted(struct coll_host *h)
{
    int aborted;

    pthread_mutex_lock(&h->lock);
    aborted = h->aborted;
    pthread_mutex_unlock(&h->lock);
    return aborted;
}
