/* sim - a driver and its followers with fake engines, under a fake clock and network.
 *
 * Everything that happens follows from the seed: number of ranks, delays, what goes wrong and when.
 * The sessions are the real ones; frames are packed and unpacked; the engines, their collectives,
 * the network and the processes are fakes that can be killed, frozen or cut off.
 *
 *     struct sim_result r;
 *     sim_run(seed, mode, SIM_SILENT, &r);     r.is_ok, r.why */
#ifndef TESTS_SESSION_SIM_H
#define TESTS_SESSION_SIM_H

#include <stdint.h>

enum inject {
    INJECT_NONE,
    INJECT_KILL, /* a follower's process, as by kill -9 */
    INJECT_KILL_DRIVER,
    INJECT_DROP,          /* a follower's connection breaks; both ends notice */
    INJECT_SILENCE,       /* a connection on which packets vanish, both ways, and no end notices */
    INJECT_SILENCE_IN,    /* the same, only packets to the follower */
    INJECT_SILENCE_OUT,   /* the same, only packets from the follower */
    INJECT_FREEZE,        /* a follower, as by SIGSTOP, for good or for long */
    INJECT_FREEZE_SHORT,  /* any process, for less than the heartbeat's timeout */
    INJECT_FREEZE_DRIVER, /* the driver, for longer than the heartbeat's timeout */
    INJECT_FAULT,         /* an engine fails */
    INJECT_HANG,          /* an engine makes no more progress */
    INJECT_STOP,          /* the operator stops the driver */
    INJECT_STOP_TWICE,
    INJECT_LEAVE,       /* the operator stops a follower */
    INJECT_REPLICA,     /* a replica differs from now on */
    INJECT_NONFINITE,   /* the next step is not finite */
    INJECT_DISK,        /* from now on no checkpoint can be written */
    INJECT_GARBAGE,     /* a follower's connection delivers bytes that are no message */
    INJECT_DRAIN,       /* the operator of the driver takes a rank away */
    INJECT_PARTITION,   /* two ranks cannot reach each other, though the driver reaches both */
    INJECT_CLOCK_LEAP,  /* a machine's clock jumps ahead */
    INJECT_CLOCK_STALL, /* a machine's clock stands still; on the driver's for less than the
                           heartbeat's timeout */
    INJECT_PLAIN,       /* the number of those above: plain schedules draw from them */
    INJECT_FLIP = INJECT_PLAIN, /* bits of a rank's gradients or samples are wrong (sim_audit.c) */
    INJECT_COUNT
};

enum sim_mode {
    SIM_PLAIN,   /* nothing is replaced; at most one thing goes wrong */
    SIM_ELASTIC, /* spares, restarts, fewer ranks; several things go wrong */
    SIM_LEADERS, /* the driver is lost, again and again, and started again; followers keep state */
    SIM_STANDBY, /* a standby beside the driver (sim_standby.c) */
    SIM_AUDIT,   /* SIM_ELASTIC or SIM_LEADERS, and steps are audited: bits are wrong */
};

/* The places of wrong bits (SIM_AUDIT): those of answers in an audited step, and then those of a
 * rank's state. */
enum flip_place {
    FLIP_GRADIENT,
    FLIP_BATCH,  /* the samples, and so the gradient */
    FLIP_SUM,    /* the combined gradients of one rank */
    FLIP_UPDATE, /* what it makes of them */
    FLIP_PARAM,  /* a parameter between two steps */
    FLIP_SLOT,   /* a slot of the optimizer's between two steps */
    FLIP_PLACES
};

enum sim_tell {
    SIM_SILENT,
    SIM_SHOW,    /* the course of a schedule, for people (sim_show.h) */
    SIM_VERBOSE, /* everything, for a search */
};

struct sim_result {
    int is_ok;
    char why[1024];
    enum inject inject;
    int n_ranks, has_fired;
    int64_t n_messages, n_epochs;
    double seconds;                    /* in simulated time */
    double end_seconds;                /* from the injection to the last rank's end */
    int n_faults, n_recovered, status; /* SIM_ELASTIC; status of the driver, -1: killed */
    /* Warnings that a rank keeps the others waiting; incident files; the rings in these. */
    int n_warnings, n_incidents, n_rings;
    int n_grown, n_drained; /* ranks that joined beyond those lost; drains granted */
    /* SIM_AUDIT: wrong bits; audits of a step that found some; those that a lost rank broke off in
     * a vote. */
    int n_flips[FLIP_PLACES], n_verdicts, n_broken;
    int n_found[FLIP_PLACES]; /* verdicts on replicas that named a rank for a flip in this place */
    int n_differed, n_healed; /* comparisons that found a difference; those that were mended */
    int n_spread;             /* formations whose ranks took wrong bits that none had seen yet */
    int n_halved;             /* jobs that ended as one of two followers was wrong */
    int n_calm;               /* looks at a step (audits, comparisons) where no bit was wrong */
    int n_back;               /* SIM_STANDBY: how often the newest state was lost with its shards */
    double slowest_recovery;
};

const char *sim_inject_name(enum inject i);
const char *sim_mode_name(enum sim_mode mode);
void sim_standby_run(uint64_t seed, enum sim_tell tell, struct sim_result *out); /* SIM_STANDBY */
void sim_run(uint64_t seed, enum sim_mode mode, enum sim_tell tell, struct sim_result *out);

#endif
