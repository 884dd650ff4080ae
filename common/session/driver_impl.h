/* driver_impl - the structs and functions that the files of the driver's session share.  No other
 * file includes this.
 *
 *   driver.c            the functions of driver.h; dispatch, time, housekeeping
 *   driver_stage.c      the stages of a job: legal moves, commands out
 *   driver_seats.c      which rank has which connection and GPU
 *   driver_gather.c     Hello, Ready, refusals
 *   driver_lead.c       going on with the run of another driver, which is gone
 *   driver_succession.c the standby, and the votes that decide who leads
 *   driver_strangers.c  log lines about connections that are not let in, limited in number
 *   driver_report.c     reports from engines
 *   driver_form.c       prepare, form: which follower trains as which rank
 *   driver_run.c        the order of epochs, validations and checkpoints
 *   driver_replicas.c   compares the ranks' replicas at the end of an epoch
 *   driver_recover.c    lost ranks: waiting, replacing, fewer ranks; leaving and joining in order
 *   driver_drain.c      ranks, spares and hosts that the operator wants back
 *   driver_watch.c      finds the rank that keeps the others waiting
 *   driver_pace.c       finds ranks that are slower than the others
 *   driver_status.c     the live table
 *   driver_inject.c     faults on purpose
 *   driver_incident.c   the last collectives of all ranks, when they wait for good
 *   driver_end.c        causes of failure, and the end of the job
 *   driver_deadline.c   the deadline of each stage, and the rank at fault when it has passed
 *
 * Each phase of a job's life has a struct of its own in struct driver.  Only the file named at that
 * struct writes it, except for resets.
 *
 * Threads: as driver.h. */
#ifndef SESSION_DRIVER_IMPL_H
#define SESSION_DRIVER_IMPL_H

#include "session/convert.h"
#include "session/driver.h"
#include "session/queue.h"

/* The stage of a job.  From STAGE_PREPARE to STAGE_CHECKPOINT all ranks of the formation obey one
 * command, and each owes one answer. */
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
    HELLO_MS = 10000,       /* a connection without Hello is closed after this time */
    REFUSED_MS = 1000,      /* the time for a refused peer to read the reason, and close */
    ABORT_MS = 800,         /* the time for peers and engine to end after an Abort ... */
    STOP_MS = 5000,         /* ... and after a Stop */
    GRACE_MS = 1500,        /* the time in which the cause of a broken collective may come */
    MISSING_LINE_MS = 5000, /* between log lines that name the missing ranks */
    CHECK_MS = 250,         /* between searches for silent ranks */
    MOST_FRUITLESS = 3,     /* recoveries by the same rank without a completed step between them */
};

enum conn_state {
    CONN_STRANGER, /* the peer has not said Hello */
    CONN_MEMBER,   /* the peer holds a seat */
    CONN_STANDBY,  /* the peer is the standby */
    CONN_LEAVING,  /* the peer was told to go; its messages are ignored */
};

struct conn {
    int64_t id;
    enum conn_state state;
    int rank;         /* CONN_MEMBER */
    int64_t until_ms; /* CONN_STRANGER, CONN_LEAVING: the time when it is closed */
    char *peer, *local, *from;
};

struct seat { /* the driver's record of one rank, or of a spare */
    int is_taken;
    int is_member;     /* 1: part of the formation; else the seat can be left without a recovery */
    int is_said;       /* 1: its join event was sent */
    int named;         /* its name in the log: n > 0: rank n, < 0: spare -n, 0: not named yet */
    char *leaving;     /* why it leaves at the next step: "left: ..."; or NULL */
    int has_state;     /* 1: it may hold a step other than 0 */
    int64_t kept;      /* the step that it held when it came; -1: it came as a new one */
    unsigned votes_in; /* bit i: it is a voter of succession.voters[i] */
    int is_drained;    /* 1: it leaves because the driver's operator wants it to, and was told so */
    int64_t joined_ms;
    int is_any;                       /* 1: it asked for any rank, so gathering may move it */
    struct conn *conn;                /* NULL: rank 0 */
    char *device;                     /* the device that it was told to use; rank 0: NULL */
    char *host, *host_id, *advertise; /* advertise: may be NULL */
    char *gpu, *gpu_bus;              /* uuid and bus of its GPU, or NULL */
    int64_t pid, pid_space;
    int64_t heard_ms;      /* when its last message of any kind came */
    struct report *opened; /* its Ready, or NULL */
    struct report *answer; /* its answer to this stage's command, or NULL */
    int64_t answered_ms;   /* when the answer came */
    struct progress at;    /* its progress as last heard; since_ns is not used for a follower */
    int64_t told_ms;       /* when `at` was heard */
    int64_t strangers_in;  /* the generation in which strangers at its data port were logged */
    int64_t moved_ms;      /* when `at` last changed, or the stage began */
    int64_t since_ms;      /* when its phase began, by its own clock if that is known */
    struct {
        int64_t from_steps, from_busy_ns; /* its counts when this window began */
        double factor;                    /* busy time / median in the last window; 0: unknown */
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

struct cause {          /* why a job ends early, or a recovery begins */
    int rank;           /* the rank at fault; -1: none */
    int is_lost;        /* 1: the rank itself is gone */
    int is_final;       /* 1: a replacement would not help, so the job ends */
    int is_consequence; /* 1: of an unknown cause: no rank is to blame, and all try again */
    int code;           /* enum err_code */
    enum phase phase;
    int64_t step; /* -1: unknown */
    char *text;   /* the whole message */
    char *host;   /* the host of a rank that has no seat any more, else NULL */
};

/* 1: samples that the rank read are damaged.  Any rank that reads them fails likewise.  If they
 * cannot be read at all (ERR_IO), the rank's own disk or mount may be at fault. */
static inline int cause_is_of_data(const struct cause *c)
{
    return c->code == ERR_CORRUPT && (phase_is_step(c->phase) || c->phase == PHASE_VALIDATE);
}

struct gather {              /* driver_gather.c: until every rank is ready */
    int64_t full_ms;         /* when the last seat was taken; -1: a seat is free */
    int64_t next_missing_ms; /* when the next line names the missing ranks */
};

struct lead {           /* driver_lead.c: the run was led by another driver before */
    int is_taking_over; /* 1: until the first formation holds the state */
    int64_t newest;     /* the newest step that a follower had begun or done */
    int64_t told_step;  /* the epoch that ended at this step has its line in events.jsonl */
    const char *source; /* "followers" or "checkpoint", until the event has said it; then NULL */
    int64_t release_ms; /* the job is finished: wait for its followers until then; 0: it is not */
};

enum { MOST_FORMATIONS = 16 };

struct succession {         /* driver_succession.c: the standby and the votes */
    struct conn *conn;      /* the standby's connection; NULL: none is connected */
    char id[VOTERS_ID];     /* the standby's id, also after it has gone */
    char *told, *advertise; /* its address for people; the address of its --iface, or NULL */
    int port;               /* the port on which the standby listens */
    int64_t heard_ms;
    struct voters voters[MOST_FORMATIONS]; /* [n] formations that ranks may name; oldest first */
    int n, is_overfull;                    /* is_overfull: 1: there was no room for one */
    int64_t formed;     /* generation of the newest one that all its ranks entered; 0: none */
    struct voters next; /* of the formation under way */
    int is_asked, is_acknowledged; /* of `next`: the standby was told; it has acknowledged */
    int is_elected;                /* 1: this driver was a standby, and its followers let it lead */
    int64_t lacking_ms;            /* since when too few voters are here; -1: enough are here */
};

struct formation { /* driver_form.c, driver_stage.c: the ranks that train together */
    int64_t generation;
    int64_t since_ns;  /* when Prepare was sent */
    int64_t formed_ms; /* when all ranks held the state */
    int has_formed;    /* 1: ranks have formed at least once in this job */
    int n_answers;     /* ranks that have answered this stage's command */
    int first_answer;  /* the rank whose answer came first */
};

struct recovery {          /* driver_recover.c: from a loss to the next completed step */
    int64_t since_ns;      /* when it began; 0: no recovery is under way */
    struct cause cause;    /* of the first loss */
    enum stage resume;     /* the stage to begin once formed: train, validate or checkpoint */
    int64_t wait_until_ms; /* STAGE_WAIT: the end of the wait for a replacement */
    int64_t settled_ms;    /* STAGE_WAIT: more losses may come until then ... */
    int64_t latest_ms;     /* ... and settled_ms is never later than this */
    int is_wait_said;      /* 1: the log says that the job waits */
    int is_orderly;        /* STAGE_WAIT: 1: no replacement is needed, as ranks left in order */
    int64_t newest_step;   /* the newest step at which a rank was seen */
    int is_midstep;        /* 1: a step was under way */
    int64_t steps_lost;
    int64_t suspect_from; /* from this step on sums may mix different steps; -1: none */
    int n_fruitless;      /* recoveries since the last completed step */
    int *n_fruitless_at;  /* [n_seats] the same, by the rank at fault */
};

struct run { /* driver_run.c: training and its results */
    int64_t epoch, step, steps_per_epoch;
    int is_epoch_open;   /* 1: Train was sent, and not all ranks have answered */
    double first_step_s; /* seconds from the start to the first step's end; < 0: not yet */
    int is_first_step_said;
    struct session_epoch last; /* the last epoch; .epoch == 0: none yet */
    char *figures;             /* last.figures */
    int is_last_said;          /* 1: the event of `last` was sent */
    int is_kept;               /* 1: its checkpoint is one of the best (train.best) */
    int stops_early;           /* 1: train.early_stop ends the job */
    int is_final;              /* 1: no epoch follows, so the present checkpoint is the last */
    int is_saving_last;        /* 1: the engine answers when the checkpoint is on disk */
    int data_wait_cause;       /* enum wait_cause */
    double data_wait_share;    /* part of the epoch so far in which rank 0 waited for data */
    int64_t saved_step;        /* step of the newest checkpoint of this process; -1: none */
    char *saved_path;          /* its path */
    int is_dir_gone;           /* the checkpoint after it failed: the run directory is gone */
    char *save_error;          /* why the final checkpoint could not be written */
    char *nonfinite;           /* why training cannot go on, once the checkpoint is written */
    int nonfinite_is_of_input; /* 1: samples or a setting are to blame for it, not the rate */
    int nonfinite_rank;        /* the rank that saw the value that is not finite; -1: unknown */
};

struct watch {                 /* driver_watch.c, driver_incident.c, driver_pace.c */
    int is_warned;             /* 1: a warning named a late rank, which has not moved on since */
    struct incident *incident; /* the incident about which ranks are being asked, or NULL */
    int n_incidents;
    int64_t incident_until_ms;
    int64_t pace_since_ms, pace_generation; /* the present window of driver_pace.c; 0: none */
};

struct ending {  /* driver_end.c: causes, stop requests, and the job's end */
    int n_stops; /* the operator's requests to stop */
    char *stop_why;
    struct cause pending; /* a consequence whose cause is awaited; .text NULL: none */
    int64_t pending_ms;   /* when that wait ends */
    /* From STAGE_ENDING on: */
    int is_deposed; /* 1: another driver leads */
    int is_silent;  /* 1: another driver leads, or may: write no events, tell followers nothing */
    int status;
    char *text;
    int is_engine_stopped;
    int64_t engine_until_ms, conns_until_ms;
    int64_t saves_until_ms; /* until then rank 0 may finish a checkpoint */
};

struct driver {
    struct driver_options o; /* with copies of all texts */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ns, now_ms; /* the caller's time in ns; session time in ms */

    enum stage stage;    /* only stage_enter changes it */
    int64_t stage_ms;    /* when it began */
    int is_engine_busy;  /* 1: rank 0's engine has a command to answer */
    struct conn **conns; /* sorted by id */
    int n_conns, cap_conns;
    struct seat *seats; /* [n_seats]: the ranks, then the spares */
    int n_ranks;        /* of the formation; o.n_ranks until some are lost for good, or join */
    int n_seats;
    /* The ranks at which searches stopped (driver_seats.c); there may be thousands of ranks. */
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

/* driver_seats.c.  None of these looks at all ranks at each call, because a job begins with at
 * least one call for each rank. */
void seat_take(struct driver *d, int rank, struct conn *c); /* a free one; the caller fills it */
void seat_use_gpu(struct driver *d, int rank, const char *uuid, const char *bus);
void seat_clear(struct driver *d, int rank);
/* 1: the seat's process is on this machine, and in this container. */
int seat_is_here(const struct driver *d, const struct seat *s);
void seat_move(struct driver *d, int from, int to); /* `to` is free */
void seats_changed(struct driver *d); /* after a change that these functions did not make */
int seat_name(const struct driver *d, int rank); /* the value of seat.named for this seat now */
/* If the log knows this seat's follower by another number, log its present one. */
void seat_say_moved(struct driver *d, int rank);
int seats_free_rank(struct driver *d);    /* the lowest; -1: none */
int seats_are_ready(struct driver *d);    /* all ranks have opened */
int seats_have_stepped(struct driver *d); /* all ranks have done a step */
/* The rank that uses this GPU, or another slice of it, which NCCL takes for the same GPU; -1: none.
 */
int seats_rank_of_gpu(const struct driver *d, const struct gpu_ref *g);

/* driver_gather.c */
void gather_hello(struct driver *d, struct conn *c, const Wire__Hello *h);
void gather_opened(struct driver *d, int rank);                 /* seats[rank].opened has come */
void gather_leave(struct driver *d, int rank, const char *why); /* the seat becomes free */
void gather_check(struct driver *d);                            /* prepare, if all are ready */
void gather_say_missing(struct driver *d);
void gather_refuse(struct driver *d, struct conn *c, Wire__Reason reason, const char *text);
/* Fill in what Welcome says to ranks and standbys alike; the texts lie in `a`. */
void gather_fill_welcome(const struct driver *d, Wire__Welcome *w, struct arena *a);

/* driver_lead.c */
/* 1: the follower may take a seat.  0: it was refused, because its kept state is of no use here. */
int lead_hears(struct driver *d, struct conn *c, const Wire__Hello *h);
void lead_seated(struct driver *d, int rank, const Wire__Hello *h);
int lead_may_begin(const struct driver *d); /* 1: with fewer ranks than were asked for */
int lead_claims_are_true(struct driver *d); /* check the steps in Endpoints; 0: accused a rank */
void lead_formed(struct driver *d);         /* all ranks hold the state */
int lead_lacks_validation(const struct driver *d); /* 1: the run broke off before the validation of
                                                       the step that rank 0 opened */
void lead_nothing_to_do(struct driver *d);         /* the state is that of the job's last step */
int lead_releases(struct driver *d); /* 1: waits for the followers of a finished job */

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
const char *succession_id(const struct driver *d); /* of the connected standby, or NULL */
/* The standby's address, as the peer of `c` reaches it, or ""; for free(). */
char *succession_address(const struct driver *d, const struct conn *c);
void succession_prepare(struct driver *d); /* a formation begins */
/* All ranks are prepared.  1: Form may go out.  0: not yet; done_prepare is called again. */
int succession_lets_form(struct driver *d);
void succession_formed(struct driver *d);
/* 1: no formation may begin now, because the standby may lead; the job may have been ended for that
 * reason. */
int succession_holds_up(struct driver *d);
int succession_wants_regroup(
    const struct driver *d); /* 1: a standby that came or went needs a formation */
int succession_all_are_here(const struct driver *d); /* 1: was a standby; all followers are here */
int succession_is_here(const struct driver *d);      /* 1: the standby is, if the run had one */
int succession_n_ranks(const struct driver *d);      /* of the newest formation; 0: none is known */
int succession_waits_no_more(const struct driver *d); /* 1: was a standby; enough came, in time */

/* driver_strangers.c */
void stranger_say(struct driver *d, const char *fmt, ...) /* a warning, unless there are too many */
    __attribute__((format(printf, 2, 3)));
void stranger_check(struct driver *d);    /* at each tick: logs how many lines were left out */
void stranger_say_rest(struct driver *d); /* the same, at once */
void stranger_at_data_port(struct driver *d, int rank, int64_t n); /* logs once in a formation */
/* 1: the follower looks for this driver's job.  0: it was refused. */
int stranger_is_of_launch(struct driver *d, struct conn *c, const Wire__Hello *h);

/* driver_stage.c */
int stage_may_follow(enum stage from, enum stage to); /* by the table of legal moves */
void stage_enter(struct driver *d, enum stage stage); /* asserts that the move is legal */
/* Enter the stage of a command; no rank has answered yet. */
void stage_begin(struct driver *d, enum stage stage, enum phase phase);
void stage_tell_rank(struct driver *d, int rank, const struct cmd *c); /* not rank 0 */
void stage_tell_all(struct driver *d, struct cmd *c);                  /* and rank 0; takes c */
const char *stage_name(enum stage s);                                  /* "train" */
enum report_kind stage_answer(enum stage s); /* what ranks owe; 0: nothing */

/* done_prepare, done_form ...: all ranks have answered the stage's command; decide what comes next.
 */
#define X(KIND, name, ANSWER, deadline) void done_##name(struct driver *d);
STAGE_LIST(X)
#undef X
void stage_done(struct driver *d); /* the one of this stage */

/* driver_form.c */
void form_prepare(struct driver *d);                        /* a formation begins */
const char *form_address(const struct driver *d, int rank); /* for the other ranks to reach it */

/* driver_replicas.c */
int replicas_differing_end(const struct driver *d); /* first rank that ended unlike rank 0; or -1 */
int replicas_are_equal(struct driver *d); /* 1: all hold the same bits; 0: the job has failed */

/* driver_run.c */
void run_note_checkpoint(struct driver *d, const struct report *r); /* rank 0's */
void run_say_epoch(struct driver *d);      /* the event of the last epoch, unless it is out */
int run_is_saving(const struct driver *d); /* rank 0 writes a checkpoint in mid-training */
void run_fini(struct driver *d);
int run_nothing_to_do(const struct driver *d, int64_t step);
const char *run_reason(const struct driver *d); /* what ended the training: "epochs", ... */

/* driver_recover.c */
/* Recover from a loss.  1: the job goes on, and everything was done for that.  0: it cannot go on;
 * *why_not (for free()) may say more than c does. */
int recover_from(struct driver *d, const struct cause *c, char **why_not);
int recover_is_possible(const struct driver *d, int rank); /* without this rank */
void recover_absent(struct driver *d); /* STAGE_GATHER: ranks that have not come are lost */
void recover_try(struct driver *d);    /* STAGE_WAIT: form, or give up, if it is time */
void recover_done(struct driver *d);   /* a step or a whole stage is done: the recovery is over */
int64_t recover_deadline(const struct driver *d);  /* STAGE_WAIT */
int recover_wants_regroup(const struct driver *d); /* a rank leaves, or one may join */
void recover_ask_regroup(struct driver *d);        /* in training: at the next step */
void recover_regroup(struct driver *d);            /* all ranks hold the same step, and wait */
void recover_formed(struct driver *d);
void recover_fini(struct driver *d);
void recover_farewell(struct driver *d, struct conn *c, const char *text); /* Stop, to one peer */
void recover_grow(struct driver *d); /* before Prepare: take in followers that are ready */
/* A seat's `leaving` has been set: let its rank go when the others do not need it. */
void recover_let_leave(struct driver *d);
void recover_shrink(struct driver *d); /* to the ranks that are ready */
int recover_min_ranks(const struct driver *d);
int recover_is_ready(const struct seat *s);  /* 1: it could be in the next formation */
int recover_n_ready(const struct driver *d); /* the number of such ranks */

/* driver_drain.c */
int drain_seats(struct driver *d, const char *who, struct drained *out, struct err *err);
void drain_take_back(struct driver *d); /* if too few would be left now */

/* driver_report.c */
void run_digest(struct driver *d, int rank, struct report *r); /* takes r */
void run_moved(struct driver *d, int rank, const struct progress *p);
void run_stepped(struct driver *d, int rank, double rss_mib);

/* driver_watch.c */
/* Signs that a rank is behind, the surest first.  The first sign that is true of any rank counts.
 * WATCH_EARLIER: the rank has done its own part, but waits in an earlier collective than others. */
enum watch_sign { WATCH_OWN_WORK, WATCH_SILENCE, WATCH_EARLIER, WATCH_SIGNS };

struct watch_view { /* of the ranks at this moment */
    int first;      /* the rank furthest behind; -1: none can be named */
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
void watch_check(struct driver *d);             /* at each tick: warns of a late rank */
void watch_compare(struct driver *d, int rank); /* its collectives with those of rank 0 */
int watch_is_silent(const struct driver *d, int rank);

int watch_is_behind(const struct driver *d, const struct watch_view *v, int rank);

/* driver_incident.c */
void incident_begin(struct driver *d, const char *text); /* before any rank is told to leave */
void incident_silent(struct driver *d, int rank, const char *why); /* a rank is about to be lost */
void incident_message(struct driver *d, int64_t conn, const Wire__Ring *m);
void incident_own(struct driver *d, int64_t now_ns, const struct collective *c, int n);
void incident_check(struct driver *d);  /* hands it over, once all have answered or had the time */
void incident_finish(struct driver *d); /* hands it over now */

/* driver_pace.c */
void pace_note(struct driver *d, int rank, const struct progress *p); /* before seat->at changes */
void pace_check(struct driver *d);

/* driver_inject.c */
void inject_announce(struct driver *d);
/* The faults that are due at a rank (-1: all ranks) until Ready, and from then on; for free(). */
char *inject_for_opening(const struct driver *d, int rank);
char *inject_for_training(const struct driver *d, int rank);
void inject_happens(struct driver *d, int rank, struct report *r);
void inject_at_stop(struct driver *d); /* when Stop is sent: followers cannot report any more */
void inject_say_unspent(struct driver *d);

/* driver_end.c */
/* Something went wrong at c.rank.  `fmt` is the whole message.  The caller sets c's rank, code,
 * is_lost, phase and step.  For a consequence, the driver waits for its cause (GRACE_MS). */
void end_accuse(struct driver *d, struct cause c, int is_consequence, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A cause at this rank, where it was when last heard, for end_accuse. */
struct cause end_cause_at(const struct driver *d, int rank, int code);
void end_lost(struct driver *d, int rank, const char *why); /* the rank is gone */
void end_misbehaved(struct driver *d, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_stop(struct driver *d, Wire__Outcome outcome, int status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The job is finished.  All followers are told so, and then the event is sent.  Takes the pointers
 * in *done. */
void end_finished(struct driver *d, struct session_event *done, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void end_deposed(struct driver *d, const char *by);
/* End, because `who`, of which nothing was heard, may lead the run. */
void end_unelected(struct driver *d, const char *who, const char *remedy);
void end_at_once(struct driver *d); /* the second stop request */
/* The job is ending: let it end now.  The engine still gets the moment that it needs to notice. */
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

/* driver_deadline.c */
int64_t deadline_ms(const struct driver *d);       /* how long this stage may take */
int64_t deadline_of_stage(const struct driver *d); /* its end; session ms, INT64_MAX: none */
/* The same, or the earlier time at which an engine should have left the formation before. */
int64_t deadline_due(const struct driver *d);
void deadline_passed(struct driver *d); /* accuse the rank at fault, if it can be named */

#endif
