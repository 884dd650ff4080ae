/* sim_impl - shared by the simulator's files: sim.c (world, network, processes), sim_engine.c (fake
 * engines and their collectives), sim_check.c (what must hold). */
#ifndef TESTS_SESSION_SIM_IMPL_H
#define TESTS_SESSION_SIM_IMPL_H

#include "base/rng.h"
#include "session/driver.h"
#include "session/driver_impl.h"
#include "session/follower.h"
#include "sim.h"

enum { MAX_NODES = 72, MS = 1000000, MAX_GENERATIONS = 96, MAX_STEPS = 16 };
#define NEVER INT64_MAX

enum sim_kind { EV_DELIVER, EV_CLOSED, EV_REPORT, EV_ENGINE, EV_START, EV_STRANGER, EV_THAW };

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
    int node;        /* the follower; -1 a stranger without one */
    int is_open[2];  /* that end may send */
    int is_cut[2];   /* what that end sends vanishes */
    int64_t last[2]; /* when the newest message from that end arrives */
};

struct weights { /* what training changes: which steps made it, in order */
    int64_t step[MAX_STEPS];
    int n;
};

struct fake_engine {
    enum cmd_kind doing;
    int64_t generation, epoch, step, token;
    int rank, n_ranks, source;
    struct weights w; /* `step` is what it says it holds, w what it does */
    int64_t left;     /* this generation's collective, and older ones: it is not in them any more */
    struct cmd *next; /* came after an abort, before what ran had ended */
    int64_t canceled; /* commands of this generation and older ones are not begun */
    int is_breaking;  /* aborted, and not yet out of what runs */
    enum phase phase;
    int is_waiting;            /* in a collective */
    int64_t key;               /* ... this one */
    int64_t n_handed, n_ended; /* collectives in this formation */
    int64_t since;             /* when its phase began */
    int is_released, is_last;  /* the collective is done; it agreed on the end of the epoch */
    enum epoch_end end;
    int is_fresh; /* no step in this formation yet */
    int wants_stop, wants_regroup, is_stuck, must_stop, has_stepped, is_different;
    int64_t last_report;
    int is_last_save;    /* of the checkpoint that is asked for */
    int64_t saved_at_ns; /* when the newest checkpoint is, or will be, written */
};

struct node {     /* a process */
    int64_t life; /* which process this is, counting those before it */
    int is_started, is_alive, is_finished, is_restarted;
    struct driver *d;
    struct follower *f;
    int wanted;
    int64_t link; /* a follower's; -1 */
    int64_t thaw; /* frozen until then */
    struct fake_engine e;
    int status, retry, reason, is_engine_stuck;
    char *text;
    int64_t finished_ns;
    int rank; /* last known */
};

struct sim {
    uint64_t seed;
    int verbose;
    struct rng_stream rng;
    int64_t now, start, seq;
    struct sim_event *heap;
    int n_heap, cap_heap;
    struct link links[4 * MAX_NODES];
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
    enum stage lost_stage;  /* ... and when it saw the victim's connection close */
    int rank_then;          /* the victim's */
    int is_forever, stop_again;
    int is_nonfinite, is_disk_full;
    int was_different, was_nonfinite; /* reported by an engine */

    int n_formed[MAX_GENERATIONS];
    int group_size[MAX_GENERATIONS], group[MAX_GENERATIONS][MAX_NODES]; /* nodes, by rank; -1 */
    int64_t newest_step, newest_generation; /* applied by anyone; whose collective was done */
    enum sim_mode mode;
    int is_elastic; /* ranks are replaced; several faults */
    int n_spares, min_ranks, n_more_faults, is_restarting, joins_late;
    int64_t replace_ms;
    unsigned struck[MAX_NODES]; /* what befell each node: 1 << enum inject */
    int n_struck, n_recovered, n_leaves, is_stopped, is_driver_gone;
    int64_t last_generation;
    double slowest_recovery;
    int n_warnings; /* that somebody keeps the others waiting */
    int n_incidents, n_rings;
    int n_epoch_events, n_done, n_checkpoints, n_errors, n_lost, n_joins, n_forms, n_first;
    struct session_event last_error; /* its rank */
    struct sim_result *r;
};

void sim_say(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t sim_random(struct sim *s, int64_t lo, int64_t hi); /* lo .. hi, both included */
void sim_schedule(struct sim *s, struct sim_event e, int64_t t);

void engine_take(struct sim *s, int k, struct cmd *c); /* takes c */
void engine_break_off(struct sim *s, int k);           /* engine_abort */
void engine_advance(struct sim *s, int k, int64_t token);
void engine_fault(struct sim *s, int k, int is_consequence, const char *text);
void engine_die(struct sim *s, int k);

void sim_check(struct sim *s);
void sim_check_elastic(struct sim *s);

#endif
