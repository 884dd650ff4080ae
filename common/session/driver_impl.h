/* driver_impl - the driver's insides, shared by its files and nobody else.
 *
 *   driver.c            what the caller sees; dispatch, time, housekeeping
 *   driver_stage.c      the stages of a job: legal moves, commands out
 *   driver_seats.c      which rank has which connection and GPU
 *   driver_gather.c     Hello, Ready, refusals
 *   driver_lead.c       going on with the run of a driver that is gone
 *   driver_succession.c the standby, and the votes that decide who leads
 *   driver_strangers.c  log lines about connections that come to nothing, not too many
 *   driver_report.c     reports in
 *   driver_form.c       prepare, form: which follower trains as which rank
 *   driver_run.c        epochs, validations, checkpoints: what comes next
 *   driver_replicas.c   did all ranks come to the same end of an epoch?
 *   driver_recover.c    lost ranks: waiting, replacing, fewer ranks; leaving and joining in order
 *   driver_drain.c      ranks, spares and hosts that the operator wants back
 *   driver_watch.c      which rank keeps the others waiting
 *   driver_pace.c       which rank is slower than the others
 *   driver_status.c     the live table
 *   driver_inject.c     faults on purpose
 *   driver_incident.c   the last collectives of all ranks, when they wait for good
 *   driver_end.c        causes and the end of the job
 *
 * Each phase of a job's life has a struct of its own in struct driver; its file alone writes it,
 * but for resets. */
#ifndef SESSION_DRIVER_IMPL_H
#define SESSION_DRIVER_IMPL_H

#include "session/convert.h"
#include "session/driver.h"
#include "session/queue.h"

/* Where a job is.  From STAGE_PREPARE to STAGE_CHECKPOINT all ranks of the formation obey one
 * command and owe one answer. */
enum stage {
    STAGE_NEW,
    STAGE_GATHER,
    STAGE_WAIT, /* for the replacement of a lost rank */
#define X(KIND, name, ANSWER, deadline) STAGE_##KIND,
    STAGE_LIST(X)
#undef X
        STAGE_ENDING,
    STAGE_OVER,
    STAGE_COUNT
};

enum {
    HELLO_MS = 10000,       /* a connection that says nothing for so long is closed */
    REFUSED_MS = 1000,      /* a refused peer may read why, and close */
    ABORT_MS = 800,         /* peers and engine may end after an Abort ... */
    STOP_MS = 5000,         /* ... and after a Stop */
    GRACE_MS = 1500,        /* a better explanation than "a collective broke off" may come */
    MISSING_LINE_MS = 5000, /* between log lines that name the missing ranks */
    CHECK_MS = 250,         /* between searches for silent ranks */
    MOST_FRUITLESS = 3,     /* recoveries without a completed step, for faults at one rank */
};

enum conn_state {
    CONN_STRANGER, /* has not said Hello */
    CONN_MEMBER,   /* holds a seat */
    CONN_STANDBY,  /* the standby's */
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
    int is_member;     /* of the formation; a seat that is not may be left without harm */
    int is_said;       /* its join event is out */
    int named;         /* as the log knows it: rank 1 ..., spare -1 ...; 0: not at all */
    char *leaving;     /* why it leaves at the next step: "left: ..."; or NULL */
    int has_state;     /* it may hold a step other than 0 */
    int64_t kept;      /* number of steps that it held when it came; -1: it came as a new one */
    unsigned votes_in; /* bit i: it is a voter of succession.voters[i] */
    int is_drained;    /* it leaves because the operator of the driver wants it, and was told so */
    int64_t joined_ms;
    int is_any;                       /* asked for any rank: may be moved while gathering */
    struct conn *conn;                /* NULL: rank 0 */
    char *device;                     /* that it was told to use; rank 0: NULL */
    char *host, *host_id, *advertise; /* advertise: may be NULL */
    char *gpu, *gpu_bus;              /* uuid and bus of its GPU, or NULL */
    int64_t pid, pid_space;
    int64_t heard_ms;      /* when its last message of any kind came */
    struct report *opened; /* its Ready */
    struct report *answer; /* to this stage's command */
    int64_t answered_ms;   /* when the answer came */
    struct progress at;    /* as last heard; since_ns of a follower: unused */
    int64_t told_ms;       /* when `at` was heard */
    int64_t strangers_in;  /* the generation in which strangers at its data port were told */
    int64_t moved_ms;      /* when `at` last changed, or the stage began */
    int64_t since_ms;      /* when its phase began, by its own clock as far as that is known */
    struct {
        int64_t from_steps, from_busy_ns; /* when this window began */
        double factor;                    /* busy time by the median's, last window; 0: unknown */
        double step_ms;                   /* wall time of the latest steps; 0: none */
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
    int is_consequence; /* of something unknown: no rank is to blame, all try again */
    int code;           /* enum err_code */
    enum phase phase;
    int64_t step; /* -1: unknown */
    char *text;   /* the whole message */
    char *host;   /* of a rank that has no seat any more, else NULL */
};

struct gather {              /* driver_gather.c: until every rank is ready */
    int64_t full_ms;         /* when the last seat was taken; -1: a seat is free */
    int64_t next_missing_ms; /* when the next line names the missing ranks */
};

struct lead {           /* driver_lead.c: the run was led by another driver before */
    int is_taking_over; /* until the first formation holds the state */
    int64_t newest;     /* newest step that a follower had begun or done */
    int64_t told_step;  /* the epoch that ended at this step has its line in events.jsonl */
    const char *source; /* of the state, until that is told: "followers", "checkpoint"; else NULL */
    int64_t release_ms; /* the job is finished, and its followers are awaited until then; 0: no */
};

enum { MOST_FORMATIONS = 16 };

struct succession {         /* driver_succession.c: the driver after this one */
    struct conn *conn;      /* the standby's; NULL: none is connected */
    char id[VOTERS_ID];     /* its, also after it has gone */
    char *told, *advertise; /* where it listens, for people; its --iface or NULL */
    int port;
    int64_t heard_ms;
    struct voters voters[MOST_FORMATIONS]; /* of formations that ranks may tell of; oldest first */
    int n, is_overfull;                    /* their number; one had no room */
    int64_t formed;     /* generation of the newest that all its ranks entered; 0: none */
    struct voters next; /* of the formation under way */
    int is_asked, is_acknowledged; /* the standby was told of it; it knows it */
    int is_elected;                /* this driver was a standby, and may lead */
    int64_t lacking_ms;            /* since when too few voters are here; -1: enough are */
};

struct formation { /* driver_form.c, driver_stage.c: the ranks that train together */
    int64_t generation;
    int64_t since_ns;  /* when Prepare went out */
    int64_t formed_ms; /* when all held the state */
    int has_formed;    /* once, in this job */
    int n_answers;     /* to this stage's command */
    int first_answer;  /* the rank whose answer came first */
};

struct recovery {          /* driver_recover.c: from a loss to the next completed step */
    int64_t since_ns;      /* 0: none under way */
    struct cause cause;    /* the first */
    enum stage resume;     /* the stage to begin once formed: train, validate or checkpoint */
    int64_t wait_until_ms; /* STAGE_WAIT: for a replacement */
    int64_t settled_ms;    /* STAGE_WAIT: more losses may come until then, */
    int64_t latest_ms;     /* which is never later than this */
    int is_wait_said;
    int is_orderly;      /* STAGE_WAIT for no replacement: the missing left in order */
    int64_t newest_step; /* that any rank was seen at */
    int is_midstep;      /* a step was under way */
    int64_t steps_lost;
    int64_t suspect_from; /* steps from this one on may hold sums of different steps; -1: none */
    int n_fruitless;      /* recoveries since the last completed step */
    int *n_fruitless_at;  /* [n_seats] the same, by rank at fault */
};

struct run { /* driver_run.c: training, and what came of it */
    int64_t epoch, step, steps_per_epoch;
    int is_epoch_open;   /* Train is out, and not every rank's answer is in */
    double first_step_s; /* since the start; < 0: not yet */
    int is_first_step_said;
    struct session_epoch last; /* .epoch == 0: none yet */
    int is_last_said;          /* its event is out */
    int is_kept;               /* its checkpoint is one of the best (train.best) */
    int stops_early;           /* train.early_stop ends the job */
    int is_final;              /* no epoch follows: the checkpoint being written is the last */
    int is_saving_last;        /* the engine answers when the checkpoint is on disk */
    double data_wait_share;    /* of the epoch so far, rank 0 waited for data */
    int64_t saved_step;        /* of the newest checkpoint written here, -1: none */
    char *saved_path;          /* of it */
    char *save_error;          /* why the final checkpoint could not be written */
    char *nonfinite;           /* why training cannot go on, once the checkpoint is written */
    int nonfinite_rank;        /* the rank that saw it; -1: unknown */
};

struct watch {                 /* driver_watch.c, driver_incident.c, driver_pace.c */
    int is_warned;             /* a rank is late, and a warning said so; until it moves on */
    struct incident *incident; /* that ranks are being asked about; or NULL */
    int n_incidents;
    int64_t incident_until_ms;
    int64_t pace_since_ms, pace_generation; /* this window of driver_pace.c; 0: none */
};

struct ending {  /* driver_end.c: causes, stop requests, the last moments */
    int n_stops; /* requests by the operator */
    char *stop_why;
    struct cause pending; /* a consequence in search of its cause; .text NULL: none */
    int64_t pending_ms;   /* when the search ends */
    /* From STAGE_ENDING on: */
    int is_deposed; /* another driver leads */
    int is_silent;  /* another one leads, or may: no events, no word to followers */
    int status;
    char *text;
    int is_engine_stopped;
    int64_t engine_until_ms, conns_until_ms;
    int64_t saves_until_ms; /* rank 0 may take so long to finish a checkpoint */
};

struct driver {
    struct driver_options o; /* its texts are ours */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ns, now_ms; /* the caller's; session time */

    enum stage stage;    /* changed by stage_enter alone */
    int64_t stage_ms;    /* when it began */
    int is_engine_busy;  /* rank 0's engine has a command to answer */
    struct conn **conns; /* by rising id */
    int n_conns, cap_conns;
    struct seat *seats; /* [n_seats]: the ranks, then the spares */
    int n_ranks;        /* of the formation; o.n_ranks until some are lost for good, or join */
    int n_seats;
    /* Where a search over all ranks left off (driver_seats.c), of which thousands may come. */
    int free_from, unready, unstepped;
    int n_here;           /* ranks whose seat is taken */
    void *gpus;           /* tsearch: struct gpu_use */
    struct {              /* driver_strangers.c */
        int64_t since_ms; /* when the window's first line was said */
        int n_said, n_unsaid;
    } strangers;
    int64_t beat_ms, timeout_ms; /* heartbeats: interval, silence that means lost */
    int64_t next_beat_ms, next_check_ms;

    struct gather gather;
    struct lead lead;
    struct succession succession;
    struct formation formation;
    struct run run;
    struct recovery recovery;
    struct watch watch;
    struct ending ending;
};

/* driver.c */
void driver_drop_conn(struct driver *d, struct conn *c);         /* forget it; no action */
void driver_leave(struct driver *d, struct conn *c, int64_t ms); /* now CONN_LEAVING */
void driver_send(struct driver *d, const struct conn *c, const Wire__Control *m);
void driver_event(struct driver *d,
                  struct session_event *e);           /* takes its pointers; host from rank */
char *driver_label(const struct driver *d, int rank); /* "rank 1 (hostB)", for free() */

/* driver_seats.c: none of these looks at all ranks each time, as a job begins with one call for
 * each rank */
void seat_take(struct driver *d, int rank, struct conn *c); /* a free one; the caller fills it */
void seat_use_gpu(struct driver *d, int rank, const char *uuid, const char *bus);
void seat_clear(struct driver *d, int rank);
/* 1: the seat's pid is one of ours: of this machine, and of this container. */
int seat_is_here(const struct driver *d, const struct seat *s);
void seat_move(struct driver *d, int from, int to); /* `to` is free */
void seats_changed(struct driver *d); /* after a change that these functions did not make */
int seat_name(const struct driver *d, int rank); /* what seat.named is for this seat now */
/* Log which rank or spare this seat's follower is from here on, if the log has another number. */
void seat_say_moved(struct driver *d, int rank);
int seats_free_rank(struct driver *d);    /* the lowest; -1: none */
int seats_are_ready(struct driver *d);    /* all ranks have opened */
int seats_have_stepped(struct driver *d); /* all ranks have done a step */
/* The rank that uses this GPU, or another slice of it, which is the same GPU to NCCL; -1: none. */
int seats_rank_of_gpu(const struct driver *d, const struct gpu_ref *g);

/* driver_gather.c */
void gather_hello(struct driver *d, struct conn *c, const Wire__Hello *h);
void gather_opened(struct driver *d, int rank);                 /* seats[rank].opened has come */
void gather_leave(struct driver *d, int rank, const char *why); /* the seat becomes free */
void gather_check(struct driver *d);                            /* prepare, if all are ready */
void gather_say_missing(struct driver *d);
void gather_refuse(struct driver *d, struct conn *c, Wire__Reason reason, const char *text);

/* driver_lead.c */
/* 1: this Hello may take a seat.  0: it was refused, since what it kept is of no use here. */
int lead_hears(struct driver *d, struct conn *c, const Wire__Hello *h);
void lead_seated(struct driver *d, int rank, const Wire__Hello *h);
int lead_may_begin(const struct driver *d); /* with fewer ranks than were asked for */
int lead_claims_are_true(struct driver *d); /* the steps in Endpoints; 0: a rank was accused */
void lead_formed(struct driver *d);         /* all ranks hold the state */
void lead_nothing_to_do(struct driver *d);  /* the state is the job's last */
int lead_releases(struct driver *d);        /* 1: a finished job's followers are awaited */

/* driver_succession.c */
void succession_init(struct driver *d);
void succession_say_leader(struct driver *d); /* this driver was a standby, and leads now */
void succession_fini(struct driver *d);
void succession_hello(struct driver *d, struct conn *c, const Wire__Hello *h);
void succession_message(struct driver *d, struct conn *c, const Wire__Control *m);
void succession_lost(struct driver *d, struct conn *c,
                     const char *why); /* nothing if c is another's */
void succession_release(struct driver *d);
void succession_seated(struct driver *d, int rank, const Wire__Hello *h);
int succession_votes(const struct driver *d);      /* 1: the standby that is connected has a vote */
const char *succession_id(const struct driver *d); /* of the one that is connected, or NULL */
/* Where it listens, as the peer of `c` reaches it, or ""; for free(). */
char *succession_address(const struct driver *d, const struct conn *c);
void succession_prepare(struct driver *d); /* a formation begins */
/* All ranks are prepared.  1: Form may go out.  0: not yet; done_prepare is called again. */
int succession_lets_form(struct driver *d);
void succession_formed(struct driver *d);
/* 1: no formation may begin now, as the standby may lead; the job may have ended for that. */
int succession_holds_up(struct driver *d);
int succession_wants_regroup(
    const struct driver *d); /* its vote, or its absence, needs a formation */
int succession_all_are_here(const struct driver *d); /* a standby leads, and has all followers */
int succession_is_here(const struct driver *d);      /* so is the standby, if the run had one */
int succession_n_ranks(const struct driver *d);      /* of the newest formation; 0: none is known */
int succession_waits_no_more(const struct driver *d); /* ... and those that came are enough */

/* driver_strangers.c */
void stranger_say(struct driver *d, const char *fmt, ...) /* a warning, unless there are too many */
    __attribute__((format(printf, 2, 3)));
void stranger_check(struct driver *d);    /* at each tick: says how many lines were left out */
void stranger_say_rest(struct driver *d); /* the same, at once */
void stranger_at_data_port(struct driver *d, int rank, int64_t n); /* told once a formation */

/* driver_stage.c */
int stage_may_follow(enum stage from, enum stage to); /* by the table of legal moves */
void stage_enter(struct driver *d, enum stage stage); /* asserts that the move is legal */
/* Enter the stage of a command; no rank has answered yet. */
void stage_begin(struct driver *d, enum stage stage, enum phase phase);
void stage_tell_rank(struct driver *d, int rank, const struct cmd *c); /* not rank 0 */
void stage_tell_all(struct driver *d, struct cmd *c);                  /* and rank 0; takes c */
const char *stage_name(enum stage s);                                  /* "train" */
enum report_kind stage_answer(enum stage s); /* what ranks owe; 0: nothing */

/* All ranks have answered the stage's command: each decides what comes next.  done_prepare, ... */
#define X(KIND, name, ANSWER, deadline) void done_##name(struct driver *d);
STAGE_LIST(X)
#undef X
void stage_done(struct driver *d); /* the one of this stage */

/* driver_form.c */
void form_prepare(struct driver *d);                        /* a formation begins */
const char *form_address(const struct driver *d, int rank); /* at which the others reach it */

/* driver_replicas.c */
int replicas_differing_end(const struct driver *d); /* first rank that ended unlike rank 0; or -1 */
int replicas_are_equal(struct driver *d); /* 1: all hold the same bits; 0: the job has failed */

/* driver_run.c */
void run_note_checkpoint(struct driver *d, const struct report *r); /* rank 0's */
void run_say_epoch(struct driver *d); /* the event of the last epoch, unless it is out */
void run_fini(struct driver *d);
int run_nothing_to_do(const struct driver *d, int64_t step);
const char *run_reason(const struct driver *d); /* what ended the training: "epochs", ... */

/* driver_recover.c */
/* 1: the job goes on, all that needs doing is done.  0: it cannot; *why_not (for free()) may say
 * more than c does. */
int recover_from(struct driver *d, const struct cause *c, char **why_not);
int recover_is_possible(const struct driver *d, int rank); /* without this rank */
void recover_absent(struct driver *d); /* STAGE_GATHER: ranks that have not come are lost */
void recover_try(struct driver *d);    /* STAGE_WAIT: form, or give up, if it is time */
void recover_done(struct driver *d);   /* a step or a whole stage is done: all is well again */
int64_t recover_deadline(const struct driver *d);  /* STAGE_WAIT */
int recover_wants_regroup(const struct driver *d); /* a rank leaves, or one may join */
void recover_ask_regroup(struct driver *d);        /* in training: at the next step */
void recover_regroup(struct driver *d);            /* all ranks hold the same step, and wait */
void recover_formed(struct driver *d);
void recover_fini(struct driver *d);
void recover_farewell(struct driver *d, struct conn *c, const char *text); /* Stop, to one */
void recover_grow(struct driver *d); /* before Prepare: those that are ready to join */
/* A seat's `leaving` has been set: its rank goes when the others do not need it. */
void recover_let_leave(struct driver *d);
void recover_shrink(struct driver *d); /* to the ranks that are ready */
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
/* Signs that a rank is behind, the surest first; the first that is true of any rank counts.
 * EARLIER: it waits in an earlier collective than others, having done its own part. */
enum watch_sign { WATCH_OWN_WORK, WATCH_SILENCE, WATCH_EARLIER, WATCH_SIGNS };

struct watch_view { /* of the ranks at this moment */
    int first;      /* the rank furthest behind; -1: none that could be named */
    int n_behind;   /* number of ranks behind */
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
void watch_compare(struct driver *d, int rank); /* its collectives with rank 0's */
int watch_is_silent(const struct driver *d, int rank);

int watch_is_behind(const struct driver *d, const struct watch_view *v, int rank);

/* driver_incident.c */
void incident_begin(struct driver *d, const char *text); /* before any rank is told to leave */
void incident_message(struct driver *d, int64_t conn, const Wire__Ring *m);
void incident_own(struct driver *d, int64_t now_ns, const struct collective *c, int n);
void incident_check(struct driver *d);  /* hands it over if all have answered, or had the time */
void incident_finish(struct driver *d); /* hands it over now */

/* driver_pace.c */
void pace_note(struct driver *d, int rank, const struct progress *p); /* before seat->at changes */
void pace_check(struct driver *d);

/* driver_inject.c */
void inject_announce(struct driver *d);
char *inject_for_opening(const struct driver *d, int rank); /* or NULL; for free(); -1: all ranks */
char *inject_for_training(const struct driver *d, int rank);
void inject_happens(struct driver *d, int rank, const struct report *r);
void inject_at_stop(struct driver *d); /* when Stop goes out: followers cannot say so any more */
void inject_say_unspent(struct driver *d);

/* driver_end.c */
/* Something went wrong at c.rank; `fmt` is the whole message.  The caller sets c's rank, code,
 * is_lost, phase and step.  A consequence waits for its cause. */
void end_accuse(struct driver *d, struct cause c, int is_consequence, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void end_lost(struct driver *d, int rank, const char *why); /* the rank is gone */
void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The job is finished.  All are told so; then the event is, whose pointers are taken. */
void end_finished(struct driver *d, struct session_event *done, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_deposed(struct driver *d, const char *by);
/* `who`, of which nothing was heard, may lead. */
void end_unelected(struct driver *d, const char *who, const char *remedy);
void end_at_once(struct driver *d);  /* the second stop request */
void end_deadline(struct driver *d); /* this stage's has passed */
void end_check_pending(struct driver *d);
void end_check_over(struct driver *d);
int end_is_saving(
    const struct driver *d); /* rank 0 writes a checkpoint in the middle of training */
int64_t end_stage_deadline(const struct driver *d); /* session ms, INT64_MAX: none */
/* The same, or sooner: when an engine should have left the formation before. */
int64_t end_due(const struct driver *d);
int64_t end_deadline_ms(const struct driver *d); /* how long this stage may take */
void end_forget_pending(struct driver *d);
void end_fini(struct driver *d);
/* Abort: to one connection, or (only == NULL) to all members, which then leave; `recover`: to all
 * ranks of the formation, which keep their state. */
void end_send_abort(struct driver *d, const char *text, struct conn *only, int recover);

#endif
