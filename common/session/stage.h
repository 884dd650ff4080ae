/* stage - the stages of a job: their names, which may follow which, and what ranks owe in each.
 *
 * Threads: any; pure. */
#ifndef SESSION_STAGE_H
#define SESSION_STAGE_H

#include "session/command.h"

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

int stage_may_follow(enum stage from, enum stage to); /* by the table of legal moves */
const char *stage_name(enum stage s);                 /* "train" */
enum report_kind stage_answer(enum stage s);          /* what ranks owe; 0: nothing */

#endif
