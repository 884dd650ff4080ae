/* exchange - the one place where collectives of a step meet the record of collectives (the ring),
 * faults on purpose, and coll/. */
#include "strategy/exchange.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "session/ring.h"

struct pending {
    int64_t ticket; /* 0: none */
    const char *what;
};

struct exchange {
    struct exchange_options o;
    struct coll *coll; /* NULL: no formation */
    int64_t step;
    enum phase phase;
    struct pending *pending; /* [n_buckets] */
    struct handed handed;
    struct exchange_log *log; /* or NULL */
};

struct exchange *exchange_new(const struct exchange_options *o)
{
    struct exchange *x = xcalloc(1, sizeof *x);

    x->o = *o;
    x->pending = xcalloc((size_t)o->n_buckets, sizeof *x->pending);
    return x;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    free(x->pending);
    free(x);
}

/* Called by the thread of the collective's channel. */
static void follow(void *arg, int64_t id, enum coll_moment moment, int64_t now_ns)
{
    struct exchange *x = arg;

    if (moment == COLL_BEGINS)
        ring_run(x->o.ring, id, now_ns);
    else
        ring_end(x->o.ring, id, now_ns, moment == COLL_FAILS);
}

void exchange_join(struct exchange *x, struct coll *c)
{
    x->coll = c;
    coll_watch(c, follow, x);
}

void exchange_leave(struct exchange *x) { x->coll = NULL; }

struct coll *exchange_coll(struct exchange *x) { return x->coll; }

/* ---- a step ---- */

void exchange_begin(struct exchange *x, int64_t step)
{
    x->step = step;
    x->handed = (struct handed){0, 0};
    for (int b = 0; b < x->o.n_buckets; b++)
        x->pending[b].ticket = 0; /* left by a step that failed */
}

struct handed exchange_end(struct exchange *x) { return x->handed; }

void exchange_enter(struct exchange *x, enum phase phase) { x->phase = phase; }

static void at(struct exchange *x, int64_t bucket)
{
    x->o.hooks.at(x->o.hooks.arg, PHASE_REDUCE, bucket);
}

/* ---- the record of collectives ---- */

static int64_t enter(struct exchange *x, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    const int64_t id = ring_hand(x->o.ring, x->step, bucket, n_bytes, phase);

    if (x->o.is_device) {
        x->handed.first = x->handed.first ? x->handed.first : id;
        x->handed.last = id;
    }
    return id;
}

static void remember(struct exchange_log *log, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    if (log->n == log->cap) {
        log->cap = log->cap ? 2 * log->cap : 16;
        log->item = xrealloc(log->item, sizeof *log->item * (size_t)log->cap);
    }
    log->item[log->n].bucket = bucket;
    log->item[log->n].n_bytes = n_bytes;
    log->item[log->n++].phase = phase;
}

/* Enter the next collective in the record, and return its tag. */
static int64_t hand_over(struct exchange *x, int64_t bucket, int64_t n_bytes, enum phase phase)
{
    const int64_t id = enter(x, bucket, n_bytes, phase);

    if (x->log)
        remember(x->log, bucket, n_bytes, phase);
    return x->o.is_device ? COLL_TAG_NONE : id;
}

void exchange_log_fini(struct exchange_log *log)
{
    free(log->item);
    *log = (struct exchange_log){0};
}

void exchange_keep(struct exchange *x, struct exchange_log *log)
{
    x->log = log;
    if (log)
        log->n = 0;
}

void exchange_repeat(struct exchange *x, const struct exchange_log *log)
{
    for (int i = 0; i < log->n; i++)
        (void)enter(x, log->item[i].bucket, log->item[i].n_bytes, log->item[i].phase);
}

void exchange_ran(struct exchange *x, struct handed h)
{
    const int64_t now_ns = clock_mono_ns();

    for (int64_t id = h.first; id && id <= h.last; id++)
        ring_run(x->o.ring, id, now_ns);
}

void exchange_ended(struct exchange *x, struct handed h, int is_failed)
{
    const int64_t now_ns = clock_mono_ns();

    for (int64_t id = h.first; id && id <= h.last; id++)
        ring_end(x->o.ring, id, now_ns, is_failed);
}

/* ---- collectives ---- */

static int is_free(const struct exchange *x, int bucket)
{
    return bucket >= 0 && bucket < x->o.n_buckets && !x->pending[bucket].ticket;
}

struct kind {
    const char *name;
    int64_t (*start)(struct coll *c, enum coll_channel ch, void *x, int64_t n, enum dtype dtype,
                     int64_t tag, struct err *err);
};

static int start(struct exchange *x, const struct kind *k, int bucket, void *p, int64_t n,
                 enum dtype dtype, struct err *err)
{
    int64_t tag, ticket;

    ASSERT(is_free(x, bucket));
    if (x->o.hooks.is_left_out(x->o.hooks.arg, bucket))
        return 0;
    tag = hand_over(x, bucket, n * (int64_t)dtype_size(dtype), x->phase);
    ticket = k->start(x->coll, COLL_BULK, p, n, dtype, tag, err);
    x->pending[bucket] = (struct pending){max_i64(ticket, 0), k->name};
    return ticket < 0 ? (int)ticket : 0;
}

int exchange_allreduce(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                       struct err *err)
{
    return start(x, &(struct kind){"all-reduce", coll_allreduce}, bucket, p, n, dtype, err);
}

int exchange_reduce_scatter(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                            struct err *err)
{
    return start(x, &(struct kind){"reduce-scatter", coll_reduce_scatter}, bucket, p, n, dtype,
                 err);
}

int exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                             struct err *err)
{
    return start(x, &(struct kind){"all-gather", coll_allgather_spans}, bucket, p, n, dtype, err);
}

int exchange_wait(struct exchange *x, int bucket, struct err *err)
{
    const struct pending p = x->pending[bucket];

    at(x, bucket);
    x->pending[bucket].ticket = 0;
    return p.ticket && coll_wait(x->coll, p.ticket, err) < 0
               ? err_wrap(err, "%s of bucket %d", p.what, bucket)
               : 0;
}

int exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase, struct err *err)
{
    int64_t ticket;

    at(x, -1);
    ticket = coll_allreduce(x->coll, COLL_URGENT, p, n, DTYPE_F64,
                            hand_over(x, RING_SYNC, n * (int64_t)sizeof *p, phase), err);
    return ticket < 0 ? (int)ticket : coll_wait(x->coll, ticket, err);
}
