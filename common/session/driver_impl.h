/* driver_impl - the driver's session as a whole: four machines, and the time, stage and ending that
 * they share.  No other file includes this.
 *
 *   membership.h  who takes part: connections, seats, leaders before, the standby
 *   formation.h   the ranks that train together: forming, answers, recoveries
 *   run.h         how far training is: epochs, validations, checkpoints
 *   watch.h       where each rank is: deadlines, slow ranks, incidents
 *
 * A machine has a pointer to const to the whole, so it sees the others and cannot write them: that
 * would not compile.  If it wants something of them, it returns a decision (decision.h).  The files
 * of the driver itself alone have a struct driver that is not const, and change two machines at
 * once:
 *
 *   driver.c         the functions of driver.h; dispatch, time, housekeeping
 *   driver_check.c   what is always true of the state
 *   driver_apply.c   carries out decisions: what is done in which order, by which machines
 *   driver_report.c  reports from engines
 *   driver_stage.c   the stages of a job: legal moves, commands out
 *   driver_end.c     causes of failure, and the end of the job
 *   driver_inject.c  faults on purpose
 *   driver_notice.c  machines that are about to go away, and the hand-over to the standby
 *   driver_account.c where the wall time went
 *   driver_status.c  the live table
 *   driver_trace.c   timelines that the operator asks for
 *
 * Threads: as driver.h. */
#ifndef SESSION_DRIVER_IMPL_H
#define SESSION_DRIVER_IMPL_H

#include "session/account.h"
#include "session/convert.h"
#include "session/driver.h"
#include "session/formation.h"
#include "session/membership.h"
#include "session/queue.h"
#include "session/run.h"
#include "session/watch.h"

enum {
    HELLO_MS = 10000,       /* a connection without Hello is closed after this time */
    REFUSED_MS = 1000,      /* the time for a refused peer to read the reason, and close */
    ABORT_MS = 800,         /* the time for peers and engine to end after an Abort ... */
    STOP_MS = 5000,         /* ... and after a Stop */
    GRACE_MS = 1500,        /* the time in which the cause of a broken collective may come */
    MISSING_LINE_MS = 5000, /* between log lines that name the missing ranks */
    CHECK_MS = 250,         /* between searches for silent ranks; rarer beyond 25,000 ranks */
    MOST_FRUITLESS = 3,     /* recoveries by the same rank without a completed step between them */
};

struct ending {  /* driver_end.c: causes, stop requests, and the job's end */
    int n_stops; /* the operator's requests to stop */
    char *stop_why;
    struct cause pending; /* a consequence whose cause is awaited; .text NULL: none */
    int64_t pending_ms;   /* when that wait ends */
    char *notice;         /* why this driver's machine goes away; NULL: no notice has come */
    char *hands_over;     /* why the standby is to lead after this step; NULL: it is not */
    int is_notice_copied; /* 1: the first signal after the notice came, which says the same */
    /* From STAGE_ENDING on: */
    int is_deposed; /* 1: another driver leads */
    int is_silent;  /* 1: another driver leads, or may: write no events, tell followers nothing */
    int status;
    char *text;
    int is_engine_stopped;
    int64_t engine_until_ms, conns_until_ms;
    int64_t works_until_ms; /* until then rank 0 may finish its step, to save its state */
    int64_t saves_until_ms; /* until then rank 0 may finish a checkpoint */
    int64_t obeys_until_ms; /* rank 0 was in its step a moment before, and obeys CMD_STOP by then */
    int is_work_told;       /* 1: the log says that the job's end waits for rank 0's step */
};

struct ledger_mark { /* when the last epoch's event went out, or this driver began */
    double cost;
    struct energy_sums energy;
};

struct driver {
    struct driver_options o; /* with copies of all texts */
    struct session_clock clock;
    int64_t now_ns, now_ms; /* the caller's time in ns; session time in ms */
    struct action_queue *out;
    struct err *unsent;    /* why a message could not be made; code 0: all could */
    struct latest *latest; /* noted as events go out */

    enum stage stage;   /* only stage_enter changes it */
    int64_t stage_ms;   /* when it began */
    int is_engine_busy; /* 1: rank 0's engine has a command to answer */
    int n_seats;
    int64_t beat_ms, timeout_ms; /* heartbeats: interval, silence that means lost */
    int64_t check_ms;            /* between looks at all ranks for what no message tells */
    int64_t next_beat_ms, next_check_ms;

    const struct seat *seats; /* membership.seats, to look at */
    struct membership membership;
    struct formation formation;
    struct run run;
    struct watch watch;
    struct ending ending;
    struct account account;    /* driver_account.c alone changes it */
    struct ledger_mark *epoch; /* noted as events go out */
};

/* driver.c: what any machine may call, as it changes no state */
void driver_send(const struct driver *d, const struct conn *c, const Wire__Control *m);
void driver_event(const struct driver *d,
                  struct session_event *e);           /* takes its pointers; host from rank */
char *driver_label(const struct driver *d, int rank); /* "rank 1 (hostB)", for free() */

/* driver.c: every event begins with enter and ends with leave */
void driver_enter(struct driver *d, int64_t now_ns);
void driver_leave(struct driver *d);

/* driver_apply.c */
void driver_apply(struct driver *d, struct decision x); /* frees what it owns */
void driver_moved(struct driver *d, int rank, const struct progress *p);
void driver_opened(struct driver *d, int rank, struct report *r); /* takes r */
void driver_lose(struct driver *d, int rank, const char *why);    /* its connection is gone */
/* Recover from a loss.  1: the job goes on, and everything was done for that.  0: it cannot go on;
 * *why_not (for free()) may say more than c does. */
int driver_recover(struct driver *d, const struct cause *c, char **why_not);
void driver_try(struct driver *d);       /* STAGE_WAIT: form, or give up, if it is time */
void driver_let_leave(struct driver *d); /* ranks that leave, when the others do not need them */
/* Drain the seat's follower, as drain_seat has it.  One that takes no part goes at once, and is
 * told `text`. */
int driver_release(struct driver *d, int seat, const char *why, const char *text);
void driver_farewell(struct driver *d, struct conn *c, const char *text); /* Stop, to one peer */
/* All ranks have answered the stage's command; decide what comes next. */
#define X(KIND, name, ANSWER, deadline) void done_##name(struct driver *d);
STAGE_LIST(X)
#undef X

/* driver_check.c: asserts */
void driver_check(const struct driver *d);       /* at both ends of an event */
void driver_check_ranks(const struct driver *d); /* a command goes to all ranks */

/* driver_stage.c */
void stage_enter(struct driver *d, enum stage stage); /* asserts that the move is legal */
void stage_done(struct driver *d);                    /* done_prepare, ...: the one of this stage */
void stage_tell_rank(const struct driver *d, int rank, const struct cmd *c); /* not rank 0 */
void stage_tell_all(const struct driver *d, struct cmd *c); /* and rank 0; takes c */

/* driver_report.c */
void report_digest(struct driver *d, int rank, struct report *r); /* takes r */

/* driver_notice.c */
/* The event: the machine of this rank or spare goes away. */
void notice_say(const struct driver *d, int seat, const struct notice *n);
/* The standby is to lead after this step, because of `why`, if it can and nothing ends this driver
 * already.  1: it is to. */
int notice_hand_over(struct driver *d, const char *why);
/* 1: this driver is to end, for its standby to lead, if that is possible now. */
int notice_hands_over(const struct driver *d);
/* If the standby cannot lead any more: stop, or go on if no notice has come. */
void notice_check(struct driver *d);
/* 1: a signal to stop repeats the notice, as machines that go away also stop their services. */
int notice_takes_signal(struct driver *d, const char *why);

/* driver_inject.c */
void inject_announce(const struct driver *d);
/* The faults that are due at a rank (-1: all ranks) until Ready, and from then on; for free(). */
char *inject_for_opening(const struct driver *d, int rank);
char *inject_for_training(const struct driver *d, int rank);
void inject_happens(struct driver *d, int rank, struct report *r);
void inject_at_stop(struct driver *d); /* when Stop is sent: followers cannot report any more */
void inject_say_unspent(const struct driver *d);

/* driver_corruption.c */
/* The ranks found wrong bits, as rank 0 reports.  Does not take r. */
void corruption_note(struct driver *d, int rank, struct report *r);
/* A rank has joined whose bits were found wrong before. */
void corruption_joined(struct driver *d, int rank);
/* Ranks whose bits were wrong, and that the job needed then, leave if it needs them no more. */
void corruption_check(struct driver *d);
/* The event.  host: NULL for that of the seat. */
void corruption_say(const struct driver *d, int rank, const char *host, int64_t step,
                    const struct corruption_told *told, const char *text);

/* driver_account.c */
void ledger_init(struct driver *d);
void ledger_fini(struct driver *d);
/* Into a heartbeat, for a standby; `account` holds what *h then points to. */
void ledger_write(const struct driver *d, Wire__Heartbeat *h, int64_t account[ACCOUNT_NUMBERS]);
void ledger_stamp(const struct driver *d, struct session_event *ev); /* the run's, up to now */
/* The counters of energy that are missing, and why; for free().  NULL: none is. */
char *ledger_no_energy(const struct driver *d);
void ledger_note_ranks(struct driver *d); /* at the end of each event */
double ledger_cost(const struct driver *d, const struct account_times *t);
double ledger_forecast(const struct driver *d, const struct account_times *t); /* 0: not known */
void ledger_turn(struct driver *d); /* a stage began, or rank 0 is ready */
void ledger_moved(struct driver *d, const struct progress *p);    /* rank 0's */
void ledger_stepped(struct driver *d, const struct report *step); /* rank 0's */
void ledger_trained(struct driver *d);                            /* all have answered */
void ledger_formed(struct driver *d);                             /* at the step of the run */
void ledger_saved(struct driver *d, const struct report *r);      /* in mid-training */

/* driver_end.c */
/* Something went wrong at c.rank.  `fmt` is the whole message.  The caller sets c's rank, code,
 * is_lost, phase and step.  For a consequence, the driver waits for its cause (GRACE_MS). */
void end_accuse(struct driver *d, struct cause c, int is_consequence, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void end_lost(struct driver *d, int rank, const char *why); /* the rank is gone */
void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The job is finished.  All followers are told so, and then the event is sent.  Takes the pointers
 * in *done. */
void end_finished(struct driver *d, struct session_event *done, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_deposed(struct driver *d, const char *why);
/* End, because `who`, of which nothing was heard, may lead the run. */
void end_unelected(struct driver *d, const char *who, const char *remedy);
void end_stop_first(struct driver *d); /* the first stop request */
void end_at_once(struct driver *d);    /* the second stop request */
/* The standby leads from here on.  The followers find it when their connections close. */
void end_handed_over(struct driver *d);
/* The job is ending, and the operator asks for that: say what it waits for. */
void end_say_waiting(struct driver *d);
/* ... for the second time: let it end now.  The engine still gets the moment that it needs to
 * notice. */
void end_hurry(struct driver *d);
void end_check_pending(struct driver *d);
void end_check_over(struct driver *d);
void end_forget_pending(struct driver *d);
void end_fini(struct driver *d);
enum abort_why { ABORT_FAILED, ABORT_STOPPED, ABORT_RECOVERS };
/* Send Abort to one connection, or (only == NULL) to all members, which then leave.  With
 * ABORT_RECOVERS it goes to all ranks of the formation, which keep their state. */
void end_send_abort(struct driver *d, const char *text, struct conn *only, enum abort_why why);
/* Send Stop to one connection, or (only == NULL) to all members, which then leave. */
void end_send_stop(struct driver *d, Wire__Outcome outcome, const char *text, struct conn *only);

#endif
