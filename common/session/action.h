/* action - the actions that a session machine asks its caller to do.
 *
 * The machines (session/driver.h, follower.h, standby.h) are pure: an event goes in with the time,
 * and actions come out of a queue, ACTION_TRUST before all others.  Drain the queue after every
 * call, in order.  If there are very many actions, some may wait until other events have gone in:
 *
 *     struct action a;
 *     while (driver_next(d, &a)) {
 *         switch (a.kind) { ... }
 *         action_fini(&a);
 *     }
 *
 * To keep an object that an action owns, take it and set its pointer in the action to NULL
 * (a.command, a.send.frame).
 *
 * Threads: the thread of the session machine. */
#ifndef SESSION_ACTION_H
#define SESSION_ACTION_H

#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "session/account.h"
#include "session/command.h"
#include "session/energy.h"
#include "session/incident.h"
#include "session/offset.h"
#include "session/voters.h"
#include "wire/frame.h"

enum action_kind {
    ACTION_SEND = 1, /* queue a frame on a connection */
    ACTION_TRUST,    /* driver: the connection was welcomed: raise its frame limit to FRAME_MAX */
    ACTION_CLOSE,    /* send what is queued, then close; no more events or actions concern it */
    ACTION_SEEK,     /* follower: connect with its driver, then call follower_connected */
    ACTION_COMMAND,  /* post to the engine */
    ACTION_REQUEST,  /* engine_request: may come while a command runs */
    ACTION_ABORT,    /* engine_abort */
    ACTION_INJECT,   /* do this fault, if it is one of the process; then call engine_injected */
    ACTION_LOG,      /* a line for the operator */
    ACTION_EVENT,    /* for events.jsonl, metrics.csv and the progress line */
    ACTION_RING,     /* read the engine's ring and hand it over, before the next action */
    ACTION_TRACE,    /* engine_trace */
    ACTION_INCIDENT, /* driver: write this incident down */
    ACTION_FINISHED, /* the last action: leave the event loop */
};

enum request { /* as enum engine_request */
               REQUEST_STOP = 1,
               REQUEST_CHECKPOINT = 2,
               REQUEST_REGROUP = 4,
};

/* Exit status of the daemons. */
enum exit_status {
    STATUS_OK = 0,
    STATUS_FAILED = 1,
    STATUS_USAGE = 2,   /* or data found wrong before training */
    STATUS_REFUSED = 3, /* the peer refused */
    STATUS_STOPPED = 4, /* by a signal; the job can be resumed */
};

/* A follower whose session has ended may look for another driver.  Without --once it does, unless
 * RETRY_NOT. */
enum retry {
    RETRY_NOT = 0,
    RETRY_SOON,
    RETRY_AS_NEW,     /* also with --once: the state that it kept was of no use */
    RETRY_LATER,      /* the driver has no place for it now, and may have one in minutes or hours */
    RETRY_UNANSWERED, /* also with --once, within --wait: no driver has answered yet */
};

/* Each kind, with the member of struct session_event that it sets, and the common ones. */
enum event_kind {
    EVENT_START = 1,  /* start; text: the device */
    EVENT_JOIN,       /* rank */
    EVENT_FORM,       /* form */
    EVENT_FIRST_STEP, /* first_step */
    EVENT_PROGRESS,   /* progress; not for events.jsonl */
    EVENT_ROW,        /* row; for metrics.csv alone */
    EVENT_HASHES,     /* hashes; for hashes.csv alone */
    EVENT_EPOCH,      /* epoch */
    EVENT_CHECKPOINT, /* checkpoint; step; text: the path */
    EVENT_LOST,       /* lost; rank; text: why */
    EVENT_NOTICE,     /* notice; rank, or -1: a spare; text: the source */
    EVENT_DRAIN,      /* drain; rank, or -1; text: when it leaves, or "taken_back" */
    EVENT_RECOVERED,  /* recovered; text: the source of the state of another driver's run */
    EVENT_STRAGGLER,  /* straggler; rank */
    EVENT_REBALANCE,  /* rebalance; step */
    EVENT_BUCKETS,    /* buckets; step */
    EVENT_CORRUPTION, /* corruption; rank; step; text: the whole message */
    EVENT_SPIKE,      /* spike; step; text: what is done about it */
    EVENT_PAUSE,      /* step: the ranks wait after so many */
    EVENT_GO,         /* step */
    EVENT_LIVE,       /* live; step: the first one with this value */
    EVENT_INJECT,     /* inject; rank; text: what happens; step, phase */
    EVENT_WARNING,    /* rank; text, step */
    EVENT_ERROR,      /* error; rank; text, step, phase */
    EVENT_DONE,       /* done */
    EVENT_STANDBY,    /* standby; text: where it listens; generation 0: released */
    EVENT_LEADER,     /* leader; host: the address of the driver before; text: of this */
    EVENT_REFUSED,    /* text: the peer that was not let in, and the reason; not for events.jsonl */
    EVENT_SPANS,      /* spans; rank; not for events.jsonl */
    EVENT_TRACED,     /* traced; not for events.jsonl */
};

/* The reason why a rank waited for its data. */
enum wait_cause {
    WAIT_UNKNOWN, /* not measured, as by an older version */
    WAIT_FEW,     /* few steps waited, such as the first; or all together for some ms */
    WAIT_READING, /* the threads that read computed meanwhile: more of them help */
    WAIT_DISK,    /* they waited for the disk */
    WAIT_CORES,   /* they waited for a processor, or there are as many of them as processors */
};

#define NOT_MEASURED (-1.0) /* a figure that does not apply */

struct session_epoch { /* one finished (or cut short) epoch, over all ranks */
    int64_t epoch, step;
    enum epoch_end end;
    EPOCH_FIGURES(FIGURE_MEMBER) /* of an evaluation: n_samples, those validated, else 0 */
    int data_wait_rank;          /* the rank that waited longest for its data: that of OF_WAITER */
    int data_wait_cause;         /* enum wait_cause, that rank's */
    int is_validated;
    double validation_loss, validation_accuracy;
    int has_average; /* 1: averaged weights (train.average) were validated, too */
    double average_validation_loss, average_validation_accuracy;
    int has_top5; /* 1: the validation counted targets among the five largest logits, too */
    double validation_top5, average_validation_top5; /* 0 to 1 */
    int is_best;                                     /* by train.best, so far */
    int64_t n_targets;   /* of an evaluation: predictions that were compared with their targets */
    int is_unlabelled;   /* of an evaluation: the samples have no labels */
    const char *figures; /* of an evaluation: CMD_VALIDATE's; borrowed from the driver; or NULL */
    int is_mean;         /* 1: the mean of the ranks' replicas was validated and saved */
};

struct session_process { /* one rank's */
    int64_t pid;
    char *host;
};

struct session_spans { /* a piece of a rank's timeline, and what is known about its clock */
    struct spans_piece piece;
    int n_ranks;         /* of the formation */
    int64_t asked_ns;    /* the driver's clock when the operator asked; 0: report.trace did */
    int is_clock_ours;   /* 1: the rank is on the driver's machine, whose clock it has */
    struct offset clock; /* against the driver's */
};

struct session_event {
    enum event_kind kind;
    int rank;                     /* -1: no rank in particular */
    char *host;                   /* of that rank, or NULL */
    char *text;                   /* or NULL */
    int64_t step;                 /* -1: none */
    enum phase phase;             /* EVENT_ERROR, EVENT_INJECT; PHASE_COUNT: none */
    struct account_times account; /* where the time of the run went */
    double cost;                  /* of the run so far; 0: no price is known */
    struct energy_sums energy;    /* of the run so far */
    /* EVENT_EPOCH: the same since the epoch's event before, or since this driver began. */
    double epoch_cost;
    struct energy_sums epoch_energy;
    union {
        struct { /* rank 0 has built its graph */
            int n_ranks;
            int64_t n_parameters, steps_per_epoch;
            struct hash128 data; /* the fingerprint of the data */
        } start;
        struct {
            int n_ranks;
            int64_t generation;
            double seconds; /* since Prepare was sent */
            double live_lr; /* the rate of --set-live, from live_step on; 0: none */
            int64_t live_step;
            struct voters voters;
            struct session_process *process; /* [n_ranks] by rank */
        } form;
        struct {
            int n_ranks;
            double seconds;  /* since the start */
            double *rss_mib; /* [n_ranks] */
        } first_step;
        struct { /* a few a second */
            int64_t epoch, n_epochs, step, steps_per_epoch;
            double loss, samples_per_second;
        } progress;
        struct metrics_row row;
        struct hashes_row hashes;
        struct session_epoch epoch;
        struct {
            double seconds;         /* the time to write it */
            double exposed_seconds; /* the time for which training stood still */
        } checkpoint;
        struct {
            int64_t pid; /* if the process is on this host, else 0 */
        } lost;
        struct {
            int64_t seconds; /* until the machine goes away; -1: not known */
        } notice;
        struct {
            int spare; /* the number of a spare, from 1; or 0 */
            int64_t pid;
        } drain;
        struct {
            int n_ranks;
            int64_t generation;
            double seconds;     /* since the loss */
            int64_t steps_lost; /* steps that were begun and had to be redone */
        } recovered;
        struct {
            double factor; /* its busy time divided by the median */
        } straggler;
        struct {
            int n_ranks;
            double *share; /* [n_ranks] samples of a full global batch */
        } rebalance;
        struct {
            int64_t bucket_bytes; /* the least size of a bucket (layout_new's bucket_bytes) */
            int n_buckets;
        } buckets;
        struct spike_told spike;
        struct {
            double lr; /* in the place of optimizer.lr */
        } live;
        struct corruption_told {
            enum corruption what;
            int share; /* the rank whose share of the batch was computed; -1: none */
            int is_healed;
        } corruption;
        struct {
            char spec[INJECTION_TEXT]; /* as it was given */
        } inject;
        struct {
            int is_diverged; /* a loss or gradient is not finite, and would be so again */
            int is_of_input; /* ... because of samples or a setting: no learning rate mends it */
        } error;
        struct {
            int n_ranks;
            double seconds;             /* since the start */
            double *peak_rss_mib;       /* [n_ranks], or NULL */
            const char *reason;         /* what ended the training; static text */
            char *no_energy;            /* what of the energy is not known, and why; or NULL */
            struct session_epoch epoch; /* the last one, .epoch == 0: none was trained */
        } done;
        struct voters standby; /* the formation in which it votes */
        struct {
            int64_t term;
        } leader;
        struct session_spans spans;
        struct {
            int64_t number; /* of the timeline: what has come of it is all that will come */
            int n_ranks;    /* of the formation */
        } traced;
    };
};

struct action {
    enum action_kind kind;
    int64_t conn; /* ACTION_SEND, ACTION_TRUST, ACTION_CLOSE: the connection (a follower's is 0) */
    union {
        struct {
            struct frame *frame;
        } send;
        struct {
            char *text; /* why, for the log */
        } close;
        struct {
            int is_again; /* 1: a driver was found and was of no use, so the pauses should grow */
            char *other;  /* ADDRESS:PORT of the standby, else of the driver before; or NULL */
        } seek;
        struct cmd *command;
        enum request request;
        struct {
            int64_t number, duration_ns;
        } trace;
        struct injection inject;
        struct {
            enum log_level level;
            char *text;
        } log;
        struct session_event event; /* action_fini frees its pointers */
        struct incident *incident;
        struct {
            int status;          /* an exit_status, for a daemon that ends now */
            enum retry retry;    /* of a follower */
            int is_leader;       /* of a standby: 1: it leads the run from now on */
            int is_engine_stuck; /* 1: the engine did not answer CMD_STOP: do not join its thread */
            int is_deposed;      /* 1: it is known that another driver leads the run */
            char *text; /* one line for the operator: the first cause, how to resume, ... */
        } finished;
    };
};

void action_fini(struct action *a);

#endif
