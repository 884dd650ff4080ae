/* driver_impl - the driver's insides, shared by its files and nobody else.
 *
 *   driver.c         what the caller sees; dispatch, time, housekeeping
 *   driver_seats.c   who sits where
 *   driver_gather.c  Hello, Ready, refusals
 *   driver_strangers.c  lines about connections that come to nothing, not too many
 *   driver_command.c commands out
 *   driver_report.c  reports in
 *   driver_form.c    prepare, form: who trains as which rank
 *   driver_run.c     epochs, validations, checkpoints: what comes next
 *   driver_replicas.c  whether all came to the same end of an epoch
 *   driver_recover.c lost ranks: waiting, replacing, fewer ranks; leaving and joining in order
 *   driver_drain.c   ranks, spares and hosts that the operator wants back
 *   driver_watch.c   who keeps the others waiting
 *   driver_pace.c    who is slower than the others
 *   driver_status.c  the live table
 *   driver_inject.c  faults on purpose
 *   driver_incident.c  what all did last, when they wait for good
 *   driver_end.c     causes and the end of the job */
#ifndef SESSION_DRIVER_IMPL_H
#define SESSION_DRIVER_IMPL_H

#include "session/convert.h"
#include "session/driver.h"
#include "session/queue.h"

enum stage {
    STAGE_NEW,
    STAGE_GATHER,
    STAGE_WAIT, /* for the replacement of a lost rank */
    STAGE_PREPARE,
    STAGE_FORM,
    STAGE_TRAIN,
    STAGE_VALIDATE,
    STAGE_CHECKPOINT,
    STAGE_ENDING,
    STAGE_OVER,
    STAGE_COUNT
};

enum {
    HELLO_MS = 10000,       /* a connection that says nothing is closed */
    REFUSED_MS = 1000,      /* for a refused peer to read why and close */
    ABORT_MS = 800,         /* for peers and engine to end after an Abort ... */
    STOP_MS = 5000,         /* ... and after a Stop */
    GRACE_MS = 1500,        /* for a better explanation than "a collective broke off" */
    MISSING_LINE_MS = 5000, /* between lines that say who is missing */
    CHECK_MS = 250,         /* between looks at who is silent */
    MOST_FRUITLESS = 3,     /* recoveries without a completed step, for faults at one rank */
};

enum conn_state {
    CONN_STRANGER, /* has not said Hello */
    CONN_MEMBER,   /* holds a seat */
    CONN_LEAVING,  /* was told to go; what it still sends is ignored */
};

struct conn {
    int64_t id;
    enum conn_state state;
    int rank;         /* CONN_MEMBER */
    int64_t until_ms; /* CONN_STRANGER, CONN_LEAVING: closed then */
    char *peer, *local, *from;
};

struct seat { /* of one rank, or of a spare */
    int is_taken;
    int is_member;  /* of the formation; before, its leaving harms nobody */
    int is_said;    /* its join event is out */
    char *leaving;  /* it is to leave at the next step: "left: ..."; or NULL */
    int is_drained; /* ... because the operator of the driver wants it, which it was told */
    int64_t joined_ms;
    int is_any;                       /* asked for any rank: may be moved while gathering */
    struct conn *conn;                /* NULL: rank 0 */
    char *device;                     /* that it was told to use; rank 0: NULL */
    char *host, *host_id, *advertise; /* advertise: may be NULL */
    char *gpu, *gpu_bus;              /* uuid and place of the one it uses, or NULL */
    int64_t pid;
    int64_t heard_ms;      /* last message of any kind */
    struct report *opened; /* its Ready */
    struct report *answer; /* to this stage's command */
    int64_t answered_ms;   /* when that came */
    struct progress at;    /* as last heard; since_ns of a follower: unused */
    int64_t told_ms;       /* when it was heard */
    int64_t moved_ms;      /* when `at` last changed, or the stage began */
    int64_t since_ms;      /* when its phase began, by its own clock as far as that is known */
    struct {
        int64_t from_steps, from_busy_ns; /* when the window under way began */
        double factor;                    /* busy time by the median's, last window; 0: not known */
        double step_ms;                   /* wall time, of the latest steps; 0: none */
        int is_slow;
    } pace;
    int has_stepped;
    double rss_mib, peak_rss_mib;
};

struct gpu_ref {            /* one GPU of a host; texts are borrowed */
    const char *uuid, *bus; /* bus: NULL or "": not known */
    const char *host, *host_id;
};

struct cause {          /* why a job ends early */
    int rank;           /* -1: none of the ranks */
    int is_lost;        /* the rank itself is gone */
    int is_final;       /* no other rank could do better: the job ends */
    int is_consequence; /* of something unknown: nobody is to blame, all try again */
    int code;           /* enum err_code */
    enum phase phase;
    int64_t step; /* -1: unknown */
    char *text;   /* the whole message */
    char *host;   /* of a rank that has no seat any more, else NULL */
};

struct recovery {          /* from a loss to the next completed step */
    int64_t since_ns;      /* 0: none under way */
    struct cause cause;    /* the first */
    enum stage resume;     /* what to do once formed: train, validate or checkpoint */
    int64_t wait_until_ms; /* STAGE_WAIT */
    int64_t settled_ms;    /* ... more losses may come until then, */
    int64_t latest_ms;     /* which is never later than this */
    int is_wait_said;
    int is_orderly;      /* ... for nobody: who is gone has left in order */
    int64_t newest_step; /* that any rank was seen at */
    int is_midstep;      /* a step was under way */
    int64_t steps_lost;
    int n_fruitless; /* in a row, whoever's fault */
};

struct driver {
    struct driver_options o; /* its texts are ours */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ns, now_ms; /* the caller's; session time */

    enum stage stage;
    int64_t stage_ms;    /* when it began */
    int64_t full_ms;     /* STAGE_GATHER: since when no seat is free; -1 while one is */
    struct conn **conns; /* by rising id */
    int n_conns, cap_conns;
    struct seat *seats; /* [n_seats]: the ranks, then the spares */
    int n_ranks;        /* of the formation; o.n_ranks until some are lost for good, or join */
    int n_seats;
    struct {
        int64_t since_ms; /* the window's first line */
        int n_said, n_unsaid;
    } strangers;
    int *n_fruitless; /* [n_seats] recoveries since the last completed step, by rank at fault */
    struct recovery recovery;
    int has_formed, is_epoch_open; /* open: Train is out, and not every rank's answer is in */
    int64_t formed_ms;
    int n_answers, first_answer; /* to this stage's command; the rank whose came first */
    /* Where a search over all ranks left off (driver_seats.c), of which thousands may come. */
    int free_from, unready, unstepped;
    int n_here;                  /* ranks whose seat is taken */
    void *gpus;                  /* tsearch: struct gpu_use */
    int64_t beat_ms, timeout_ms; /* heartbeats: interval, silence that means lost */
    int64_t next_beat_ms, next_check_ms, next_missing_ms;

    int64_t generation, epoch, step, steps_per_epoch;
    int64_t form_ns;     /* when the formation began */
    double first_step_s; /* < 0: not yet */
    int is_first_step_said;
    struct session_epoch last; /* .epoch == 0: none yet */
    int is_last_said;          /* its event is out */
    int is_final;              /* no epoch follows: the checkpoint being written is the last */
    int is_saving_last;        /* the engine answers when it is written */
    int64_t saved_step;        /* of the newest checkpoint written here, -1: none */
    char *saved_path;          /* of it */
    char *save_error;          /* why the final checkpoint could not be written */
    char *nonfinite;           /* why training cannot go on, once the checkpoint is written */
    int nonfinite_rank;        /* who saw it; -1: nobody knows */

    int is_warned;             /* that a deadline is near; until a rank moves on */
    struct incident *incident; /* being asked about; or NULL */
    int n_incidents;
    int64_t incident_until_ms;
    int64_t pace_since_ms, pace_generation; /* the window under way; 0: none */

    int n_stops; /* requests by the operator */
    char *stop_why;
    struct cause pending; /* a consequence in search of its cause; .text NULL: none */
    int64_t pending_ms;   /* ... until then */

    int status; /* STAGE_ENDING ... */
    char *text;
    int is_engine_busy, is_engine_stopped;
    int64_t engine_until_ms, conns_until_ms;
    int64_t saves_until_ms; /* the engine may take so long to finish a checkpoint */
};

/* driver.c */
void driver_drop_conn(struct driver *d, struct conn *c);         /* forget it; no action */
void driver_leave(struct driver *d, struct conn *c, int64_t ms); /* now CONN_LEAVING */
void driver_send(struct driver *d, const struct conn *c, const Wire__Control *m);
void driver_event(struct driver *d,
                  struct session_event *e);           /* takes its pointers; host from rank */
char *driver_label(const struct driver *d, int rank); /* "rank 1 (hostB)", for free() */

/* driver_seats.c: none of these looks at all ranks each time, as a job begins with one call of it
 * for each rank */
void seat_take(struct driver *d, int rank, struct conn *c); /* a free one; the caller fills it */
void seat_use_gpu(struct driver *d, int rank, const char *uuid, const char *bus);
void seat_clear(struct driver *d, int rank);
void seat_move(struct driver *d, int from, int to); /* `to` is free */
void seats_changed(struct driver *d);               /* otherwise than by these */
int seats_free_rank(struct driver *d);              /* the lowest; -1: none */
int seats_are_ready(struct driver *d);              /* all ranks have opened */
int seats_have_stepped(struct driver *d);           /* all ranks have done a step */
/* The rank that uses this one, or another slice of the same, which is one GPU to NCCL; -1: none. */
int seats_rank_of_gpu(const struct driver *d, const struct gpu_ref *g);

/* driver_gather.c */
void gather_hello(struct driver *d, struct conn *c, const Wire__Hello *h);
void gather_opened(struct driver *d, int rank);                 /* seats[rank].opened has come */
void gather_leave(struct driver *d, int rank, const char *why); /* the seat is free again */
void gather_check(struct driver *d);                            /* prepare, if all are ready */
void gather_say_missing(struct driver *d);
void gather_refuse(struct driver *d, struct conn *c, Wire__Reason reason, const char *text);

/* driver_strangers.c */
void stranger_say(struct driver *d, const char *fmt, ...) /* a warning, unless there are too many */
    __attribute__((format(printf, 2, 3)));
void stranger_check(struct driver *d);    /* at each tick: how many were left out */
void stranger_say_rest(struct driver *d); /* the same at once */

/* driver_command.c */
void command_stage(struct driver *d, enum stage stage, enum phase phase); /* no answers yet */
void command_rank(struct driver *d, int rank, const struct cmd *c);       /* not rank 0 */
void command_all(struct driver *d, struct cmd *c);                        /* the same; takes c */

/* driver_form.c: each stage's last answer calls for the next */
void form_prepare(struct driver *d); /* a formation begins */
void form_connect(struct driver *d);

/* driver_replicas.c */
int replicas_differing_end(const struct driver *d); /* the first that ended unlike rank 0; or -1 */
int replicas_are_equal(struct driver *d); /* 1: all hold the same bits; 0: the job has failed */

/* driver_run.c: as driver_form.c */
void run_formed(struct driver *d);
void run_epoch_done(struct driver *d);
void run_validated(struct driver *d);
void run_checkpoint_done(struct driver *d);
void run_note_checkpoint(struct driver *d, int rank, const struct report *r);
void run_say_epoch(struct driver *d); /* the event of the last epoch, unless it is out */
int run_nothing_to_do(const struct driver *d, int64_t step);

/* driver_recover.c */
/* 1: the job goes on, all that needs doing is done.  0: it cannot; *why_not (for free()) may say
 * more than c does. */
int recover_from(struct driver *d, const struct cause *c, char **why_not);
int recover_is_possible(const struct driver *d, int rank); /* without this one */
void recover_try(struct driver *d);  /* STAGE_WAIT: form, or give up, if it is time */
void recover_done(struct driver *d); /* a step or a whole stage is done: all is well again */
int64_t recover_deadline(const struct driver *d);  /* STAGE_WAIT */
int recover_wants_regroup(const struct driver *d); /* somebody leaves or may join */
void recover_ask_regroup(struct driver *d);        /* in training: at the next step */
void recover_regroup(struct driver *d);            /* all ranks hold the same step, and wait */
void recover_formed(struct driver *d);
void recover_farewell(struct driver *d, struct conn *c, const char *text); /* it may stop */
void recover_grow(struct driver *d); /* before Prepare: those that are ready to join */
/* A seat's `leaving` has been set: it goes when nobody needs it. */
void recover_let_leave(struct driver *d);
int recover_min_ranks(const struct driver *d);
int recover_is_ready(const struct seat *s);  /* could be in the next formation */
int recover_n_ready(const struct driver *d); /* how many could */

/* driver_drain.c */
int drain_seats(struct driver *d, const char *who, struct drained *out, struct err *err);
void drain_take_back(struct driver *d); /* if too few would be left now */

/* driver_report.c */
void run_digest(struct driver *d, int rank, struct report *r); /* takes r */
void run_moved(struct driver *d, int rank, const struct progress *p);
void run_stepped(struct driver *d, int rank, double rss_mib);

/* driver_watch.c */
/* What tells who is behind: the first of these that is true of anybody.  EARLIER: it waits in a
 * collective before the one that others are in, its own part being done. */
enum watch_sign { WATCH_OWN_WORK, WATCH_SILENCE, WATCH_EARLIER, WATCH_SIGNS };

struct watch_view { /* of the ranks at this moment */
    int first;      /* the furthest behind; -1: none that could be named */
    int n_behind;   /* with those that are no further */
    int waiting;    /* a rank in the latest collective under way; -1: none */
    enum watch_sign sign;
};

struct watch_view watch_look(const struct driver *d);
/* "rank 2 (node7, pid 4242) is in backward of step 118, bucket 3, for 12.1 s; ranks 0 1 3 wait for
 * it in bucket 3" */
void watch_put_line(const struct driver *d, const struct watch_view *v, struct buf *b);
/* "; ranks 0 1 3 wait for it in bucket 3", or nothing. */
void watch_put_waiters_for(const struct driver *d, int rank, struct buf *b);
void watch_check(struct driver *d);             /* warns, now and then */
void watch_compare(struct driver *d, int rank); /* what it reduces, or has reduced, with rank 0 */
int watch_is_silent(const struct driver *d, int rank);

int watch_is_behind(const struct driver *d, const struct watch_view *v, int rank);

/* driver_incident.c */
void incident_begin(struct driver *d, const char *text); /* before anybody is told to leave */
void incident_message(struct driver *d, int64_t conn, const Wire__Ring *m);
void incident_own(struct driver *d, int64_t now_ns, const struct collective *c, int n);
void incident_check(struct driver *d);  /* all have answered, or had the time */
void incident_finish(struct driver *d); /* now */

/* driver_pace.c */
void pace_note(struct driver *d, int rank, const struct progress *p); /* before it is seat->at */
void pace_check(struct driver *d);

/* driver_inject.c */
void inject_announce(struct driver *d);
char *inject_for_opening(const struct driver *d, int rank); /* or NULL; for free(); -1: of all */
char *inject_for_training(const struct driver *d, int rank);
void inject_happens(struct driver *d, int rank, const struct report *r);
void inject_at_stop(struct driver *d); /* Stop goes out: nobody will be able to say so */
void inject_say_unspent(struct driver *d);

/* driver_end.c */
/* Something went wrong at `rank`; `fmt` tells it whole.  c: rank, code, is_lost, phase, step.
 * A consequence waits for its cause. */
void end_accuse(struct driver *d, struct cause c, int is_consequence, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void end_lost(struct driver *d, int rank, const char *why); /* the rank is gone */
void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void end_at_once(struct driver *d);  /* the second stop request */
void end_deadline(struct driver *d); /* this stage's has passed */
void end_check_pending(struct driver *d);
void end_check_over(struct driver *d);
int end_is_saving(const struct driver *d); /* rank 0 writes a checkpoint in the midst of training */
int64_t end_stage_deadline(const struct driver *d); /* session ms, INT64_MAX: none */
/* The same, or sooner, when an engine should have left the formation before. */
int64_t end_due(const struct driver *d);
int64_t end_deadline_ms(const struct driver *d); /* how long this stage may take */
const char *stage_name(enum stage s);
void end_forget_pending(struct driver *d);
/* Abort: to one connection, or (NULL) to all members, which then are to leave; `recover`: to all
 * ranks of the formation, which are to keep their state. */
void end_send_abort(struct driver *d, const struct cause *c, struct conn *only, int recover);

#endif
