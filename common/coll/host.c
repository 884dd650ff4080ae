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

/* All tickets from `ticket` on have failed.  The first failure stays the cause. */
static void fail_from(struct coll_host *h, int64_t ticket, const struct err *cause)
{
    if (!h->failed) {
        h->failed = ticket;
        h->cause = *cause;
    }
}

/* The comm thread */

/* Run ticket completed+1.  Called with the lock, which is open while the collective runs. */
static void run_next(struct coll_host *h)
{
    int64_t ticket = h->completed + 1;
    struct coll_job job = h->jobs[ticket % COLL_RING];
    int64_t t0 = clock_mono_ns();
    h->head = (struct coll_head){ticket, job.tag, (int64_t)job.n_bytes, t0};
    struct err err;
    int rc = 0;
    coll_tell(&h->base, job.tag, COLL_BEGINS, t0);
    if (h->aborted)
        rc = host_canceled(&err);
    else if (!h->failed) {
        pthread_mutex_unlock(&h->lock);
        rc = h->ops->run(h, &job, &err);
        pthread_mutex_lock(&h->lock);
        if (rc < 0 && h->aborted) /* it failed because of the abort, whatever it saw of it */
            rc = host_canceled(&err);
    }
    if (rc < 0)
        fail_from(h, ticket, &err);
    int64_t t1 = clock_mono_ns();
    h->stats.busy_ns += t1 - t0;
    coll_tell(&h->base, job.tag, h->failed ? COLL_FAILS : COLL_ENDS, t1);
    if (!h->failed) {
        h->stats.n_calls++;
        h->stats.n_bytes += (int64_t)job.n_bytes;
    }
    h->completed = ticket;
    h->head = (struct coll_head){.tag = COLL_TAG_NONE, .since_ns = t1};
    pthread_cond_broadcast(&h->done);
}

static void *comm_main(void *arg)
{
    struct coll_host *h = arg;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        if (h->completed < h->queued)
            run_next(h);
        else if (h->stop)
            break;
        else
            pthread_cond_wait(&h->work, &h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* The engine's side */

/* Wait until `ticket` ended; what the caller loses here is the exposed time. */
static void wait_for(struct coll_host *h, int64_t ticket)
{
    if (h->completed >= ticket)
        return;
    int64_t t0 = clock_mono_ns();
    while (h->completed < ticket)
        pthread_cond_wait(&h->done, &h->lock);
    h->stats.wait_ns += clock_mono_ns() - t0;
}

/* With one rank, or once failed, nothing needs the thread. */
static void complete_alone(struct coll_host *h, const struct coll_job *job)
{
    if (job->what == COLL_ALLGATHER && job->n_bytes)
        memcpy(job->x, job->mine, job->n_bytes);
    int64_t now = clock_mono_ns();
    coll_tell(&h->base, job->tag, COLL_BEGINS, now);
    coll_tell(&h->base, job->tag, COLL_ENDS, now);
    h->completed = ++h->queued;
    h->stats.n_calls++;
    h->stats.n_bytes += (int64_t)job->n_bytes;
}

static int64_t queue_locked(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    if (h->aborted && !h->failed)
        return host_canceled(err);
    if (!h->started)
        return err_set(err, ERR_ARG, "a collective before the ranks are connected");
    if (h->threaded)
        wait_for(h, h->queued + 1 - COLL_RING);
    if (h->failed) {
        *err = h->cause;
        return err->code;
    }
    if (!h->threaded) {
        complete_alone(h, job);
        return h->queued;
    }
    h->queued++;
    h->jobs[h->queued % COLL_RING] = *job;
    pthread_cond_signal(&h->work);
    return h->queued;
}

static int64_t host_queue(struct coll *c, const struct coll_job *job, struct err *err)
{
    struct coll_host *h = (struct coll_host *)c;
    pthread_mutex_lock(&h->lock);
    int64_t ticket = queue_locked(h, job, err);
    pthread_mutex_unlock(&h->lock);
    return ticket;
}

static int host_wait(struct coll *c, int64_t ticket, struct err *err)
{
    struct coll_host *h = (struct coll_host *)c;
    int rc = 0;
    pthread_mutex_lock(&h->lock);
    if (ticket < 1 || ticket > h->queued) {
        rc = err_set(err, ERR_ARG, "waiting for ticket %lld, the last given out is %lld",
                     (long long)ticket, (long long)h->queued);
    } else {
        wait_for(h, ticket);
        if (h->failed && ticket >= h->failed) {
            *err = h->cause;
            rc = err->code;
        }
    }
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void host_abort(struct coll *c)
{
    struct coll_host *h = (struct coll_host *)c;
    pthread_mutex_lock(&h->lock);
    h->aborted = true;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->lock);
    h->ops->interrupt(h);
}

static void host_stats(struct coll *c, struct coll_stats *out)
{
    struct coll_host *h = (struct coll_host *)c;
    pthread_mutex_lock(&h->lock);
    *out = h->stats;
    pthread_mutex_unlock(&h->lock);
}

static void host_head(struct coll *c, struct coll_head *out)
{
    struct coll_host *h = (struct coll_host *)c;
    pthread_mutex_lock(&h->lock);
    *out = h->head;
    pthread_mutex_unlock(&h->lock);
}

static void host_free(struct coll *c)
{
    struct coll_host *h = (struct coll_host *)c;
    pthread_mutex_lock(&h->lock);
    bool pending = h->completed < h->queued;
    h->stop = true;
    pthread_cond_signal(&h->work);
    pthread_mutex_unlock(&h->lock);
    if (pending)
        host_abort(c);
    if (h->threaded)
        pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->work);
    pthread_cond_destroy(&h->done);
    pthread_mutex_destroy(&h->lock);
    h->ops->free(h);
}

static const struct coll_ops host_coll_ops = {
    .queue = host_queue,
    .wait = host_wait,
    .abort = host_abort,
    .free = host_free,
    .stats = host_stats,
    .head = host_head,
};

void host_init(struct coll_host *h, const struct host_ops *ops, int rank, int size)
{
    coll_init(&h->base, &host_coll_ops, ops->name, rank, size);
    h->base.dtypes |= 1u << DTYPE_BF16; /* coll/reduce.h has it */
    ASSERT(ops->run && ops->interrupt && ops->free);
    h->ops = ops;
    h->head = (struct coll_head){.tag = COLL_TAG_NONE, .since_ns = clock_mono_ns()};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->work, NULL);
    pthread_cond_init(&h->done, NULL);
}

/* The comm thread takes no signals: a write to a lost peer must fail, not raise SIGPIPE. */
int host_start(struct coll_host *h, struct err *err)
{
    int rc = 0;
    if (h->base.size > 1) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&h->thread, NULL, comm_main, h);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (rc)
        return err_sys(err, rc, "starting the comm thread");
    pthread_mutex_lock(&h->lock);
    h->threaded = h->base.size > 1;
    h->started = true;
    pthread_mutex_unlock(&h->lock);
    return 0;
}

bool host_aborted(struct coll_host *h)
{
    pthread_mutex_lock(&h->lock);
    bool aborted = h->aborted;
    pthread_mutex_unlock(&h->lock);
    return aborted;
}
