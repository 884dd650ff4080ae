/* exchange - starts collectives of coll/ for a strategy, and waits for them.
 *
 * This is the only place that enters a step's collectives into the record of collectives
 * (session/ring.h) and asks whether a fault on purpose leaves one out. */
#include "strategy/exchange.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/util.h"
#include "coll/device.h"
#include "op/control.h"
#include "session/ring.h"

struct pending {
    int64_t ticket;   /* of the bucket's newest collective, which ends last; 0: none */
    const char *what; /* its name, for an error message */
};

/* The tag of the sum that runs in parallel with the steps.  Any other tag is an entry's id in the
 * record. */
static const int64_t beside_tag = INT64_MAX;

struct exchange {
    struct exchange_options o;
    struct coll *coll; /* NULL: no formation */
    int64_t step;
    enum phase phase;
    struct pending *pending; /* [n_buckets + n_frozen] */
    struct pending control, beside;
    atomic_int has_beside_ended; /* set by the bulk channel's thread */
    struct handed handed;
    struct exchange_log *log; /* or NULL */
};

static int n_all(const struct exchange *x) { return x->o.n_buckets + x->o.n_frozen; }

struct exchange *exchange_new(const struct exchange_options *o)
{
    struct exchange *x = xcalloc(1, sizeof *x);

    x->o = *o;
    x->pending = xcalloc((size_t)n_all(x), sizeof *x->pending);
    return x;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    free(x->pending);
    free(x);
}

void exchange_recut(struct exchange *x, int n_buckets)
{
    for (int b = 0; b < n_all(x); b++)
        ASSERT(!x->coll || !x->pending[b].ticket);
    free(x->pending);
    x->pending = xcalloc((size_t)n_buckets, sizeof *x->pending);
    x->o.n_buckets = n_buckets;
    x->o.n_frozen = 0;
}

/* The exchange's function for coll_watch: the collective of tag `id` begins or ends.  It runs on
 * the thread of the collective's channel, or on the engine's if that ends the sum itself. */
static void exchange_follow(void *arg, int64_t id, enum coll_moment moment, int64_t now_ns)
{
    struct exchange *x = arg;

    if (id == beside_tag)
        atomic_store(&x->has_beside_ended, moment != COLL_BEGINS);
    else if (moment == COLL_BEGINS)
        ring_run(x->o.ring, id, now_ns);
    else
        ring_end(x->o.ring, id, now_ns, moment == COLL_FAILS);
}

void exchange_join(struct exchange *x, struct coll *c)
{
    ASSERT(c && !x->coll && !x->log);
    x->coll = c;
    for (int b = 0; b < n_all(x); b++)
        x->pending[b].ticket = 0; /* left by a step that failed */
    x->control.ticket = x->beside.ticket = 0;
    coll_watch(c, exchange_follow, x);
}

void exchange_leave(struct exchange *x) { x->coll = NULL; }

struct coll *exchange_coll(struct exchange *x) { return x->coll; }

/* ---- a step ---- */

void exchange_begin(struct exchange *x, int64_t step)
{
    ASSERT(step >= 0 && !x->control.ticket);
    x->step = step;
    x->handed = (struct handed){0, 0};
}

int64_t exchange_step(const struct exchange *x) { return x->step; }

struct handed exchange_end(struct exchange *x)
{
    ASSERT((x->handed.first == 0) == (x->handed.last == 0));
    ASSERT(x->handed.first <= x->handed.last);
    return x->handed;
}

void exchange_enter(struct exchange *x, enum phase phase) { x->phase = phase; }

/* 0 during a validation: the engine shows the validation as its phase, not the wait for a bucket,
 * and faults on purpose that concern buckets do not apply. */
static int is_in_step(const struct exchange *x) { return x->phase != PHASE_VALIDATE; }

static void exchange_at(struct exchange *x, int64_t bucket)
{
    if (is_in_step(x))
        x->o.hooks.at(x->o.hooks.arg, PHASE_REDUCE, bucket);
}

/* ---- the record of collectives ---- */

static int64_t exchange_enter_call(struct exchange *x, int64_t bucket, int64_t n_bytes,
                                   enum phase phase, enum ring_kind kind)
{
    const int64_t id = ring_hand(x->o.ring, x->step, bucket, n_bytes, phase, kind);

    if (x->o.is_device) {
        x->handed.first = x->handed.first ? x->handed.first : id;
        x->handed.last = id;
    }
    return id;
}

static void exchange_remember(struct exchange_log *log, int64_t bucket, int64_t n_bytes,
                              enum phase phase, enum ring_kind kind)
{
    if (log->n == log->cap) {
        log->cap = log->cap ? 2 * log->cap : 16;
        log->item = xrealloc(log->item, sizeof *log->item * (size_t)log->cap);
    }
    log->item[log->n].bucket = bucket;
    log->item[log->n].n_bytes = n_bytes;
    log->item[log->n].kind = kind;
    log->item[log->n++].phase = phase;
}

/* Enter the next collective in the record, and return its tag. */
static int64_t exchange_hand_over(struct exchange *x, int64_t bucket, int64_t n_bytes,
                                  enum phase phase, enum ring_kind kind)
{
    const int64_t id = exchange_enter_call(x, bucket, n_bytes, phase, kind);

    if (x->log)
        exchange_remember(x->log, bucket, n_bytes, phase, kind);
    return x->o.is_device ? COLL_TAG_NONE : id;
}

void exchange_log_fini(struct exchange_log *log)
{
    free(log->item);
    *log = (struct exchange_log){0};
}

void exchange_keep(struct exchange *x, struct exchange_log *log)
{
    ASSERT(!log || (x->o.is_device && !x->log)); /* one recording at a time */
    x->log = log;
    if (log)
        log->n = 0;
}

void exchange_repeat(struct exchange *x, const struct exchange_log *log)
{
    ASSERT(x->o.is_device && !x->log && log->n <= log->cap);
    for (int i = 0; i < log->n; i++)
        (void)exchange_enter_call(x, log->item[i].bucket, log->item[i].n_bytes, log->item[i].phase,
                                  log->item[i].kind);
}

void exchange_ran(struct exchange *x, struct handed h)
{
    const int64_t now_ns = clock_mono_ns();

    ASSERT((x->o.is_device || !h.last) && h.first <= h.last);
    for (int64_t id = h.first; id && id <= h.last; id++)
        ring_run(x->o.ring, id, now_ns);
}

void exchange_ended(struct exchange *x, struct handed h, int is_failed)
{
    const int64_t now_ns = clock_mono_ns();

    ASSERT((x->o.is_device || !h.last) && h.first <= h.last);
    for (int64_t id = h.first; id && id <= h.last; id++)
        ring_end(x->o.ring, id, now_ns, is_failed);
}

/* ---- collectives ---- */

struct kind {
    enum ring_kind kind;
    int64_t (*start)(struct coll *c, enum coll_channel ch, void *x, int64_t n, enum dtype dtype,
                     int64_t tag, struct err *err);
};

static int exchange_keep_copy(struct exchange *x, int bucket, int64_t ticket, enum ring_kind kind)
{
    if (ticket > 0)
        x->pending[bucket] = (struct pending){ticket, ring_kind_name(kind)};
    return ticket < 0 ? (int)ticket : 0;
}

/* Enter the bucket's collective, of n elements, in the record.  Returns 0 if a fault on purpose
 * leaves it out. */
static int enter_bucket(struct exchange *x, int bucket, int64_t n, enum dtype dtype,
                        enum ring_kind kind, int64_t *tag)
{
    ASSERT(x->coll && n >= 0);
    ASSERT(bucket >= 0 && bucket < n_all(x));
    if (is_in_step(x) && x->o.hooks.is_left_out(x->o.hooks.arg, bucket))
        return 0;
    *tag = exchange_hand_over(x, bucket, n * (int64_t)dtype_size(dtype), x->phase, kind);
    return 1;
}

static int exchange_start(struct exchange *x, const struct kind *k, int bucket, void *p, int64_t n,
                          enum dtype dtype, struct err *err)
{
    int64_t tag;

    if (!enter_bucket(x, bucket, n, dtype, k->kind, &tag))
        return 0;
    return exchange_keep_copy(x, bucket, k->start(x->coll, COLL_BULK, p, n, dtype, tag, err),
                              k->kind);
}

int exchange_allreduce(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                       struct err *err)
{
    return exchange_start(x, &(struct kind){RING_OF_ALLREDUCE, coll_allreduce}, bucket, p, n, dtype,
                          err);
}

int exchange_reduce_scatter(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                            struct err *err)
{
    return exchange_start(x, &(struct kind){RING_OF_REDUCE_SCATTER, coll_reduce_scatter}, bucket, p,
                          n, dtype, err);
}

int exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                             struct err *err)
{
    return exchange_start(x, &(struct kind){RING_OF_ALLGATHER, coll_allgather_spans}, bucket, p, n,
                          dtype, err);
}

int exchange_all_to_all(struct exchange *x, int bucket, struct coll_parts from,
                        struct coll_parts to, int64_t n, enum dtype dtype, struct err *err)
{
    int64_t tag;

    if (!enter_bucket(x, bucket, n, dtype, RING_OF_ALL_TO_ALL, &tag))
        return 0;
    return exchange_keep_copy(x, bucket,
                              coll_all_to_all(x->coll, COLL_BULK, from, to, dtype, tag, err),
                              RING_OF_ALL_TO_ALL);
}

int exchange_messages(struct exchange *x, int bucket, struct coll_message send,
                      struct coll_message recv, int64_t n, enum dtype dtype, struct err *err)
{
    int64_t tag;

    if (!enter_bucket(x, bucket, n, dtype, RING_OF_MESSAGES, &tag))
        return 0;
    return exchange_keep_copy(x, bucket,
                              coll_exchange(x->coll, COLL_BULK, send, recv, dtype, tag, err),
                              RING_OF_MESSAGES);
}

void exchange_rest(struct exchange *x, int bucket, int64_t n, enum dtype dtype)
{
    const int64_t id =
        exchange_hand_over(x, bucket, n * (int64_t)dtype_size(dtype), x->phase, RING_OF_REST);

    if (x->o.is_device) /* the engine marks it with the step's other entries */
        return;
    ring_run(x->o.ring, id, clock_mono_ns());
    ring_end(x->o.ring, id, clock_mono_ns(), 0);
}

static int exchange_wait_for(struct exchange *x, struct pending *pending, int bucket,
                             struct err *err)
{
    const struct pending p = *pending;

    if (!p.ticket)
        return 0;
    ASSERT(x->coll && p.what);
    exchange_at(x, bucket);
    pending->ticket = 0;
    return coll_wait(x->coll, p.ticket, err) < 0 ? err_wrap(err, "%s of bucket %d", p.what, bucket)
                                                 : 0;
}

int exchange_wait(struct exchange *x, int bucket, struct err *err)
{
    return exchange_wait_for(x, &x->pending[bucket], bucket, err);
}

int exchange_wait_buckets(struct exchange *x, struct err *err)
{
    int rc = 0;

    for (int b = 0; b < x->o.n_buckets && rc == 0; b++)
        rc = exchange_wait(x, b, err);
    return rc;
}

/* The record shows the sum as one of the last bucket, whose end the control vector is with every
 * strategy. */
int exchange_sum_control(struct exchange *x, float *control, struct err *err)
{
    const int bucket = x->o.n_buckets - 1;
    int64_t tag;

    if (x->o.is_device)
        return exchange_allreduce(x, bucket, control, CONTROL_LEN, DTYPE_F32, err);
    if (x->o.hooks.is_left_out(x->o.hooks.arg, bucket))
        return 0;
    ASSERT(x->coll && !x->control.ticket); /* one sum of it in a step */
    tag = exchange_hand_over(x, bucket, CONTROL_LEN * (int64_t)sizeof *control, x->phase,
                             RING_OF_ALLREDUCE);
    x->control.what = "sum of the control vector";
    x->control.ticket =
        coll_allreduce(x->coll, COLL_URGENT, control, CONTROL_LEN, DTYPE_F32, tag, err);
    return x->control.ticket < 0 ? err->code : 0;
}

int exchange_wait_control(struct exchange *x, struct err *err)
{
    const int bucket = x->o.n_buckets - 1;

    return exchange_wait_for(x, x->o.is_device ? &x->pending[bucket] : &x->control, bucket, err);
}

int exchange_sum_beside(struct exchange *x, float *p, int64_t n, struct err *err)
{
    const enum coll_channel channel = x->o.is_device ? COLL_URGENT : COLL_BULK;

    ASSERT(x->coll && n > 0);
    ASSERT(!x->beside.ticket && !x->log);
    exchange_rest(x, 0, n, DTYPE_F32);
    atomic_store(&x->has_beside_ended, 0);
    x->beside.what = "sum beside the steps, shown as one";
    x->beside.ticket = coll_allreduce(x->coll, channel, p, n, DTYPE_F32,
                                      x->o.is_device ? COLL_TAG_NONE : beside_tag, err);
    return x->beside.ticket < 0 ? err->code : 0;
}

int exchange_beside_has_ended(struct exchange *x, struct err *err)
{
    int rc;

    if (!x->beside.ticket)
        return 1;
    if (!x->o.is_device)
        return atomic_load(&x->has_beside_ended);
    rc = coll_device_passed(x->coll, x->beside.ticket, err);
    return rc < 0 ? rc : rc == 0;
}

/* Block until the sum is there.  For a device, where coll_wait does not block. */
static int poll_beside(struct exchange *x, struct err *err)
{
    enum { POLL_NS = 20000 };
    int rc;

    exchange_at(x, 0);
    while ((rc = exchange_beside_has_ended(x, err)) == 0)
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    return rc < 0 ? err_wrap(err, "%s of bucket 0", x->beside.what) : 0;
}

int exchange_wait_beside(struct exchange *x, struct err *err)
{
    if (x->o.is_device && x->beside.ticket && poll_beside(x, err) < 0)
        return err->code;
    return exchange_wait_for(x, &x->beside, 0, err);
}

int exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase, struct err *err)
{
    int64_t ticket;

    ASSERT(x->coll && n >= 0);
    exchange_at(x, -1);
    ticket = coll_allreduce(
        x->coll, COLL_URGENT, p, n, DTYPE_F64,
        exchange_hand_over(x, RING_SYNC, n * (int64_t)sizeof *p, phase, RING_OF_ALLREDUCE), err);
    return ticket < 0 ? (int)ticket : coll_wait(x->coll, ticket, err);
}
