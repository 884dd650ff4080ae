/* Ranks as threads: they meet under one lock, then each reduces its share of the elements.
 *
 * A collective has two meetings.  In the first each rank shows its job, and whoever leaves instead
 * makes the others fail.  From there on nothing can fail or block: each rank does its share, which
 * touches all ranks' memory, and the second meeting makes sure that all have. */
#include "coll/local.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/host.h"
#include "coll/reduce.h"

struct seat {
    bool taken;
    bool left;                  /* aborted, failed or freed: whoever needs it fails */
    const struct coll_job *job; /* shown at the first meeting */
    struct coll_fault fault;
    int64_t n_calls; /* collectives begun, for the fault */
};

struct coll_group {
    int size;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t moved;
    int64_t meeting; /* of those that took place */
    int present;     /* at the coming one */
    struct seat seats[];
};

struct local {
    struct coll_host host; /* first */
    struct coll_group *group;
};

static struct local *of_host(struct coll_host *h) { return container_of(h, struct local, host); }

struct coll_group *coll_group_new(int size)
{
    ASSERT(size > 0);
    struct coll_group *g = xcalloc(1, sizeof *g + (size_t)size * sizeof g->seats[0]);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&g->lock, NULL);
    g->size = size;
    return g;
}

void coll_group_free(struct coll_group *g)
{
    if (!g)
        return;
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

void coll_local_inject(struct coll_group *g, int rank, struct coll_fault fault)
{
    ASSERT(0 <= rank && rank < g->size);
    pthread_mutex_lock(&g->lock);
    g->seats[rank].fault = fault;
    pthread_mutex_unlock(&g->lock);
}

static void leave(struct coll_group *g, int rank)
{
    g->seats[rank].left = true;
    pthread_cond_broadcast(&g->moved);
}

/* Sleep until `until` or until we have left.  With the lock. */
static void delay(struct coll_group *g, int rank, int64_t until)
{
    struct timespec t = {until / 1000000000, until % 1000000000};
    while (!g->seats[rank].left && clock_mono_ns() < until)
        pthread_cond_timedwait(&g->moved, &g->lock, &t);
}

static int suffer_fault(struct coll_group *g, int rank, struct err *err)
{
    struct seat *s = &g->seats[rank];
    s->n_calls++;
    if (s->fault.at_ticket != s->n_calls)
        return 0;
    delay(g, rank, clock_mono_ns() + s->fault.delay_ms * 1000000);
    if (!s->fault.fail)
        return 0;
    leave(g, rank);
    return err_set(err, s->fault.fail, "injected at collective %lld of rank %d",
                   (long long)s->n_calls, rank);
}

static int who_left(struct coll_group *g)
{
    for (int r = 0; r < g->size; r++)
        if (g->seats[r].left)
            return r;
    return -1;
}

/* The first meeting, which fails if anyone leaves before all are there.  With the lock. */
static int gather(struct coll_group *g, int rank, struct err *err)
{
    int64_t meeting = g->meeting;
    if (who_left(g) < 0 && ++g->present == g->size) {
        g->present = 0;
        g->meeting++;
        pthread_cond_broadcast(&g->moved);
    }
    while (g->meeting == meeting) {
        if (g->seats[rank].left)
            return host_canceled(err);
        if (who_left(g) >= 0)
            return err_set(err, ERR_PEER, "lost rank %d", who_left(g));
        pthread_cond_wait(&g->moved, &g->lock);
    }
    return 0;
}

/* The second: everyone who was at the first is on the way. */
static void disperse(struct coll_group *g)
{
    int64_t meeting = g->meeting;
    if (++g->present == g->size) {
        g->present = 0;
        g->meeting++;
        pthread_cond_broadcast(&g->moved);
    }
    while (g->meeting == meeting)
        pthread_cond_wait(&g->moved, &g->lock);
}

static int agree(struct coll_group *g, struct err *err)
{
    const struct coll_job *a = g->seats[0].job;
    for (int r = 1; r < g->size; r++) {
        const struct coll_job *b = g->seats[r].job;
        if (a->what != b->what || a->n_bytes != b->n_bytes || a->dtype != b->dtype ||
            a->red != b->red || a->root != b->root)
            return err_set(err, ERR_ARG,
                           "ranks disagree: rank 0 has collective %d of %zu bytes (tag %lld), "
                           "rank %d has %d of %zu (tag %lld)",
                           (int)a->what, a->n_bytes, (long long)a->tag, r, (int)b->what, b->n_bytes,
                           (long long)b->tag);
    }
    return 0;
}

/* Elements [from, to) of all ranks, in rank order, by blocks that fit the sum. */
static void reduce_share(struct coll_group *g, const struct coll_job *job, int64_t from, int64_t to)
{
    enum { BLOCK = 512 };
    double sum[BLOCK];
    size_t elem = dtype_size(job->dtype);
    for (int64_t at = from; at < to; at += BLOCK) {
        int64_t n = min_i64(BLOCK, to - at);
        size_t offset = (size_t)at * elem, n_bytes = (size_t)n * elem;
        memcpy(sum, (uint8_t *)g->seats[0].job->x + offset, n_bytes);
        for (int r = 1; r < g->size; r++)
            coll_reduce(sum, sum, (uint8_t *)g->seats[r].job->x + offset, n, job->dtype, job->red);
        for (int r = 0; r < g->size; r++)
            memcpy((uint8_t *)g->seats[r].job->x + offset, sum, n_bytes);
    }
}

static void do_share(struct coll_group *g, int rank, const struct coll_job *job)
{
    if (job->what == COLL_ALLREDUCE) {
        reduce_share(g, job, job->n * rank / g->size, job->n * (rank + 1) / g->size);
    } else if (job->what == COLL_BROADCAST && rank != job->root && job->n_bytes) {
        memcpy(job->x, g->seats[job->root].job->x, job->n_bytes);
    } else if (job->what == COLL_ALLGATHER && job->n_bytes) {
        for (int r = 0; r < g->size; r++)
            memcpy((uint8_t *)job->x + (size_t)r * job->n_bytes, g->seats[r].job->mine,
                   job->n_bytes);
    }
}

static int local_run(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    struct coll_group *g = of_host(h)->group;
    int rank = h->base.rank;
    pthread_mutex_lock(&g->lock);
    g->seats[rank].job = job;
    int rc = suffer_fault(g, rank, err);
    if (rc == 0)
        rc = gather(g, rank, err);
    if (rc == 0) {
        rc = agree(g, err); /* the same on all */
        pthread_mutex_unlock(&g->lock);
        if (rc == 0)
            do_share(g, rank, job);
        pthread_mutex_lock(&g->lock);
        disperse(g);
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

static void local_interrupt(struct coll_host *h)
{
    struct coll_group *g = of_host(h)->group;
    pthread_mutex_lock(&g->lock);
    leave(g, h->base.rank);
    pthread_mutex_unlock(&g->lock);
}

static void local_free(struct coll_host *h)
{
    local_interrupt(h);
    free(of_host(h));
}

static const struct host_ops local_ops = {"local", local_run, local_interrupt, local_free};

static int take_seat(struct coll_group *g, int rank, struct err *err)
{
    if (rank < 0 || rank >= g->size)
        return err_set(err, ERR_ARG, "rank %d of %d", rank, g->size);
    pthread_mutex_lock(&g->lock);
    bool taken = g->seats[rank].taken;
    g->seats[rank].taken = true;
    pthread_mutex_unlock(&g->lock);
    return taken ? err_set(err, ERR_ARG, "rank %d of this group was taken before", rank) : 0;
}

int coll_new_local(struct coll_group *g, int rank, struct coll **out, struct err *err)
{
    int rc = take_seat(g, rank, err);
    if (rc < 0)
        return rc;
    struct local *l = xcalloc(1, sizeof *l);
    l->group = g;
    host_init(&l->host, &local_ops, rank, g->size);
    rc = host_start(&l->host, err);
    if (rc < 0) {
        coll_free(&l->host.base);
        return rc;
    }
    *out = &l->host.base;
    return 0;
}
