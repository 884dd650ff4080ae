/* sim_standby_impl - what the files of the world with two leaders share; no other file includes it.
 *
 *   sim_standby.c          a whole run, its loop, and what it must hold to
 *   sim_standby_net.c      chance, events by time, connections
 *   sim_standby_node.c     processes: their sessions, and how they find each other
 *   sim_standby_engine.c   fake engines, which meet in groups
 *   sim_standby_fault.c    faults */
#ifndef TESTS_SESSION_SIM_STANDBY_IMPL_H
#define TESTS_SESSION_SIM_STANDBY_IMPL_H

#include "base/rng.h"
#include "session/driver.h"
#include "session/follower.h"
#include "session/standby.h"
#include "sim.h"
#include "sim_show.h"
#include "sim_way.h"

enum { MS = 1000000, MAX_RANKS = 6, MAX_PROCESSES = 24, MAX_LINKS = 600, MAX_GROUPS = 400 };
enum { DRIVER_MS = 60000, HEARTBEAT_MS = 5000, LONGEST_S = 900, SOON_S = 30, MOST_STARTS = 5 };
#define NEVER INT64_MAX

enum happening { DELIVER, CLOSED, REPORT, ENGINE, DIAL, BEGIN };

struct event {
    int64_t t, seq;
    enum happening what;
    int process, link, end, token;
    struct frame *frame;
    struct report *report;
};

struct line { /* a connection: end 0 dialed, end 1 listens */
    int process[2], is_open[2];
    int64_t last[2];
    int64_t number; /* end 0's name for it */
};

struct folder;

struct group { /* of ranks that have the same endpoints */
    struct hash128 key;
    int n_ranks, n_here, has_left;
    int process[MAX_RANKS];
    int64_t term, step;          /* of its leader; that all hold now */
    int64_t newest;              /* that any of them held */
    int from_checkpoint;         /* 1: its leader loaded a checkpoint for all */
    int is_resumed;              /* its leader was started again */
    const struct folder *folder; /* its leader's */
};

struct folder { /* a run directory */
    int64_t term, saved;
    struct led led;
    int owner; /* the process that claimed it last */
};

struct process {
    struct folder *folder; /* of a driver */
    int64_t term;
    int is_resumed;
    int place; /* 0 driver, 1 .. n-1 followers, n standby */
    int is_alive, is_over, status;
    struct driver *d;
    struct follower *f;
    struct standby *s;
    char id[16];
    int64_t thaw;
    int dials_other, dials; /* where a follower looks now; DIAL is under way */
    int link;               /* of a follower, or of a standby to its driver; -1 */
    Wire__Control *hello[MAX_LINKS];
    int claims;           /* a standby that leads tells the driver before ... */
    int64_t claims_until; /* ... until then */
    struct legacy legacy;
    /* the engine */
    int64_t step, epoch, generation;
    struct group *group;
    int token, rank, is_waiting, is_released, is_regroup;
    int is_last;        /* the ranks agreed that the epoch ends with this step */
    enum way_part part; /* of the step */
    int64_t key;        /* the number of the collective in the formation */
    struct shard shard;
    int64_t last_report;
    enum cmd_kind doing;
    struct cmd *next;
    char *text;
};

struct world {
    struct sim_result *r;
    struct rng_stream rng;
    enum sim_tell tell;
    int n_ranks;
    int64_t start, now, seq, spe, n_epochs, step_ms;
    struct way way;
    struct event *heap;
    int n_heap, cap_heap;
    struct process p[MAX_PROCESSES];
    int n_processes, at[MAX_RANKS + 1]; /* the process at each place; -1 */
    struct line line[MAX_LINKS];
    int n_lines;
    struct group group[MAX_GROUPS];
    int n_groups;
    int is_cut[MAX_RANKS + 1][MAX_RANKS + 1]; /* places that do not reach each other */
    int64_t newest_term, newest_step;
    int newest_n_ranks; /* ranks that did the newest step; 1: only the driver held it */
    int n_faults, n_left, was_asked, is_voter;
    int only_driver;         /* is struck, and once; 2: together with a follower */
    struct folder folder[2]; /* the driver's, the standby's */
    int is_shared, restarts, n_starts, n_followers_struck;
    int64_t struck; /* only_driver: when it was, until the next step; 0: not */
    int64_t next_fault;
};

/* sim_standby_net.c */
int64_t world_draw(struct world *w, int64_t lo, int64_t hi); /* lo .. hi, both included */
void world_say(const struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of --show: of process k, or SHOW_FAULT. */
void world_show(const struct world *w, int k, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void world_fail(struct world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void world_schedule(struct world *w, struct event e, int64_t t);
int world_earliest(const struct world *w); /* the index of the next event in w->heap */
int world_is_apart(const struct world *w, int a,
                   int b); /* places a and b do not reach each other */
/* Carry an event from end `end` of connection `link` to the other; takes what e owns. */
void world_transmit(struct world *w, int link, int end, struct event e);
void world_close_end(struct world *w, int link, int end);
int world_connect(struct world *w, int from, int to, int64_t number); /* returns the connection */

/* sim_standby_node.c */
void world_begin(struct world *w, int place); /* a process, if there is none at this place */
void world_start_again(struct world *w);      /* the driver, where a service manager does that */
void world_gone(struct world *w, int k);      /* process k has ended */
void world_drain(struct world *w, int k);     /* carry out its session's actions */
void world_dial(struct world *w, int k);
int64_t world_deadline(const struct process *p); /* when its session asks to be called */

/* sim_standby_engine.c */
void world_take_command(struct world *w, int k, struct cmd *c); /* takes c */
void world_abort_engine(struct world *w, int k);
void world_work(struct world *w, int k); /* go on with the command under way */
void world_meet(struct world *w, int k); /* go on if all of its group wait in the collective */
void world_leave_group(struct world *w, int k);

/* sim_standby_fault.c */
void world_strike_or_heal(struct world *w);

#endif
