/* driver - the session machine of the driver: the life of one job, as rank 0 leads it.  The process
 * around it is driver/server.c.
 *
 *   gather   until every rank has said Hello, was welcomed and is Ready; a follower that leaves or
 *            is refused in this stage only frees its place
 *   prepare  programs and endpoints
 *   form     communicator connected, state broadcast
 *   train, validate, checkpoint   per epoch; replicas compared after each
 *   wait     a rank was lost: wait for its replacement, then prepare the next generation
 *   ending   Stop or Abort was sent; wait for the engine, and for the followers to close
 *
 * Pure: no sockets, clock or threads.  Every event carries the time (CLOCK_MONOTONIC ns, never
 * going back).  Drain driver_next after every call (session/action.h).  Call driver_tick when
 * driver_deadline passes.  Time in which the caller's loop stalled (a tick that came late) does
 * not count against any rank.
 *
 * From prepare on, the loss or failure of a follower breaks the formation: all ranks abort their
 * command and keep their state.  A spare, or a follower that comes within replace_timeout, takes
 * the free place; or fewer ranks go on (driver_recover.c).  The job ends only if none of that is
 * possible, if recoveries fail again and again, or if rank 0 itself fails.  Followers that come
 * while fewer than max_ranks train are taken in at the end of a step, at most once per
 * join_interval.
 *
 * The driver waits a moment before a fault ends a job: a collective that broke off (a fault with
 * is_consequence) is never the first cause while another explanation may still come.
 *
 * Life:    driver_new -> driver_start -> events ... until ACTION_FINISHED -> driver_free.
 * Threads: one at a time. */
#ifndef SESSION_DRIVER_H
#define SESSION_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "config/cluster.h"
#include "session/account.h"
#include "session/action.h"
#include "session/energy.h"
#include "session/notice.h"
#include "session/status.h"
#include "session/voters.h"
#include "wire/msg.h"

struct driver; /* opaque */

/* The run as events.jsonl describes it since its newest formation; all 0: it has no such line. */
struct led {
    int64_t generation;          /* of the newest formation */
    int64_t step;                /* the newest step in the file */
    int64_t epoch_step;          /* the last step of the newest epoch that has its line ... */
    int64_t validated_step;      /* ... and of the newest epoch whose line has a validation */
    struct account_past account; /* where the time of the run went */
    struct energy_sums energy;   /* what it took */
    struct voters voters;        /* of the newest formation in which a standby votes */
    double live_lr;              /* what that formation says of --set-live; 0: nothing */
    int64_t live_step;
    int is_done; /* 1: the ranks of that formation were told that the job is finished */
};

struct driver_options { /* copied; texts may be NULL where said */
    int n_ranks;        /* number of ranks, the driver included */
    const void *job;    /* job_pack's bytes (job/imported.h), for CMD_OPEN and Welcome */
    size_t job_len;
    const char *host;       /* this host's name */
    const char *host_id;    /* equal for all processes on this machine: boot id */
    int64_t pid, pid_space; /* of this process (base/host.h) */
    const char *device;     /* of rank 0, resolved: "cpu", "cuda:0" */
    const char *gpu_uuid;   /* of that device; NULL: cpu */
    const char *gpu_bus;    /* PCI address of that GPU; NULL: unknown */
    int shares_gpus;        /* --test-shared-gpu: several ranks may use one */
    const char *advertise;  /* --iface: numeric address for other ranks; NULL: as found */
    const char *launch;     /* the launcher's name of the job; NULL: there is none */
    const char *resume;     /* run directory to resume from; NULL: start afresh */
    const char *evaluate;   /* as CMD_OPEN's: validate these weights once, and end; NULL: train */
    int is_test;            /* 1: nothing is saved, and numbers that are not finite end the job in
                               order */
    int is_divided;         /* 1: each rank holds a part of the state, so none can save it alone */
    int is_only_holder;     /* 1: no other rank has a copy of a rank's part */
    int n_children;         /* followers that end with this process (--local, --ranks) */
    int averaged;           /* with evaluate: as CMD_OPEN's */
    const char *predict;    /* with evaluate: rank 0's file for the logits; NULL: none */
    const char *name;       /* of the job, for driver_status; or NULL */
    const char *run_dir;    /* likewise; NULL: there is none */
    const char *run;        /* random name of the run; NULL: followers keep no state for it */
    int64_t term;           /* higher than that of any driver that led the run before */
    struct led led;         /* what is known about the run under its driver before */
    const char *standby_id; /* the id that this driver had as that driver's standby, or NULL */
    const char *led_by, *leads_at; /* with standby_id: addresses of the driver before and of this */
    const char *how_to_resume; /* command to show after a stop, e.g. "dpdriver --job x --resume" */
    const char *how_past_stop; /* the same, once stop_after is reached */
    int64_t n_epochs, max_steps;     /* max_steps 0: no limit */
    int64_t stop_after;              /* stop as if by a signal after this step; 0: not */
    int64_t global_batch;            /* samples of a step; 0: not known */
    int64_t validate_every;          /* epochs; 0: never.  The last epoch is validated, too */
    int64_t checkpoint_every_epochs; /* 0: only at the end */
    struct cluster_options cluster;  /* min_ranks, max_ranks 0: n_ranks */
    struct injection_list inject;   /* faults on purpose; one that has happened is not sent again */
    double price_per_rank_hour;     /* 0: not known */
    int64_t trace_first, trace_end; /* report.trace: the first step, and the last plus 1; 0: none */
    const char *no_energy; /* why rank 0's machine has no counter of energy; NULL: it has one */
    int64_t start_ns;      /* when the process started, on the same clock: "seconds since start" */
};

struct driver *driver_new(const struct driver_options *o, int64_t now_ns);
void driver_free(struct driver *d); /* NULL is fine */

/* Open rank 0's engine and gather. */
void driver_start(struct driver *d, int64_t now_ns);

/* The caller has logged this warning.  It becomes an event, too. */
void driver_warned(struct driver *d, const char *text);

/* A connection was accepted.  `conn` is the caller's number for it, larger than any before.  `peer`
 * and `local` are the numeric addresses of the two ends, without port; `from` is the peer's address
 * and port, for messages. */
void driver_connected(struct driver *d, int64_t now_ns, int64_t conn, const char *peer,
                      const char *local, const char *from);

/* A checked message (msg_unpack), borrowed. */
void driver_message(struct driver *d, int64_t now_ns, int64_t conn, const Wire__Control *m);

/* The connection is gone.  `why` is NULL if the peer closed it, ERR_PROTO if the peer's bytes were
 * bad (then the caller closed it), else the socket's error.  A call after ACTION_CLOSE is not
 * needed, and is ignored. */
void driver_closed(struct driver *d, int64_t now_ns, int64_t conn, const struct err *why);

/* Rank 0's engine has sent a report.  Takes r. */
void driver_report(struct driver *d, int64_t now_ns, struct report *r);

/* The progress of rank 0's engine (engine_progress).  Call this before each driver_tick. */
void driver_progress(struct driver *d, int64_t now_ns, const struct progress *p);

/* For ACTION_RING: the last collectives of rank 0's engine (engine_ring). */
void driver_ring(struct driver *d, int64_t now_ns, const struct collective *c, int n);

/* The operator wants to stop (`why`: "SIGTERM").  After the first call the step is finished and a
 * checkpoint is written.  The second call stops at once. */
void driver_stop(struct driver *d, int64_t now_ns, const char *why);

/* This driver's machine is about to go away.  If a standby can lead, this driver ends after the
 * step under way with STATUS_STOPPED, and tells its followers nothing, so that they find the
 * standby: no step is lost.  Else this is as driver_stop.  The first call counts, and the first
 * driver_stop after it, with which such a machine ends its services, does nothing. */
void driver_notice(struct driver *d, int64_t now_ns, const struct notice *n);

/* Another driver leads the run, or a new run has the name of this one's directory.  `why` says
 * which, and how that is known.  This driver ends with
 * STATUS_FAILED and writes no more events.  It tells its followers nothing, so that they look for
 * the other driver. */
void driver_deposed(struct driver *d, int64_t now_ns, const char *why);

struct leaver { /* a rank or spare that driver_drain lets go */
    int rank;   /* -1: a spare */
    int spare;  /* its number, as driver_status counts spares; 0: it is a rank */
    char *host;
    int64_t pid;
    const char *when; /* "now", or once the ranks have "formed", or the "step" or "epoch" is done */
    char *line;       /* "rank 2 (node7, pid 4242) leaves when the step under way is done" */
};

struct drained {
    struct leaver *leaver;
    int n;
};

void drained_fini(struct drained *x); /* of a zeroed one, too */

/* The operator wants ranks or spares to leave the job, and not to come back.  Each leaves as if it
 * had been stopped by a signal.
 *
 * who   "2" or "rank:2": that rank; "spare1" or "spare:1": that spare, as driver_status counts
 *       them; "host:NAME", or NAME if it is none of these: all ranks and spares of that host.
 * *out  zero before; for drained_fini.
 *
 * Spares take their places, or later ranks move up.  If the job ends first, those meant do not come
 * back either.  Fails with ERR_REFUSED, and then nothing happens: there is no such rank, spare or
 * host; rank 0 is meant; too few ranks would be left; training has not begun; the job is ending. */
int driver_drain(struct driver *d, int64_t now_ns, const char *who, struct drained *out,
                 struct err *err);

/* The operator wants a timeline: all ranks record from their next step on, for this long, up to
 * DRIVER_LONGEST_TRACE_NS.  *n_ranks: how many.  EVENT_SPANS brings the records, and EVENT_TRACED
 * follows the last of them.  Fails with ERR_REFUSED, and then nothing happens: nothing is trained
 * now, another timeline is under way, or the time is no such time. */
#define DRIVER_LONGEST_TRACE_NS (INT64_C(60) * 1000000000)
int driver_trace(struct driver *d, int64_t now_ns, int64_t duration_ns, int *n_ranks,
                 struct err *err);

/* The operator wants something of the run while it trains.  All ranks act on it after the same
 * step.
 * Each fails with ERR_REFUSED, and then nothing happens: nothing is trained now, or the job is
 * ending; and as said.
 *
 * driver_save      write a checkpoint
 * driver_pause     wait after the step, until driver_go; already paused
 * driver_go        not paused
 * driver_set_live  setting: KEY=VALUE, optimizer.lr alone so far; ERR_ARG: it is no such setting */
int driver_save(struct driver *d, int64_t now_ns, struct err *err);
int driver_pause(struct driver *d, int64_t now_ns, struct err *err);
int driver_go(struct driver *d, int64_t now_ns, struct err *err);
int driver_set_live(struct driver *d, int64_t now_ns, const char *setting, struct err *err);

void driver_tick(struct driver *d, int64_t now_ns);
int64_t driver_deadline(const struct driver *d); /* when to tick next; INT64_MAX once finished */
int driver_next(struct driver *d, struct action *out); /* 1: *out is the next action; 0: none */

/* Job and ranks at this moment, for status_fini; its texts are borrowed until the next call. */
void driver_status(const struct driver *d, int64_t now_ns, struct status *out);
/* The same without the ranks (.n 0), at no cost, whatever their number. */
void driver_summary(const struct driver *d, int64_t now_ns, struct status *out);

#endif
