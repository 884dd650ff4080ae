/* decision - what a machine of the driver's session wants done that is not its own to do.
 *
 * The driver's session has four machines: membership.h, formation.h, run.h, watch.h.  Each writes
 * its own struct and sees the others through const views (driver_impl.h).  A function that has to
 * change more than its own machine returns a decision, and driver_apply carries it out.
 *
 * Life:    made by a decide function, given to driver_apply, which frees what it owns.
 * Threads: as driver.h. */
#ifndef SESSION_DECISION_H
#define SESSION_DECISION_H

#include "session/action.h"
#include "session/stage.h"
#include "wire/msg.h"

struct cause {          /* why a job ends early, or a recovery begins */
    int rank;           /* the rank at fault; -1: none */
    int is_lost;        /* 1: the rank itself is gone */
    int is_final;       /* 1: a replacement would not help, so the job ends */
    int is_consequence; /* 1: of an unknown cause: no rank is to blame, and all try again */
    int is_unapplied;   /* 1: of wrong numbers that no update has read, so the state is good */
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

/* KIND, and the name of the function that carries it out: apply_NAME in driver_apply.c. */
#define DECISION_LIST(X)                                                                        \
    X(ACCUSE, accuse)         /* cause: something went wrong there; begin a recovery, or end */ \
    X(MISBEHAVED, misbehaved) /* rank broke the protocol; text */                               \
    X(DEPOSED, deposed)       /* another driver leads; text says which */                       \
    X(UNELECTED, unelected)   /* text, of which nothing was heard, may lead; remedy */          \
    X(AT_ONCE, at_once)       /* stop without a checkpoint */                                   \
    X(STOP, stop)             /* the job ends in order: outcome, status, text */                \
    X(FINISHED, finished)     /* the job is finished: the event `done`, text */                 \
    X(RELEASE, release)       /* a finished job waits no more for its followers */              \
    X(JOINED, joined)         /* rank, or -1: the standby; it has seen `generation` */          \
    X(ANSWERED, answered)     /* all ranks have answered: decide again what comes next */       \
    X(TRY, try)               /* STAGE_WAIT: form, or give up, if it is time */                 \
    X(ABSENT, absent)         /* STAGE_GATHER: ranks that have not come are lost */             \
    X(PREPARE, prepare)       /* a formation begins; with text, of the ready ranks alone */     \
    X(FORM, form)             /* all ranks are prepared: connect */                             \
    X(TRAIN, train)                                                                             \
    X(VALIDATE, validate)                                                                       \
    X(CHECKPOINT, checkpoint)                                                                   \
    X(REGROUP, regroup) /* all ranks hold the same step, and wait */

enum decision_kind {
    DECIDE_NOTHING,
#define X(KIND, name) DECIDE_##KIND,
    DECISION_LIST(X)
#undef X
};

struct decision {
    enum decision_kind kind;
    int rank;
    int64_t generation;
    struct cause cause; /* its text is owned */
    int is_suspect;     /* ACCUSE: 1: ranks reduced different things, so sums may be wrong */
    int is_wrong;       /* JOINED: 1: wrong bits of this rank were found before */
    Wire__Outcome outcome;
    int status;                 /* STOP */
    char *text;                 /* owned, or NULL */
    const char *remedy;         /* UNELECTED; static */
    struct session_event *done; /* FINISHED; owned */
};

static inline struct decision decide(enum decision_kind kind)
{
    return (struct decision){.kind = kind};
}

/* A rank is at fault; the format gives the whole message. */
struct decision decide_accuse(struct cause c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct decision decide_misbehaved(int rank, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct decision decide_stop(Wire__Outcome outcome, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Takes the pointers in *done. */
struct decision decide_finished(const struct session_event *done, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
