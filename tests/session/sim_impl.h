/* sim_impl - what the simulator's files share; no other file includes it.
 *
 *   sim.c          a whole run, and its loop
 *   sim_show.c     lines for people (sim_show.h)
 *   sim_net.c      events by time, connections, clocks
 *   sim_node.c     processes
 *   sim_fault.c    faults
 *   sim_engine.c   fake engines
 *   sim_audit.c    audited steps, and wrong bits in them
 *   sim_replica.c  comparisons of replicas, and wrong bits of the state
 *   sim_coll.c     collectives, in which fake engines meet
 *   sim_way.c      strategies (sim_way.h)
 *   sim_watch.c    invariants that hold all the time
 *   sim_check.c    invariants at the end of a plain run
 *   sim_elastic.c  invariants at the end of a run where ranks come and go */
#ifndef TESTS_SESSION_SIM_IMPL_H
#define TESTS_SESSION_SIM_IMPL_H

#include "audit/ballot.h"
#include "audit/jury.h"
#include "base/rng.h"
#include "session/driver.h"
#include "session/driver_impl.h"
#include "session/follower.h"
#include "sim.h"
#include "sim_show.h"
#include "sim_way.h"

enum { MAX_NODES = 72, MS = 1000000, MAX_GENERATIONS = 96, MAX_STEPS = 64, MAX_CUTS = 8 };
#define NEVER INT64_MAX

enum { /* of the job */
       HEARTBEAT_MS = 5000,
       WELCOME_MS = 10000,
       DRIVER_MS = 90000, /* driver_timeout: longer than all that befalls the driver */
       JOIN_INTERVAL_MS = 500,
       GATHER_MS = 20000,
       READY_MS = 10000,
       PREPARE_MS = 10000,
       FORM_MS = 8000,
       STEP_MS = 8000,
       VALIDATE_MS = 10000,
       CHECKPOINT_MS = 8000,
};

enum sim_kind {
    EV_DELIVER,
    EV_CLOSED,
    EV_REPORT,
    EV_ENGINE,
    EV_START,
    EV_STRANGER,
    EV_THAW,
    EV_HEAL,
    EV_STRIKE
};

struct sim_event {
    int64_t t, seq;
    enum sim_kind kind;
    int node;
    int64_t link, token;
    struct frame *frame;
    struct report *report;
    int is_bad; /* EV_CLOSED: the bytes were no message */
};

struct link {        /* one connection; end 0 is the driver's, end 1 the follower's */
    int node;        /* the follower; -1 a stranger, which has no node */
    int is_open[2];  /* that end may send */
    int is_cut[2];   /* messages from that end vanish */
    int64_t last[2]; /* when the newest message from that end arrives */
};

struct weights { /* the state: the steps that made it, in order */
    int64_t step[MAX_STEPS];
    int n;
    int64_t sum;    /* metric of the epoch under way */
    uint64_t wrong; /* the wrong bits that were summed and applied; 0: none */
};

/* A step's contribution to the epoch's metric. */
static inline int64_t sim_metric(int64_t step) { return 1 + step * step; }

struct cut { /* two nodes that cannot reach each other */
    int a, b;
    int64_t until;
};

/* Why a node has wrong bits.  n_left 0: it has no flaw. */
struct flaw {
    int64_t from;  /* from this step on */
    int n_left;    /* so many wrong bits; below 0: for ever */
    int is_steady; /* each wrong answer about a share of a step is the same */
    enum flip_place place;
};

/* A node's state as the comparisons see it: the wrong bits of each tensor; 0: they are right.  The
 * first half are parameters, and the others the optimizer's slots. */
enum { TENSORS = 4 };
struct replica {
    uint64_t wrong[TENSORS];
    uint64_t own, copy; /* WAY_SHARDS: of the own shard of the slots, and of the copy */
};

/* The hashes that a rank tells of its replica, in the first and second collective of a comparison.
 */
struct told {
    struct compared part;
    struct hash128 tensor[TENSORS], own, copy;
};

/* The collectives of a comparison: the part is compared, the ranks vote, the others take the state
 * of most. */
enum check_turn { CHECK_PART, CHECK_VOTE, CHECK_HEAL, CHECK_TURNS };

struct check {             /* an engine's comparison of replicas */
    int is_open, is_whole; /* is_whole: at an epoch's end, of everything */
    enum check_turn turn;
    enum epoch_end end; /* is_whole: what is reported then */
    enum corruption what;
    int good;     /* CHECK_HEAL: the rank whose state the others take */
    int is_wrong; /* this rank's state was found to be wrong, and it has no other one yet */
};

struct audit { /* an engine's audited step */
    int is_open;
    int64_t done;   /* the newest step that was audited in this formation, plus 1 */
    int n_gathered; /* collectives of this audit so far */
    struct opinion mine;
    uint64_t error; /* of the own share that was computed last; 0: it is right */
    uint64_t sum;   /* of the errors of all ranks, when the step was summed */
};

struct fake_engine {
    enum cmd_kind doing;
    int64_t generation, epoch, step, token;
    int rank, n_ranks, local, n_local, source;
    struct weights w; /* the steps that it holds; `step` is the one that it claims to hold */
    int64_t left;     /* the engine has left the collectives of this generation and of older ones */
    struct cmd *next; /* came after an abort, before the command under way had ended */
    int64_t canceled; /* commands of this generation and older ones are not begun */
    int is_breaking;  /* aborted, but the command under way has not ended yet */
    enum phase phase;
    int is_waiting;     /* in a collective */
    int64_t key;        /* in this collective */
    enum way_part part; /* of the step */
    struct shard shard;
    int64_t n_handed, n_ended; /* collectives in this formation */
    int64_t since;             /* when its phase began */
    int is_released, is_last;  /* the collective is done; it agreed on the end of the epoch */
    enum epoch_end end;
    int is_fresh; /* no step in this formation yet */
    int wants_stop, wants_regroup, is_stuck, must_stop, has_stepped, is_different;
    int64_t last_report;
    struct audit audit;
    struct check check;
    struct replica replica, base; /* base: the state that all took when they formed last */
    struct told mine;             /* of the newest step */
    int has_formed;               /* it has taken the state of a formation */
    int is_split;                 /* this formation's ranks hold different states, for good */
    int is_early;                 /* the part was wrong before that step, or the sum was */
    int flips[FLIP_PLACES];       /* those that no comparison has found yet */
    int is_last_save;             /* the checkpoint that is asked for is the last */
    struct weights copied;        /* for the checkpoint that is being written */
    int64_t saved_at_ns;          /* when the newest checkpoint is, or will be, written */
};

struct node {     /* a process */
    int64_t life; /* the number of this process among the node's processes */
    int is_started, is_alive, is_finished, is_restarted;
    int is_asking;  /* it has said Hello and heard nothing yet */
    int is_seeking; /* a follower without a driver, which keeps its state */
    struct driver *d;
    struct follower *f;
    int wanted;
    int64_t link;                             /* a follower's; -1 */
    int64_t thaw;                             /* frozen until then */
    int64_t ahead, stalled_at, stalled_until; /* its clock: sim_clock */
    int64_t heard;                            /* by its clock: last word of the driver */
    int64_t drained_life; /* the process that the driver agreed to drain; 0: none */
    struct fake_engine e;
    int status, retry, is_engine_stuck;
    char *text;
    int64_t finished_ns;
    int rank; /* last known */
    int kind; /* of its processor */
    struct flaw flaw;
    int64_t wrong_at;               /* audit_key of the newest step in which it answered wrongly */
    uint8_t wrong_about[MAX_NODES]; /* 1: then about the share of this rank */
    struct jury jury;
    struct opinion answers[MAX_NODES]; /* by rank, in the collective that has ended last */
    struct told told[MAX_NODES];       /* the same */
};

struct sim_run { /* a run directory, which outlives its drivers */
    int64_t term;
    struct led led;
    int64_t start_ns, before_ns; /* when this driver started; the wall time of those before it */
    struct weights saved;        /* the newest checkpoint; .n steps */
    int n_follower_kills;        /* one at most: a follower that keeps the state stays */
    int is_killed_between;       /* the last checkpoint, and the followers' being told of the end */
};

struct sim {
    uint64_t seed;
    enum sim_tell tell;
    struct rng_stream rng;
    int64_t now, start, seq;
    struct sim_event *heap;
    int n_heap, cap_heap;
    struct link links[16 * MAX_NODES];
    int n_links;
    struct node nodes[MAX_NODES]; /* 0 is the driver; [n_ranks] may be an intruder */
    int n, n_nodes;
    int64_t spe, n_epochs, n_validation;
    int max_delay_ms;

    enum inject inject;
    int victim;
    int64_t inject_at, n_delivered;
    int has_fired;
    int64_t fired_ns;
    enum stage fired_stage; /* of the driver then */
    enum stage lost_stage;  /* the driver's stage when it saw the victim's connection close */
    int rank_then;          /* the victim's */
    int is_forever, stop_again;
    int is_nonfinite, is_disk_full;
    int was_different, was_nonfinite; /* reported by an engine */

    int n_formed[MAX_GENERATIONS];
    int group_size[MAX_GENERATIONS], group[MAX_GENERATIONS][MAX_NODES]; /* nodes, by rank; -1 */
    int64_t newest_step, newest_generation; /* applied by any rank; of the newest collective */
    struct way way;
    int has_audits, audit_part; /* one in audit_part steps is audited */
    int heals;                  /* cluster.on_divergence: heal */
    int strikes_in_vote;        /* faults come while the ranks vote */
    int n_told, n_corruptions;  /* findings handed to a driver; corruption events */
    int n_split;                /* verdicts on replicas that nobody could mend */
    int is_back; /* 1: the state of newer steps was lost, and no recovery has told so yet */
    enum sim_mode mode;
    int is_elastic; /* ranks are replaced; several faults */
    int n_spares, min_ranks, max_ranks, n_more_faults, is_restarting;
    struct sim_run run;          /* SIM_LEADERS */
    int64_t replace_ms, step_ms; /* step_ms: the longest that a rank computes */
    struct cut cuts[MAX_CUTS];
    int n_cuts;
    int64_t healed_ns;          /* when nodes that were cut off reached each other again */
    unsigned struck[MAX_NODES]; /* faults of each node: 1 << enum inject */
    int n_struck, n_recovered, n_leaves, is_stopped, is_driver_gone;
    int64_t last_generation;
    double slowest_recovery;

    int n_warnings; /* warnings that a rank keeps the others waiting */
    int n_incidents, n_rings;

    /* sim_watch.c */
    enum stage stage; /* of the driver, when it was last looked at */
    int64_t stage_generation, stage_since, stage_step; /* stage_since: by the driver's clock */
    int64_t due_since, due_step;                       /* since when a rank waits for a regroup */
    int stage_lost, is_disturbed, last_n;
    int64_t last_formed; /* by the driver's clock */
    int n_grown;
    int n_epoch_events, n_done, n_checkpoints, n_errors, n_lost, n_joins, n_forms, n_first;
    struct session_event last_error; /* only its rank is kept */
    int error_node;
    struct sim_result *r;
};

void sim_say(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of --show: of node k, or SHOW_FAULT. */
void sim_show(const struct sim *s, int k, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t sim_random(struct sim *s, int64_t lo, int64_t hi); /* lo .. hi, both included */
void sim_schedule(struct sim *s, struct sim_event e, int64_t t);

/* sim_net.c */
struct sim_event sim_pop(struct sim *s);
void sim_free_event(struct sim_event *e);
int sim_end_of(int k); /* the end of its connections that is node k's */
int64_t sim_delay(struct sim *s);
/* Carry an event from end `end` of link `id` to the other; takes what e owns. */
void sim_transmit(struct sim *s, int64_t id, int end, struct sim_event e);
void sim_close_end(struct sim *s, int64_t id, int end);
int64_t sim_connect(struct sim *s, int node);  /* -1: a stranger */
int64_t sim_clock(const struct sim *s, int k); /* what node k's clock shows */
int64_t sim_when(const struct sim *s, int k, int64_t due);
void sim_clock_leaps(struct sim *s, int k, int64_t ns);
void sim_clock_stalls(struct sim *s, int k, int64_t ns);

/* sim_node.c */
void sim_start_driver(struct sim *s);
void sim_start_follower(struct sim *s, int k);
void sim_process_gone(struct sim *s, int k);
void sim_drain(struct sim *s, int k); /* carry out its session's actions */

/* sim_fault.c */
void sim_choose_fault(struct sim *s);
void sim_choose_elastic(struct sim *s);
void sim_choose_leaders(struct sim *s);
void sim_fire(struct sim *s);
void sim_next_fault(struct sim *s);
void sim_stop_driver(struct sim *s);

void engine_take(struct sim *s, int k, struct cmd *c); /* takes c */
void engine_break_off(struct sim *s, int k);           /* engine_abort */
void engine_advance(struct sim *s, int k, int64_t token);
void engine_fault(struct sim *s, int k, int is_consequence, const char *text);
void engine_die(struct sim *s, int k);
void engine_report(struct sim *s, int k, struct report *r); /* takes r */
void engine_next_part(struct sim *s, int k);
void engine_end_step(struct sim *s, int k);
void engine_end_epoch(struct sim *s, int k, enum epoch_end end);
void engine_wake(struct sim *s, int k, int64_t ns); /* engine_advance after so long */

/* sim_audit.c */
void audit_choose(struct sim *s);
void audit_form(struct sim *s, int k); /* node k's engine has formed */
int audit_is_due(const struct sim *s, int k);
void audit_open(struct sim *s, int k);
void audit_leave(struct sim *s, int k); /* the node leaves its formation */
void audit_advance(struct sim *s, int k);
void audit_gather(struct sim *s, int64_t g); /* all ranks of the formation have come */
void audit_sum(struct sim *s, int64_t g);    /* the step is summed over all ranks */
int audit_strikes(struct sim *s, int k);     /* 1: the node's flaw shows now */
void audit_event(struct sim *s, const struct session_event *e);
void audit_check(struct sim *s);

/* sim_replica.c */
/* Ranks that hold the source's step compare their states.  -1: they differ, and all ranks fail;
 * else the rank whose state all take. */
int replica_source(struct sim *s, int64_t g, int source);
void replica_form(struct sim *s, int64_t g, int source); /* all ranks take its state */
void replica_update(struct sim *s, int k);               /* node k's engine applies a step */
int replica_is_due(const struct sim *s, int k);
void replica_open(struct sim *s, int k); /* compare a part, and then end the step */
/* Compare the whole, and then report the epoch.  0: that is not done in this job. */
int replica_open_whole(struct sim *s, int k, enum epoch_end end);
void replica_advance(struct sim *s, int k);
void replica_gather(struct sim *s, int64_t g); /* all ranks of the formation have come */
/* 1: the node's state was found to be wrong, so it must not be the source of a formation. */
int replica_is_condemned(const struct sim *s, int k);
uint64_t replica_content(const struct sim *s, int k);
void replica_epoch(struct sim *s); /* an epoch is told of */
/* 1: the replicas differ, and the node's is wrong or nobody can know that it is right. */
int replica_is_odd(const struct sim *s, int k);

/* sim_coll.c */
enum {
    /* A collective's key: generation * KEYS, and then 1 + step * STEP_KEYS, and the number in the
     * step: first those of an audit, from FIRST_PART on the parts of sim_way.h, and from
     * FIRST_CHECK on those of comparisons, after the step and at an epoch's end. */
    KEYS = 1000000,
    STEP_KEYS = 1024,
    FIRST_CHECK = STEP_KEYS - 2 * CHECK_TURNS,
    FIRST_PART = FIRST_CHECK - PARTS
};
void coll_arrive(struct sim *s, int k, int64_t key);
void coll_leave(struct sim *s, int k); /* the nodes that wait for it notice */
void coll_heal(struct sim *s);         /* a cut that held up a collective may be over */

/* sim_watch.c */
void watch_event(struct sim *s, const struct session_event *e);
void watch_driver(struct sim *s);
void watch_follower(struct sim *s, int k);
void watch_incident(struct sim *s, const struct incident *i);
void watch_away(struct sim *s, int k, int64_t ns); /* its clock went on while it stood still */
int sim_is_true(const struct sim *s, int k,
                const char *text);                         /* 1: the text fits a fault of node k */
int sim_was_struck(const struct sim *s, enum inject what); /* any node */
/* 1: another node cannot reach this one, and in some part of a step the two wait for each other
 * while the others have gone on.  So the two may be named. */
int sim_is_cut_off(const struct sim *s, int k);

void sim_check(struct sim *s);
void sim_check_ended(struct sim *s); /* every node */
void sim_check_elastic(struct sim *s);
void sim_check_leaders(struct sim *s);

#endif
