/* exchange - the collectives of a step, as a strategy starts them and waits for them.
 *
 * An exchange stands between a strategy and coll/.  Every collective that is started here
 *   - gets an entry in this rank's record of collectives (session/ring.h),
 *   - is left out if a fault on purpose (--inject) says so,
 *   - is shown as the engine's phase while the rank waits for it.
 *
 * Each collective belongs to a bucket of the layout.  The collectives of all buckets run in the
 * order in which they were started.  So a bucket's second collective may be started before the
 * first one has ended: when it runs, the memory holds the result of the first one.
 *
 * On a device these functions only queue work.  A recording (step/tape.h) runs its collectives
 * anew at every launch, and then no function is called here.  So an exchange_log notes what was
 * queued while the recording was made, and at each launch exchange_repeat makes the same entries
 * in the record of collectives.
 *
 * Life:    exchange_new -> { exchange_join -> steps -> exchange_leave } ... -> exchange_free.
 *          A step: exchange_begin -> start, wait ... -> exchange_end.
 * Threads: the engine's.
 * Memory:  no call allocates after exchange_new, except while an exchange_log grows.
 * Errors:  those of coll/coll.h.  The functions that start and wait return 0 or < 0. */
#ifndef STRATEGY_EXCHANGE_H
#define STRATEGY_EXCHANGE_H

#include "coll/coll.h"
#include "session/command.h"

struct exchange; /* opaque */

/* ---- for strategies ---- */

/* Start a collective of n elements at p, in place, on the bulk channel (coll/coll.h).
 *   allreduce        all ranks get the sum
 *   reduce_scatter   each rank gets the sum of its own span
 *   allgather_spans  all ranks get each rank's span
 * The memory is borrowed until exchange_wait(bucket) has returned. */
int exchange_allreduce(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                       struct err *err);
int exchange_reduce_scatter(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                            struct err *err);
int exchange_allgather_spans(struct exchange *x, int bucket, void *p, int64_t n, enum dtype dtype,
                             struct err *err);

/* Give part r of `from` to rank r, and take part r of `to` from rank r (coll_all_to_all).
 * The record of collectives shows n elements, so n must be the same on all ranks. */
int exchange_all_to_all(struct exchange *x, int bucket, struct coll_parts from,
                        struct coll_parts to, int64_t n, enum dtype dtype, struct err *err);

/* Send one message to a rank, and take one from a rank (coll_exchange).  The record of collectives
 * shows n elements.  n must be the same on all ranks, though the lengths of their messages may
 * differ. */
int exchange_messages(struct exchange *x, int bucket, struct coll_message send,
                      struct coll_message recv, int64_t n, enum dtype dtype, struct err *err);

/* Sum control[CONTROL_LEN] over all ranks, in place.  On CPUs the sum uses the urgent channel, so
 * it does not wait for the buckets.  On a device it is the last bucket's newest collective, because
 * steps are recorded with all of theirs on the bulk channel. */
int exchange_sum_control(struct exchange *x, float *control, struct err *err);
int exchange_wait_control(struct exchange *x, struct err *err);

/* Start to sum n floats at p over all ranks, in parallel with the steps that follow.
 *
 * Until exchange_wait_beside has returned, those steps may not use the sum's channel, and the
 * caller may not touch p.  On CPUs this is the bulk channel.  On a device it is the urgent one, for
 * two reasons: steps are recorded with the control vector on the bulk channel, and NCCL's kernel of
 * an urgent sum occupies few multiprocessors (coll/nccl/comm.c) for as long as slow links take.
 *
 * At most one such sum may be under way; exchange_join forgets it.  Its entry in the record ends at
 * once, or on a device with the step that is queued next, because no rank waits for the sum inside
 * a step.  Call this between two steps: on CPUs while no other collective is under way, on a device
 * while nothing is recorded.
 *
 * exchange_beside_has_ended: 1 if the sum is there, or if none is under way; 0: not yet.  A sum
 * that broke off is never there.  exchange_wait_beside blocks until the sum is there; what is
 * queued from then on sees it. */
int exchange_sum_beside(struct exchange *x, float *p, int64_t n, struct err *err);
int exchange_beside_has_ended(struct exchange *x, struct err *err);
int exchange_wait_beside(struct exchange *x, struct err *err);

/* Other ranks exchange messages of n elements in `bucket`, and this rank does not take part.  The
 * record gets the entry that those ranks have, as ended, so that the records of all ranks are
 * equal.  On CPUs call this while no collective is under way. */
void exchange_rest(struct exchange *x, int bucket, int64_t n, enum dtype dtype);

/* The number of the step under way, or else of the step that ended last. */
int64_t exchange_step(const struct exchange *x);

/* Wait until the collectives of `bucket` are complete; return at once if there are none.  On a
 * device this does not block: work that is queued from now on starts after the collectives. */
int exchange_wait(struct exchange *x, int bucket, struct err *err);
int exchange_wait_buckets(struct exchange *x, struct err *err); /* of all buckets of gradients */

/* The formation's coll, for its rank and size, and for blocking calls between steps.  The record
 * does not show such calls. */
struct coll *exchange_coll(struct exchange *x);

/* ---- for the reducer and the engine ---- */

struct exchange_hooks {
    void *arg;
    /* The rank is about to wait for `bucket` (-1: for statistics inside the step). */
    void (*at)(void *arg, enum phase phase, int64_t bucket);
    /* 1: a fault on purpose leaves out the collective of `bucket` in this step. */
    int (*is_left_out)(void *arg, int bucket);
};

struct exchange_options {
    struct ring *ring; /* borrowed */
    int n_buckets;     /* of gradients */
    int n_frozen;      /* buckets of frozen parameters, numbered from n_buckets on */
    int is_device;     /* 1: collectives are only queued, and coll_watch reports none of them */
    struct exchange_hooks hooks;
};

struct exchange *exchange_new(const struct exchange_options *o);
void exchange_free(struct exchange *x); /* NULL is fine */

/* There are n_buckets buckets from now on, all of gradients.  No collective is under way. */
void exchange_recut(struct exchange *x, int n_buckets);

/* Use `c` from now on, until exchange_leave.  c is borrowed, and has not run a collective yet. */
void exchange_join(struct exchange *x, struct coll *c);
void exchange_leave(struct exchange *x);

/* The ids [first, last] in the record of the collectives of one step on a device.  The engine marks
 * these entries as running and as ended (exchange_ran, exchange_ended).  first is 0 if there are
 * none.  It is 0 on CPUs, too, where the thread that runs a collective marks its entry. */
struct handed {
    int64_t first, last;
};

void exchange_begin(struct exchange *x, int64_t step);
struct handed exchange_end(struct exchange *x);
/* The collectives that are started from now on belong to this phase. */
void exchange_enter(struct exchange *x, enum phase phase);

void exchange_ran(struct exchange *x, struct handed h);
void exchange_ended(struct exchange *x, struct handed h, int is_failed);

/* Sum n doubles at p over all ranks, on the urgent channel, and wait for the sum.  For statistics
 * inside a step, which what is queued later needs. */
int exchange_sum_now(struct exchange *x, double *p, int64_t n, enum phase phase, struct err *err);

/* The collectives that a recording runs at each launch.  A zeroed log is empty. */
struct exchange_log {
    struct {
        int64_t bucket, n_bytes;
        enum phase phase;
        enum ring_kind kind;
    } * item; /* [n], of [cap] */
    int n, cap;
};

void exchange_log_fini(struct exchange_log *log);
/* Empty the log, and note in it all collectives that are started from now on.  NULL: stop that. */
void exchange_keep(struct exchange *x, struct exchange_log *log);
/* The recording is launched: enter its collectives into the record again. */
void exchange_repeat(struct exchange *x, const struct exchange_log *log);

#endif
