/* watch - the machine of the driver's session that knows where each rank is: the last sign of each,
 * deadlines, slow ranks, and the incidents of ranks that wait for good.
 *
 *   driver_watch.c     finds the rank that keeps the others waiting
 *   driver_progress.c  notes where ranks are
 *   driver_pace.c      finds ranks that are slower than the others
 *   driver_incident.c  the last collectives of all ranks, when they wait for good
 *   driver_traced.c    notes which ranks have yet to send their part of a timeline
 *   driver_deadline.c  the deadline of each stage, and the rank at fault when it has passed
 *
 * A function that takes `struct watch *` may write it, and one that takes `const struct driver *`
 * only looks.
 *
 * Threads: as driver.h. */
#ifndef SESSION_WATCH_H
#define SESSION_WATCH_H

#include "base/buf.h"
#include "session/decision.h"
#include "session/seat.h"

struct driver;

struct watch {
    const struct driver *d;    /* the whole, to look at */
    struct seat *seats;        /* [n_seats] */
    int is_warned;             /* 1: a warning named a late rank, which has not moved on since */
    struct incident *incident; /* the incident about which ranks are being asked, or NULL */
    int n_incidents;
    struct {
        int64_t n;           /* timelines that the operator asked for; the newest one's number */
        int64_t until_ns;    /* ranks record the newest one until then */
        int64_t duration_ns; /* and for so long */
        int is_open;         /* 1: parts of it may come */
        int is_job_open;     /* likewise of report.trace's */
        int is_job_over;     /* 1: no part of that will come any more */
    } trace;
    int64_t incident_until_ms;
    int64_t pace_since_ms, pace_generation; /* the present window of driver_pace.c; 0: none */
    struct energy energy;
};

/* Signs that a rank is behind, the surest first.  The first sign that is true of any rank counts.
 * WATCH_EARLIER: the rank has done its own part, but waits in an earlier collective than others. */
enum watch_sign { WATCH_OWN_WORK, WATCH_SILENCE, WATCH_EARLIER, WATCH_SIGNS };

struct watch_view { /* of the ranks at this moment */
    int first;      /* the rank furthest behind; -1: none can be named */
    int n_behind;   /* number of ranks behind */
    int waiting;    /* a rank in the latest collective under way; -1: none */
    enum watch_sign sign;
};

/* driver_progress.c */
void watch_begin(struct watch *w, enum phase phase); /* a stage: all ranks are in this phase */
void watch_at_step(struct watch *w, int64_t step);   /* and at this step */
void watch_joined(struct watch *w, int rank);        /* it opens its data */
void watch_heard(struct watch *w, int rank);
void watch_in_phase(struct watch *w, int rank, enum phase phase);
void watch_clock(struct watch *w, int rank, const Wire__Heartbeat *h); /* its stamps */
void watch_since(struct watch *w, int rank, int64_t since_ms);         /* by the rank's own clock */
int watch_moved(struct watch *w, int rank, const struct progress *p);  /* 1: it was of use */
void watch_used(struct watch *w, int rank, const struct usage *u);
/* 1: this rank's counter has told something, by itself or by another rank that reads it. */
int watch_is_metered(const struct driver *d, int rank, enum energy_kind kind);

/* driver_traced.c: a timeline is whole when no rank owes a part of it.  A lost rank owes none. */
int trace_owes(const struct seat *s, int64_t number);      /* 1: a part of this timeline */
int64_t trace_begin(struct watch *w, int64_t duration_ns); /* all ranks owe one; its number */
void trace_formed(struct watch *w); /* the ranks train from the step of the run on */
int trace_take(struct watch *w, int rank, const struct spans_piece *p); /* 1: it owed this piece */
void trace_check(struct watch *w); /* at the end of each event: tells which timelines are whole */

/* driver_watch.c */
struct watch_view watch_look(const struct driver *d);
/* "rank 2 (node7, pid 4242) is in backward of step 118, bucket 3, for 12.1 s; ranks 0 1 3 wait for
 * it in bucket 3" */
void watch_put_line(const struct driver *d, const struct watch_view *v, struct buf *b);
/* "; ranks 0 1 3 wait for it in bucket 3", or nothing. */
void watch_put_waiters_for(const struct driver *d, int rank, struct buf *b);
void watch_check(struct watch *w);                        /* at each tick: warns of a late rank */
struct decision watch_compare(struct watch *w, int rank); /* its collectives with rank 0's */
int watch_is_silent(const struct driver *d, int rank);
int watch_is_behind(const struct driver *d, const struct watch_view *v, int rank);
/* A cause at this rank, where it was when last heard. */
struct cause watch_cause_at(const struct driver *d, int rank, int code);

/* driver_incident.c */
void incident_begin(struct watch *w, const char *text); /* before any rank is told to leave */
void incident_silent(struct watch *w, int rank, const char *why); /* a rank is about to be lost */
void incident_message(struct watch *w, int64_t conn, const Wire__Ring *m);
void incident_own(struct watch *w, int64_t now_ns, const struct collective *c, int n);
void incident_check(struct watch *w);  /* hands it over, once all have answered or had the time */
void incident_finish(struct watch *w); /* hands it over now */

/* driver_pace.c */
void pace_note(struct watch *w, int rank, const struct progress *p); /* before seat->at changes */
void pace_check(struct watch *w);

/* driver_deadline.c */
int64_t deadline_ms(const struct driver *d);       /* how long this stage may take */
int64_t deadline_of_stage(const struct driver *d); /* its end; session ms, INT64_MAX: none */
/* The same, or the earlier time at which an engine should have left the formation before. */
int64_t deadline_due(const struct driver *d);
/* When to compute deadline_due again, apart from the regular checks, which are enough where it
 * depends on all ranks.  Its own cost does not grow with the ranks, as it is asked after each
 * event. */
int64_t deadline_to_look(const struct driver *d);
/* The time for which an engine may still be in this phase after it was told to leave a formation.
 * It leaves a collective at once, but finishes other work first. */
int64_t deadline_of_leaving(const struct driver *d, enum phase phase);
/* Accuse the rank at fault, if it can be named. */
struct decision deadline_passed(struct watch *w);

#endif
