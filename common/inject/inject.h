/* inject - faults on purpose: what is to happen, to which rank, and when (dpdriver --inject).
 *
 *     WHAT:rankK@POINT[N][:HOW]
 *
 *     kill:rank2@step50           delay:rank1@step5:3s        flip:rank1@step7:bucket0
 *     stop:rank1@form             drop:rank1@validate:out     kill:rank0@checkpoint
 *     skip:rank1@step7:bucket0
 *
 * inject_help lists every WHAT, POINT and HOW.  The driver sends each rank its faults; the rank
 * tells the driver of each fault, before it happens.  Each happens once: the driver gives out only
 * those that are not spent, and a fault that events.jsonl records stays spent after --resume.
 *
 * Pure: nothing is done here.  step/faults.h waits for the points, daemon/daemon.c kills.
 *
 * Threads: any; no state. */
#ifndef INJECT_INJECT_H
#define INJECT_INJECT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum injection_what {
    INJECTION_KILL, /* SIGKILL to the process itself */
    INJECTION_STOP, /* SIGSTOP */
    INJECTION_DELAY,
    INJECTION_DROP, /* the control connection, or one direction of it */
    INJECTION_FLIP, /* flip a bit of a gradient, or of the state */
    INJECTION_SKIP, /* leave one all-reduce out */
};

/* In the order in which a rank reaches them. */
enum injection_point {
    INJECTION_AT_GATHER,
    INJECTION_AT_READY,
    INJECTION_AT_PREPARE,
    INJECTION_AT_FORM,
    INJECTION_AT_STEP,
    INJECTION_AT_BACKWARD,
    INJECTION_AT_REDUCE,
    INJECTION_AT_UPDATE,
    INJECTION_AT_STATISTICS,
    INJECTION_AT_VALIDATE,
    INJECTION_AT_CHECKPOINT,
    INJECTION_AT_STOP,
};

enum injection_how {
    INJECTION_PLAINLY, /* kill, stop, delay: there is only one way */
    INJECTION_CONNECTION,
    INJECTION_IN,  /* from now on the rank hears nothing */
    INJECTION_OUT, /* from now on the rank is not heard */
    INJECTION_BUCKET,
    INJECTION_REDUCED,
    INJECTION_PARAM, /* after the update */
    INJECTION_SLOT,  /* likewise, of the optimizer's first slot */
    INJECTION_BATCH, /* of the samples */
};

enum {
    INJECTION_TEXT = 64, /* bytes of one fault's text, NUL included */
    INJECTION_MAX = 32,  /* faults in one job */
    INJECTION_MAX_TEXT = INJECTION_MAX * INJECTION_TEXT, /* bytes of all of them */
    INJECTION_MAX_DELAY_S = 3600,
    INJECTION_MAX_RANK = 65536 - 1,
};

struct injection {
    enum injection_what what;
    int rank;
    enum injection_point point;
    int64_t number; /* of step, epoch or generation; -1: the first that comes */
    enum injection_how how;
    int64_t amount; /* delay: ms; flip, skip: bucket; else 0 */
    int is_spent;
    char text[INJECTION_TEXT]; /* as it was written */
};

struct injection_list { /* zeroed: empty; no heap */
    struct injection item[INJECTION_MAX];
    int n;
};

/* Add the faults of `text`, one or several with commas between, to the list.  ERR_ARG: which one is
 * wrong, why, and all that could stand there. */
int inject_parse(const char *text, struct injection_list *l, struct err *err);

/* ERR_ARG if a fault is for a rank that a job of at most n_ranks never has. */
int inject_check_ranks(const struct injection_list *l, int n_ranks, struct err *err);

int inject_is_of_bucket(const struct injection *f); /* `amount` says which */

/* 1: the fault is due when its rank is at `point` with `number`; or at `point` with `last`, which
 * also stands for all numbers from `first` on. */
int inject_is_due(const struct injection *f, enum injection_point point, int64_t number);
int inject_is_due_since(const struct injection *f, enum injection_point point, int64_t first,
                        int64_t last);

/* Write to `out` the faults of `rank` (-1: of all) from point `first` to `last` that are not spent,
 * as inject_parse reads them; "" if there are none. */
void inject_select(const struct injection_list *l, int rank, enum injection_point first,
                   enum injection_point last, char out[INJECTION_MAX_TEXT]);

/* Mark the first unspent fault with this text as spent.  1: there was one. */
int inject_spend(struct injection_list *l, const char *text);

/* "SIGKILL to itself when the step begins (step 50)", "an all-reduce left out: bucket 0 of step 7":
 * for the log, up to INJECTION_SAY bytes with the NUL. */
enum { INJECTION_SAY = 160 };
const char *inject_say(const struct injection *f, char out[INJECTION_SAY]);

/* The language of faults, as text for --help. */
void inject_help(FILE *out);

#endif
