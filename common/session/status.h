/* status - the driver's view of its job and ranks at one moment, to be shown.
 *
 * Made by driver_status, written by report/status.
 *
 * Threads: one at a time; the session's must not run while the borrowed texts are used. */
#ifndef SESSION_STATUS_H
#define SESSION_STATUS_H

#include <stdint.h>

#include "session/account.h"
#include "session/energy.h"
#include "session/latest.h"

enum status_role {
    STATUS_MEMBER,  /* of the formation */
    STATUS_JOINING, /* connected, and not ready yet */
    STATUS_READY,   /* ready, and not in a formation yet */
    STATUS_SPARE,   /* waits to replace a lost rank */
    STATUS_LEAVING, /* leaves at the end of the step */
    STATUS_MISSING, /* the place is free: only role and rank are set */
};

const char *status_role_name(enum status_role role); /* "member" */

struct status_rank {
    int rank, spare; /* a rank: from 0, and 0; a spare: -1, and from 1 */
    enum status_role role;
    const char *host, *device; /* borrowed from the session */
    int64_t pid;
    int is_here; /* 1: pid is of this machine and container */
    enum phase phase;
    int64_t step, bucket, generation; /* bucket -1: none; generation: as the rank last said */
    double phase_s, heard_s; /* seconds in that phase; since its last message (rank 0: 0) */
    double step_ms;          /* wall time of a step, mean of the latest; 0: none */
    double factor;           /* time of its own work divided by the median; 0: unknown */
    int is_straggler;
    struct usage usage;        /* what it uses, but for the counters of energy, */
    struct energy_sums energy; /* which it has told for the run, alone of those that read them */
};

struct status {
    const char *stage; /* "train"; static */
    double stage_s;
    int64_t generation, epoch, step;
    int n_ranks, n_here;    /* ranks of the formation; how many of them are connected */
    double data_wait_share; /* part of the epoch so far in which rank 0 waited for data, 0 to 1 */
    int data_wait_cause;    /* enum wait_cause */
    struct account_times account; /* where the time of the run went */
    double cost, cost_forecast;   /* so far, and of the whole run; 0: not known */
    struct energy_sums energy;    /* so far */
    char *no_energy;     /* what of it is not known, and why; NULL: all is known, or .n is 0 */
    const char *standby; /* where the standby listens; NULL: none is connected; borrowed */
    int standby_votes;   /* 1: it has a vote in this formation; 0: from the next one on */
    const char *name, *run_dir; /* of the job, of its files; NULL: none; borrowed */
    struct latest latest;
    double step_age_s; /* since the newest step, or the formation; < 0: none yet */
    double eta_s;      /* until the last step; NAN: not known */
    int n_incidents;   /* that this driver has handed over for a file (session/incident.h) */
    struct status_rank *rank;
    int n;
};

void status_fini(struct status *s);

#endif
