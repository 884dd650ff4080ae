/* incident - the last collectives of all ranks, at a time when something kept them waiting for
 * good.  They are written to a file for the operator.
 *
 * The driver's session makes incidents (driver_incident.c) and hands them over with
 * ACTION_INCIDENT.  incident_free frees them.
 *
 * Threads: one at a time. */
#ifndef SESSION_INCIDENT_H
#define SESSION_INCIDENT_H

#include <stdint.h>

#include "session/command.h"

enum {
    INCIDENT_MOST_RANKS = 64, /* ranks that are asked: those behind first, then by number */
    INCIDENT_OWN = -1,        /* in place of a connection, for rank 0 */
};

struct incident_rank {
    int rank; /* its number at that time */
    char *host;
    int64_t pid;
    int64_t conn;            /* the session's number of its connection, or INCIDENT_OWN */
    int is_behind;           /* 1: it keeps others waiting */
    struct progress at;      /* as last heard */
    double phase_s, heard_s; /* seconds in that phase; since its last message (rank 0: 0) */
    int has_answered;
    struct collective *ring; /* [n_ring], oldest first; times as ring_rebase leaves them */
    int n_ring;
};

struct incident {
    int64_t number; /* of this driver, from 1 */
    char *text;     /* the line that names the culprit */
    int64_t generation;
    const char *stage; /* "train"; static */
    int n_ranks;       /* of the formation */
    struct incident_rank *rank;
    int n; /* ranks that were asked */
};

void incident_free(struct incident *i); /* NULL is fine */

#endif
