/* local - ranks as threads: on each channel they meet under one lock, then each does its part.
 *
 * A collective of all ranks has two meetings.  In the first each rank shows its job.  A rank that
 * leaves instead of coming makes the others fail.  After the first meeting nothing can fail or
 * block: each rank does its part, which reads and writes all ranks' memory.  The second meeting
 * makes sure that all have done so.
 *
 * Messages need no meeting: the sender shows its memory as a letter to the receiver, which copies
 * it and takes the letter away. */
#include "local.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/util.h"
#include "coll/host.h"
#include "coll/reduce.h"

enum letter_state { NO_LETTER, SHOWN, REFUSED };

struct letter {
    struct coll_part text;
    enum letter_state state;
};

struct seat {
    int taken;
    int left; /* aborted, failed or freed: a rank that needs this one fails */
    struct coll_fault fault;
    int64_t n_calls[COLL_CHANNELS]; /* collectives begun, for the fault */
};

/* The meeting point of the ranks on one channel. */
struct room {
    int64_t meeting;             /* how many meetings took place */
    int present;                 /* how many ranks have arrived at the next one */
    const struct coll_job **job; /* [size]: shown at the first meeting */
    struct letter *letter;       /* [size * size]: from rank a to rank b at a * size + b */
};

struct coll_group {
    int size;
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t moved;
    struct room room[COLL_CHANNELS];
    struct seat seats[];
};

struct local {
    struct coll_host host; /* first */
    struct coll_group *group;
};

/* One rank in one collective. */
struct visit {
    struct coll_group *g;
    struct room *room;
    int rank;
};

static struct local *of_host(struct coll_host *h) { return container_of(h, struct local, host); }

struct coll_group *coll_group_new(int size)
{
    ASSERT(size > 0);
    struct coll_group *g = xcalloc(1, sizeof *g + (size_t)size * sizeof g->seats[0]);
    cond_init(&g->moved);
    pthread_mutex_init(&g->lock, NULL);
    g->size = size;
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        g->room[ch].job = xcalloc((size_t)size, sizeof g->room[ch].job[0]);
        g->room[ch].letter = xcalloc((size_t)size * (size_t)size, sizeof g->room[ch].letter[0]);
    }
    return g;
}

void coll_group_free(struct coll_group *g)
{
    if (!g)
        return;
    for (int ch = 0; ch < COLL_CHANNELS; ch++) {
        free(g->room[ch].job);
        free(g->room[ch].letter);
    }
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
    g->seats[rank].left = 1;
    pthread_cond_broadcast(&g->moved);
}

/* Sleep until `until`, or until this rank has left.  The lock is held. */
static void delay(struct coll_group *g, int rank, int64_t until)
{
    while (!g->seats[rank].left && clock_mono_ns() < until)
        cond_wait_until(&g->moved, &g->lock, until);
}

static int is_at_fault(const struct visit *v, enum coll_channel ch)
{
    const struct seat *s = &v->g->seats[v->rank];

    return s->fault.channel == ch && s->fault.at_ticket == s->n_calls[ch];
}

static int suffer_fault(const struct visit *v, enum coll_channel ch, struct err *err)
{
    struct seat *s = &v->g->seats[v->rank];
    const int64_t n = ++s->n_calls[ch];

    if (!is_at_fault(v, ch))
        return 0;
    delay(v->g, v->rank, clock_mono_ns() + s->fault.delay_ms * 1000000);
    if (!s->fault.fail)
        return 0;
    leave(v->g, v->rank);
    return err_set(err, s->fault.fail, "injected at collective %lld of rank %d", (long long)n,
                   v->rank);
}

/* ---- collectives of all ranks ---- */

static int who_left(const struct coll_group *g)
{
    for (int r = 0; r < g->size; r++)
        if (g->seats[r].left)
            return r;
    return -1;
}

/* As a rank behind a slow link does: sleep, and fail if another rank has left before the end. */
static int suffer_lag(const struct visit *v, enum coll_channel ch, struct err *err)
{
    const int64_t lag_ms = v->g->seats[v->rank].fault.lag_ms;
    const int64_t until = clock_mono_ns() + lag_ms * 1000000;

    if (!lag_ms || !is_at_fault(v, ch))
        return 0;
    while (who_left(v->g) < 0 && clock_mono_ns() < until)
        cond_wait_until(&v->g->moved, &v->g->lock, until);
    return who_left(v->g) < 0 ? 0 : err_set(err, ERR_PEER, "lost rank %d", who_left(v->g));
}

/* Arrive; the last rank to do so opens the meeting. */
static void arrive(const struct visit *v)
{
    if (++v->room->present < v->g->size)
        return;
    v->room->present = 0;
    v->room->meeting++;
    pthread_cond_broadcast(&v->g->moved);
}

/* The first meeting, which fails if any rank leaves before all are there.  The lock is held. */
static int gather(const struct visit *v, struct err *err)
{
    struct coll_group *g = v->g;
    const int64_t meeting = v->room->meeting;

    if (who_left(g) < 0)
        arrive(v);
    while (v->room->meeting == meeting) {
        if (g->seats[v->rank].left)
            return host_canceled(err);
        if (who_left(g) >= 0)
            return err_set(err, ERR_PEER, "lost rank %d", who_left(g));
        pthread_cond_wait(&g->moved, &g->lock);
    }
    return 0;
}

/* The second meeting.  It cannot fail, because all ranks that were at the first one will come. */
static void disperse(const struct visit *v)
{
    const int64_t meeting = v->room->meeting;

    arrive(v);
    while (v->room->meeting == meeting)
        pthread_cond_wait(&v->g->moved, &v->g->lock);
}

/* Every rank must take from every rank as many bytes as that rank gives it. */
static int parts_agree(const struct visit *v, struct err *err)
{
    for (int a = 0; a < v->g->size; a++)
        for (int b = 0; b < v->g->size; b++) {
            const size_t given = coll_part_to(v->room->job[a], b).n_bytes;
            const size_t taken = coll_part_from(v->room->job[b], a).n_bytes;

            if (given != taken)
                return err_set(err, ERR_ARG,
                               "ranks disagree: rank %d gives rank %d %zu bytes, which takes %zu",
                               a, b, given, taken);
        }
    return 0;
}

static int agree(const struct visit *v, struct err *err)
{
    const struct coll_job *a = v->room->job[0];

    for (int r = 1; r < v->g->size; r++) {
        const struct coll_job *b = v->room->job[r];
        const int same_size = a->what == COLL_ALL_TO_ALL || a->n_bytes == b->n_bytes;

        if (a->what != b->what || !same_size || a->dtype != b->dtype || a->root != b->root)
            return err_set(err, ERR_ARG,
                           "ranks disagree: rank 0 has collective %d of %zu bytes (tag %lld), "
                           "rank %d has %d of %zu (tag %lld)",
                           (int)a->what, a->n_bytes, (long long)a->tag, r, (int)b->what, b->n_bytes,
                           (long long)b->tag);
    }
    return a->what == COLL_ALL_TO_ALL ? parts_agree(v, err) : 0;
}

/* Sum a span of all ranks' x, in rank order, by blocks that fit `sum`.  The result goes to rank
 * `to`, or to all if `to` is -1. */
static void sum_span(const struct visit *v, const struct coll_job *job, struct coll_span span,
                     int to)
{
    enum { BLOCK = 512 };
    const struct coll_job **all = v->room->job;
    const size_t elem = dtype_size(job->dtype);
    double sum[BLOCK];

    for (int64_t at = span.at; at < span.at + span.n; at += BLOCK) {
        const int64_t n = min_i64(BLOCK, span.at + span.n - at);
        const size_t offset = (size_t)at * elem, n_bytes = (size_t)n * elem;

        memcpy(sum, (uint8_t *)all[0]->x + offset, n_bytes);
        for (int r = 1; r < v->g->size; r++)
            coll_sum(sum, sum, (uint8_t *)all[r]->x + offset, n, job->dtype);
        for (int r = 0; r < v->g->size; r++)
            if (to < 0 || r == to)
                memcpy((uint8_t *)all[r]->x + offset, sum, n_bytes);
    }
}

static void copy_part(struct coll_part to, struct coll_part from)
{
    if (from.n_bytes)
        memcpy(to.x, from.x, from.n_bytes);
}

static void do_part(const struct visit *v, const struct coll_job *job)
{
    const int size = v->g->size, rank = v->rank;
    const struct coll_span own = coll_span(job->n, size, rank);

    if (job->what == COLL_ALLREDUCE)
        sum_span(v, job, own, -1);
    else if (job->what == COLL_REDUCE_SCATTER)
        sum_span(v, job, own, rank);
    else if (job->what == COLL_BROADCAST && rank != job->root && job->n_bytes)
        memcpy(job->x, v->room->job[job->root]->x, job->n_bytes);
    for (int r = 0; r < size; r++) {
        const struct coll_job *theirs = v->room->job[r];

        if (job->what == COLL_ALLGATHER && job->n_bytes)
            memcpy((uint8_t *)job->x + (size_t)r * job->n_bytes, theirs->mine, job->n_bytes);
        else if (job->what == COLL_ALLGATHER_SPANS && r != rank)
            copy_part(coll_part_of(job, size, r), coll_part_of(theirs, size, r));
        else if (job->what == COLL_ALL_TO_ALL)
            copy_part(coll_part_from(job, r), coll_part_to(theirs, rank));
    }
}

static int meet(const struct visit *v, const struct coll_job *job, struct err *err)
{
    int rc;

    v->room->job[v->rank] = job;
    rc = gather(v, err);
    if (rc < 0)
        return rc;
    rc = agree(v, err); /* the same on all */
    pthread_mutex_unlock(&v->g->lock);
    if (rc == 0)
        do_part(v, job);
    pthread_mutex_lock(&v->g->lock);
    disperse(v);
    return rc == 0 ? suffer_lag(v, job->channel, err) : rc;
}

/* ---- messages ---- */

static struct letter *letter_of(const struct visit *v, int from, int to)
{
    return &v->room->letter[from * v->g->size + to];
}

/* Wait until the letter is no longer in `state`.  Fails if `peer` leaves. */
static int await_letter(const struct visit *v, const struct letter *l, enum letter_state state,
                        int peer, struct err *err)
{
    while (l->state == state) {
        if (v->g->seats[v->rank].left)
            return host_canceled(err);
        if (v->g->seats[peer].left)
            return err_set(err, ERR_PEER, "lost rank %d", peer);
        pthread_cond_wait(&v->g->moved, &v->g->lock);
    }
    return 0;
}

static int receive(const struct visit *v, const struct coll_job *job, struct err *err)
{
    const struct coll_part part = coll_part_from(job, job->from);
    struct letter *l = letter_of(v, job->from, v->rank);
    int rc = await_letter(v, l, NO_LETTER, job->from, err);

    if (rc < 0)
        return rc;
    if (l->text.n_bytes != part.n_bytes)
        rc = err_set(err, ERR_ARG, "ranks disagree: rank %d sends %zu bytes, rank %d takes %zu",
                     job->from, l->text.n_bytes, v->rank, part.n_bytes);
    else
        copy_part(part, l->text);
    l->state = rc < 0 ? REFUSED : NO_LETTER;
    pthread_cond_broadcast(&v->g->moved);
    return rc;
}

/* Wait until the receiver has taken the letter.  The letter is removed even after a failure,
 * because it shows memory that may be freed then. */
static int await_taken(const struct visit *v, const struct coll_job *job, struct err *err)
{
    struct letter *l = letter_of(v, v->rank, job->to);
    int rc = await_letter(v, l, SHOWN, job->to, err);

    if (rc == 0 && l->state == REFUSED)
        rc = err_set(err, ERR_ARG, "ranks disagree: rank %d takes no %zu bytes of rank %d", job->to,
                     l->text.n_bytes, v->rank);
    l->state = NO_LETTER;
    return rc;
}

static int exchange(const struct visit *v, const struct coll_job *job, struct err *err)
{
    int rc = 0;

    if (job->to >= 0) {
        *letter_of(v, v->rank, job->to) = (struct letter){coll_part_to(job, job->to), SHOWN};
        pthread_cond_broadcast(&v->g->moved);
    }
    if (job->from >= 0)
        rc = receive(v, job, err);
    if (job->to >= 0 && rc == 0)
        rc = await_taken(v, job, err);
    if (job->to >= 0 && rc < 0)
        letter_of(v, v->rank, job->to)->state = NO_LETTER;
    return rc;
}

static int local_run(struct coll_host *h, const struct coll_job *job, struct err *err)
{
    struct coll_group *g = of_host(h)->group;
    const struct visit v = {g, &g->room[job->channel], h->base.rank};
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = suffer_fault(&v, job->channel, err);
    if (rc == 0)
        rc = job->what == COLL_EXCHANGE ? exchange(&v, job, err) : meet(&v, job, err);
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

static const struct host_ops local_ops = {
    .name = "local", .run = local_run, .interrupt = local_interrupt, .free = local_free};

static int take_seat(struct coll_group *g, int rank, struct err *err)
{
    if (rank < 0 || rank >= g->size)
        return err_set(err, ERR_ARG, "rank %d of %d", rank, g->size);
    pthread_mutex_lock(&g->lock);
    int taken = g->seats[rank].taken;
    g->seats[rank].taken = 1;
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
