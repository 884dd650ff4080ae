/* account - where the wall time of a run went: productive, or lost by one of several causes.
 *
 * The wall time is the time in which a driver led the run.  At each moment it goes to one of
 * ACCOUNT_LIST.  Later knowledge moves time from one to another: the steps that a loss undid, the
 * part of training that waited for data.  So the times always add up to the wall time, to the
 * nanosecond.
 *
 * Life:    account_init -> account_turn, account_step ... at times that never go back.
 * Threads: one at a time; pure. */
#ifndef SESSION_ACCOUNT_H
#define SESSION_ACCOUNT_H

#include <stddef.h>
#include <stdint.h>

/* X(KIND, key): the key in the event's `badput` and in the status; the first is `goodput`. */
#define BADPUT_LIST(X)        \
    X(START, start)           \
    X(DATA, data)             \
    X(CHECKPOINT, checkpoint) \
    X(VALIDATION, validation) \
    X(LOST, lost)             \
    X(REPEATED, repeated)     \
    X(WAITING, waiting)

enum account_kind {
    ACCOUNT_PRODUCTIVE, /* steps that were kept */
#define X(KIND, key) ACCOUNT_##KIND,
    BADPUT_LIST(X)
#undef X
        ACCOUNT_KINDS
};

struct account_times {
    int64_t ns[ACCOUNT_KINDS]; /* all 0: nothing is known */
    int64_t rank_us;           /* the time of each rank while it was connected, added up */
};

/* When the run had made `step`, training had taken `ns`, waits for data included. */
struct account_mark {
    int64_t step, ns;
};

enum { ACCOUNT_MARKS = 64, ACCOUNT_PAST_MARKS = 8, ACCOUNT_NUMBERS = ACCOUNT_KINDS + 2 };

/* The account of a run under its drivers before; all 0: there is none. */
struct account_past {
    struct account_times times;
    struct account_mark mark[ACCOUNT_PAST_MARKS]; /* by step, the newest last */
    int n_marks;
};

struct account {
    struct account_times times; /* up to at_ns */
    int64_t from_ns, at_ns;     /* the caller's clock */
    int64_t before_ns;          /* the wall time under the drivers before */
    int n_ranks;                /* those connected from at_ns on */
    enum account_kind now;      /* where the time goes from at_ns on */
    int64_t share_from_ns;      /* training before the present share of waits for data began */
    int64_t share_ns;           /* what of the training since then was a wait for data */
    struct account_mark mark[ACCOUNT_MARKS]; /* by step, thinner when they are full */
    int n_marks;
};

void account_init(struct account *a, const struct account_past *past, int64_t now_ns);

/* From now on the time goes to `kind`. */
void account_turn(struct account *a, int64_t now_ns, enum account_kind kind);

/* From now on so many ranks are connected. */
void account_ranks(struct account *a, int64_t now_ns, int n_ranks);

/* The run has made this step. */
void account_step(struct account *a, int64_t now_ns, int64_t step);

/* The run goes on from this step.  The training that was done beyond it is repeated.  n_lost: the
 * number of steps that were begun and did not count; the time since the newest mark is divided
 * among them and the steps that did count. */
void account_back(struct account *a, int64_t step, int64_t n_lost);

/* From here on account_wait tells of the training that follows. */
void account_begin_share(struct account *a, int64_t now_ns);

/* This part of the training since then, 0 to 1, was a wait for data. */
void account_wait(struct account *a, int64_t now_ns, double share);

/* So much of the training up to now was a halt for a checkpoint. */
void account_halt(struct account *a, int64_t now_ns, int64_t ns);

/* The times up to now. */
struct account_times account_at(const struct account *a, int64_t now_ns);

int64_t account_wall_ns(const struct account_times *t); /* their sum */
double account_goodput(const struct account_times *t);  /* 0 to 1; 0 if nothing is known */
double account_rank_hours(const struct account_times *t);

/* The rank-hours of the whole run if `left` steps follow the `done` ones.  A step takes what it has
 * taken so far on average, without the start.  Negative before the first step. */
double account_forecast(const struct account_times *t, int64_t done, int64_t left);

const char *account_key(enum account_kind kind); /* "start"; "productive" */

/* The account as numbers for a standby: the kinds in their order, rank_us, and the step of the run.
 */
void account_write(const struct account_times *t, int64_t step, int64_t out[ACCOUNT_NUMBERS]);

/* 1: *out is what these numbers say; 0: they are of another version, and *out is as before. */
int account_read(const int64_t *numbers, size_t n, struct account_past *out);

void account_check(const struct account *a); /* asserts that the sum is the wall time */

#endif
