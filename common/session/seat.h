/* seat - the driver's records of its connections, and of the seats of ranks and spares.
 *
 * A seat has a part for each machine of the session, which alone writes it; but a seat is taken,
 * moved and cleared as a whole, by membership (driver_seats.c).
 *
 * Threads: as driver.h. */
#ifndef SESSION_SEAT_H
#define SESSION_SEAT_H

#include "session/command.h"
#include "session/energy.h"
#include "session/offset.h"

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
    /* membership */
    int is_taken;
    int named;         /* its name in the log: n > 0: rank n, < 0: spare -n, 0: not named yet */
    int has_state;     /* 1: it may hold a step other than 0 */
    int64_t kept;      /* the step that it held when it came; -1: it came as a new one */
    unsigned votes_in; /* bit i: it is a voter of succession.voters[i] */
    int64_t joined_ms;
    int is_any;                       /* 1: it asked for any rank, so gathering may move it */
    struct conn *conn;                /* NULL: rank 0 */
    char *device;                     /* the device that it was told to use; rank 0: NULL */
    char *host, *host_id, *advertise; /* advertise: may be NULL */
    char *gpu, *gpu_bus;              /* uuid and bus of its GPU, or NULL */
    int64_t pid, pid_space;
    struct report *opened; /* its Ready, or NULL */
    int64_t strangers_in;  /* the generation in which strangers at its data port were logged */

    /* formation */
    int is_member;         /* 1: part of the formation; else it can be left without a recovery */
    int is_said;           /* 1: its join event was sent */
    char *leaving;         /* why it leaves at the next step: "left: ..."; or NULL */
    int is_drained;        /* 1: it leaves because the operator wants it to, and was told so */
    int is_wrong;          /* 1: its bits were wrong, so it leaves once the job can do without it */
    struct report *answer; /* its answer to this stage's command, or NULL */
    int64_t answered_ms;   /* when the answer came */

    /* run */
    int has_stepped;
    double rss_mib, peak_rss_mib;

    /* watch */
    int64_t heard_ms;    /* when its last message of any kind came */
    struct progress at;  /* its progress as last heard; since_ns is not used for a follower */
    int64_t told_ms;     /* when `at` was heard */
    int64_t moved_ms;    /* when `at` last changed, or the stage began */
    int64_t since_ms;    /* when its phase began, by its own clock if that is known */
    struct offset clock; /* of its process */
    int64_t owes_trace;  /* the timeline of which it has yet to send its part; 0: none */
    enum { JOB_TRACE_NOT, JOB_TRACE_OWED, JOB_TRACE_SENT } job_trace; /* that of report.trace */
    struct usage used;                                                /* as last heard */
    struct energy_reader energy;
    struct {
        int64_t from_steps, from_busy_ns; /* its counts when this window began */
        double factor;                    /* busy time / median in the last window; 0: unknown */
        double step_ms;                   /* wall time of the latest steps; 0: none */
        int is_slow;
    } pace;
};

struct gpu_ref {            /* one GPU of a host; texts are borrowed */
    const char *uuid, *bus; /* bus: NULL or "": not known */
    const char *host, *host_id;
};

#endif
