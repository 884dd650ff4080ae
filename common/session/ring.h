/* ring - the record of one rank's last collectives, and how far each has come.
 *
 * From these records the driver finds out which rank waits for which (driver_watch.c).  All ranks
 * of a formation hand over the same collectives in the same order.  So a collective's number within
 * its formation, from 1, means the same on all of them.  The rank that has handed over the fewest
 * keeps the others waiting.  Two ranks whose collectives of one number differ in step, bucket or
 * size would wait for ever.
 *
 * Life:    ring_new -> ring_begin for each formation -> { ring_hand -> ring_run -> ring_end } ...
 *          -> ring_free.  Nothing but ring_new allocates, nothing waits.
 * Threads: ring_begin and ring_hand: the engine's.  ring_run and ring_end: any, one call at a time,
 *          in the order in which the collectives begin and end; not during ring_begin.  ring_head
 *          and ring_read: any, at any time.
 *
 * A reader gets whole entries without a lock: each slot has the id of its entry, 0 while the
 * slot is being filled.  The writer stores 0, then the fields, then the id.  A reader loads the
 * id, the fields, and the id again; the entry is whole if both ids are the same.  All stores
 * release and all loads acquire: a reader that sees one new field has thereby seen the 0 before
 * it, so its second load of the id cannot give the old one.  began_ns and ended_ns are stored
 * into a whole entry, once each, and a reader sees 0 or the time.  The ring has room for more
 * entries than a channel takes (coll/coll.h, COLL_RING).  An entry that is replaced by entries of
 * the other channel while it runs counts as ended.  The formation is published in the same way: it
 * is -1 while it changes. */
#ifndef SESSION_RING_H
#define SESSION_RING_H

#include <stdint.h>

#include "base/spans.h"

struct ring; /* opaque */

enum { RING_LEN = 256 };

/* Collectives that are not a bucket of gradients. */
enum {
    RING_SYNC = -1,  /* statistics inside a step (batch norm) */
    RING_STATE = -2, /* all ranks take the source's state */
};

/* The operation, and its name in a timeline. */
#define RING_LIST(X)                                                                 \
    X(ALLREDUCE, "all-reduce")                                                       \
    X(REDUCE_SCATTER, "reduce-scatter")                                              \
    X(ALLGATHER, "all-gather")                                                       \
    X(ALL_TO_ALL, "all-to-all")                                                      \
    X(MESSAGES, "messages") /* to some ranks, and from some */                       \
    X(REST, "rest")         /* nothing now: the bucket rests, or has begun before */ \
    X(STATE, "state")       /* several, in the memory of the state */

enum ring_kind {
#define X(KIND, name) RING_OF_##KIND,
    RING_LIST(X)
#undef X
};

const char *ring_kind_name(enum ring_kind k);

struct collective {
    int64_t generation; /* of the formation */
    int64_t number;     /* in it, from 1; 0: no entry */
    int64_t step;       /* the step under way when it was handed over */
    int64_t bucket;     /* or RING_SYNC, RING_STATE */
    int64_t n_bytes;
    int64_t phase;     /* enum phase of the engine when it was handed over */
    int64_t handed_ns; /* clock_mono_ns */
    int64_t began_ns;  /* 0: not yet; from here on the ranks meet in it */
    int64_t ended_ns;  /* 0: not yet */
    int64_t is_failed;
};

const char *collective_state(const struct collective *c); /* "queued", "running", "done", ... */

struct ring_head {
    int64_t generation;
    int64_t n_handed;     /* in this formation */
    int64_t n_ended;      /* in this formation: those before the first one that has not ended */
    struct collective at; /* the first one that has not ended; .number 0: none */
};

struct ring *ring_new(void);
void ring_free(struct ring *r); /* NULL is fine */

/* Record each collective that ends as a span, too (base/spans.h).  Two collectives that run at the
 * same time get tracks of their own.  Call it before the first one. */
void ring_record(struct ring *r, struct spans *s);

/* A formation begins: numbers count from 1 again. */
void ring_begin(struct ring *r, int64_t generation);

/* Enter a collective that is about to be queued.  Returns its id for ring_run and ring_end: above
 * 0, and 1 higher than that of the entry before. */
int64_t ring_hand(struct ring *r, int64_t step, int64_t bucket, int64_t n_bytes, int64_t phase,
                  enum ring_kind kind);
/* The collective begins; it has ended. */
void ring_run(struct ring *r, int64_t id, int64_t now_ns);
void ring_end(struct ring *r, int64_t id, int64_t now_ns, int is_failed);

void ring_head(const struct ring *r, struct ring_head *out);

/* The newest entries, oldest first; returns how many. */
int ring_read(const struct ring *r, struct collective out[RING_LEN]);

/* Make the times relative to `now_ns`, so they are below 0.  A time that is 0, because that has not
 * happened, stays 0. */
void ring_rebase(struct collective *c, int n, int64_t now_ns);

#endif
