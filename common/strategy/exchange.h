/* exchange - the collectives of a step, as a strategy starts them and waits for them.
 *
 * An exchange stands between a strategy and coll/.  Every collective that is started here gets an
 * entry in this rank's record of collectives (session/ring.h), is left out if a fault on purpose
 * says so, and shows itself as the engine's phase while it is waited for.
 *
 * Each collective belongs to a bucket of the layout.  The collectives of all buckets run in the
 * order in which they were started, so a bucket's second collective may be started before the first
 * one has ended: it finds what the first one has left.
 *
 * On a device all of this only queues work.  A recording starts its collectives anew with every
 * launch, when none of these functions is called: an exchange_log remembers what was queued while
 * the recording was made, and exchange_repeat enters the same into the record again.
 *
 * Life:    exchange_new -> { exchange_join -> steps -> exchange_leave } ... -> exchange_free.
 *          A step: exchange_begin -> start, wait ... -> exchange_end.
 * Threads: the engine's.  No call allocates, but for the first collectives that a log remembers. */
#ifndef STRATEGY_EXCHANGE_H
#define STRATEGY_EXCHANGE_H

#include "coll/coll.h"
#include "session/command.h"

struct exchange; /* opaque */

/* ---- for strategies ---- */

/* Start a collective of n elements at p, in place, as coll/coll.h describes it: all ranks get the
 * sum; each rank gets the sum of its own span; all ranks get each rank's span.  The memory is
 * borrowed until exchange_wait(bucket) has returned. */
int exchange_allreduce(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                       struct err *err);
int exchange_reduce_scatter(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                            struct err *err);
int exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                             struct err *err);

/* Give part r of `from` to rank r, and take part r of `to` from rank r (coll_all_to_all).  The
 * record of collectives shows n elements. */
int exchange_all_to_all(struct exchange *x, int bucket, struct coll_parts from,
                        struct coll_parts to, int64_t n, enum dtype dtype, struct err *err);

/* Send one message to a rank, and take one from a rank (coll_exchange).  n is the number of
 * elements that the record of collectives shows; it is the same on all ranks, though messages may
 * differ. */
int exchange_messages(struct exchange *x, int bucket, struct coll_message send,
                      struct coll_message recv, int64_t n, enum dtype dtype, struct err *err);

/* The next five are for CPUs only.
 *
 * Sum the control vector over all ranks, over the urgent channel, so it waits for no bucket. */
int exchange_sum_control(struct exchange *x, float *control, struct err *err);
int exchange_wait_control(struct exchange *x, struct err *err);

/* Sum n floats at p over all ranks beside the steps that follow, which may not use the bulk channel
 * until exchange_wait_beside has returned.  One such sum may be under way; exchange_join forgets
 * it.  In the record its entry ends at once, because no rank waits in it.  To be called while no
 * collective is under way. */
int exchange_sum_beside(struct exchange *x, float *p, int64_t n, struct err *err);
int exchange_beside_has_ended(const struct exchange *x);
int exchange_wait_beside(struct exchange *x, struct err *err);

/* This rank has no part in what other ranks exchange in `bucket`, n elements each.  The record
 * shows the entry that they have there, ended, so that all ranks have equal records.  To be called
 * while no collective is under way. */
void exchange_rest(struct exchange *x, int bucket, int64_t n, enum dtype dtype);

/* The step under way, or the one that ended last. */
int64_t exchange_step(const struct exchange *x);

/* Wait until the collectives of `bucket` are complete; return at once if there are none.  On a
 * device: what is queued from now on starts when the collectives are complete. */
int exchange_wait(struct exchange *x, int bucket, struct err *err);

/* The formation's collectives, for blocking calls between steps; the record does not show them. */
struct coll *exchange_coll(struct exchange *x);

/* ---- for the reducer and the engine ---- */

struct exchange_hooks {
    void *arg;
    void (*at)(void *arg, enum phase phase, int64_t bucket); /* the engine waits for `bucket` */
    int (*is_left_out)(void *arg, int bucket); /* 1: a fault leaves the bucket's collective out */
};

struct exchange_options {
    struct ring *ring; /* borrowed */
    int n_buckets;
    int is_device; /* collectives are queued and recorded, and coll_watch tells nothing */
    struct exchange_hooks hooks;
};

struct exchange *exchange_new(const struct exchange_options *o);
void exchange_free(struct exchange *x); /* NULL is fine */

void exchange_join(struct exchange *x, struct coll *c); /* borrowed; before its first collective */
void exchange_leave(struct exchange *x);

/* The entries [first, last] of a device's collectives in the record, which the engine marks as
 * running and as ended.  first is 0 if there are none, or if the collectives mark their entries
 * themselves. */
struct handed {
    int64_t first, last;
};

void exchange_begin(struct exchange *x, int64_t step);
struct handed exchange_end(struct exchange *x);
void exchange_enter(struct exchange *x, enum phase phase); /* the phase of what starts next */

void exchange_ran(struct exchange *x, struct handed h);
void exchange_ended(struct exchange *x, struct handed h, int is_failed);

/* Sum n doubles at p over all ranks, before anything that is queued later: a step's statistics. */
int exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase, struct err *err);

/* The collectives that a recording starts.  Zeroed: none. */
struct exchange_log {
    struct {
        int64_t bucket, n_bytes;
        enum phase phase;
    } * item; /* [n], of [cap] */
    int n, cap;
};

void exchange_log_fini(struct exchange_log *log);
void exchange_keep(struct exchange *x, struct exchange_log *log); /* empties it; NULL: no more */
void exchange_repeat(struct exchange *x, const struct exchange_log *log);

#endif
