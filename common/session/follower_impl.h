/* follower_impl - the structs and functions that the files of the follower's session share.  No
 * other file includes this.
 *
 *   follower.c           the functions of follower.h; the driver's messages, time, the end
 *   follower_keep.c      the state that is kept while there is no driver
 *   follower_leave.c     the ways in which it leaves of its own will
 *   follower_report.c    reports from the engine
 *   follower_send.c      messages to the driver
 *   follower_describe.c  its state, as text for people
 *
 * Threads: as follower.h. */
#ifndef SESSION_FOLLOWER_IMPL_H
#define SESSION_FOLLOWER_IMPL_H

#include "session/convert.h"
#include "session/follower.h"
#include "session/queue.h"

enum { CONN = 0 };

enum { ENGINE_ABORT_MS = 800 }; /* the time for an engine that was aborted to stop */

enum stage {
    STAGE_HELLO,  /* waits for Welcome */
    STAGE_JOINED, /* does what the driver says */
    STAGE_SEEK,   /* the driver was lost; the caller looks for it */
    STAGE_ENDING, /* connection closed; waits for the engine */
    STAGE_OVER
};

struct kept {                /* follower_keep.c: values that outlive a connection */
    char *run, *leader;      /* the run, and the driver that led it; NULL before Welcome */
    char job[HASH_TEXT_LEN]; /* hash of the job that the engine opened */
    int64_t term, timeout_ms;
    struct frame *ready; /* the engine's answer to CMD_OPEN, for each driver; NULL: not yet */
    int64_t until_ms;    /* when the search for a driver ends */
    char *why;           /* how the driver was lost */
    char *said;          /* why the last driver that was found is of no use; NULL: none was found */
    int64_t step;        /* the step held when the driver was lost */
    int is_in_step;      /* 1: the next step was under way then */
    char *standby;       /* where the standby listens; NULL: there is none */
    char *votes_for;     /* id of the standby that Prepare named; NULL: none */
    struct voters form;  /* the newest formation whose Form came */
    int form_rank;       /* this follower's rank in it */
    int64_t entered;     /* generation of the newest formation whose state it took */
    int is_wrong;        /* 1: a driver found wrong bits of it, of which the next one is told */
};

struct follower {
    struct follower_options o; /* with copies of all texts; gpus and backends are only in Hello */
    struct action_queue out;
    struct session_clock clock;
    int64_t now_ms;

    enum stage stage;
    int rank, n_ranks;
    char *device, *driver_host;
    int64_t beat_ms, timeout_ms;
    int64_t heard_ms, next_beat_ms;
    int64_t generation;
    int64_t aborted; /* reports of this generation, and of older ones, are dropped */
    int is_waiting;  /* 1: it waits for the next formation */
    int is_spare;
    char *leaving; /* why it leaves, once the driver lets it; or NULL */
    int64_t leave_until_ms;
    int is_drained; /* 1: the driver's operator wants it out, so it does not come back */

    struct kept kept;
    int has_engine;         /* 1: CMD_OPEN was sent */
    enum cmd_kind doing;    /* the command that is not yet answered; 0: none */
    struct progress at;     /* of the engine */
    int64_t moved_ms;       /* when its phase began */
    int64_t now_ns;         /* the caller's */
    int has_stepped;        /* 1: a report said that its first step is done */
    double rss_mib;         /* resident memory at that time */
    char *fault;            /* why this engine cannot go on; NULL: it can */
    int is_consequence;     /* 1: another rank caused the fault */
    int64_t fault_until_ms; /* the driver must have answered the fault by then */
    int is_gpu_lost;        /* 1: its GPU failed, and only a new process can use it */

    int64_t echo_ns, echo_at_ns; /* the driver's clock in its last heartbeat, and ours then; 0 */

    int64_t inspected; /* the incident that the driver asked about last */

    char *heeds;                 /* cluster.notice; NULL before Welcome */
    char source[MSG_MAX_SOURCE]; /* of the notice that this machine goes away; "": none came */
    int64_t goes_in_s;           /* as that notice says; -1: not known */
    int is_notice_copied;        /* 1: the first signal after the notice came */
    int is_notice_sent;          /* 1: the driver was told of it */

    int n_stops;
    int status;
    enum retry retry;
    char *text;
    int is_engine_stopped;
    int64_t engine_until_ms;
};

/* follower.c.  follower_set_stage asserts that the move is legal. */
void follower_set_stage(struct follower *f, enum stage stage);
/* follower.c: every event begins with enter and ends with leave; finish is called at most once. */
void follower_enter(struct follower *f, int64_t now_ns);
void follower_leave(struct follower *f);
void follower_abort(struct follower *f); /* the engine's command; then wait for Prepare */

struct ending {
    int status;
    enum retry retry;
    int is_closed; /* 1: the connection is gone already */
    int is_abort;  /* 1: the engine aborts its command */
};

/* fmt: why, for ACTION_FINISHED. */
void follower_finish(struct follower *f, struct ending e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* follower_keep.c */
int keep_is_possible(const struct follower *f); /* 1: there is a state to keep without the driver */
void keep_seek(struct follower *f, int is_closed, const char *why);
/* The driver that was found is of no use, for the reason `why`: seek on. */
void keep_seek_on(struct follower *f, int is_closed, const char *why);
void keep_note_welcome(struct follower *f, const Wire__Welcome *w);
void keep_note_opened(struct follower *f, struct frame *ready); /* refers to it */
void keep_check(struct follower *f);                            /* gives up if it is time */
void keep_note_standby(struct follower *f, const char *address);
void keep_note_command(struct follower *f, const struct cmd *c); /* Prepare and Form */
void keep_rejoin(struct follower *f, const Wire__Welcome *w);
void keep_fini(struct follower *f);

/* follower_send.c */
void follower_send_hello(struct follower *f, const struct follower_options *o);
void follower_send_beat(struct follower *f);
void follower_send_goodbye(struct follower *f, const char *text, int is_polite);

#endif
