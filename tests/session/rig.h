/* rig - one session under test, a driver, a follower or a standby, driven by hand.  The test plays
 * all other processes.  The session's last actions are kept for comparison. */
#ifndef TESTS_SESSION_RIG_H
#define TESTS_SESSION_RIG_H

#include "../test.h"

#include "session/driver.h"
#include "session/follower.h"
#include "session/standby.h"

enum { RIG_CONNS = 16, RIG_EVENTS = 64, MS = 1000000 };

struct rig {
    struct driver *d; /* one of the three */
    struct follower *f;
    struct standby *s;
    int64_t now;
    Wire__Control *sent[RIG_CONNS]; /* last on each connection, but for heartbeats and Drain */
    int n_sent[RIG_CONNS], n_beats, is_closed[RIG_CONNS], is_trusted[RIG_CONNS];
    int has_state[RIG_CONNS];  /* was told to form: it may hold a step */
    int is_drained[RIG_CONNS]; /* told by Drain, which is not in `sent` */
    int is_wrong[RIG_CONNS];   /* likewise */
    struct cmd *command;       /* last to the engine */
    int n_commands, n_requests, n_aborts;
    struct injection injected; /* the last one done; n_sent_before: n_sent[0] by then */
    int n_injected, n_sent_before;
    int n_seeks, seeks_again; /* ... a driver was asked for; the last is_again */
    int is_unproven;          /* the driver of the next rig_reconnect */
    int n_rings;              /* how often the engine's ring was asked for */
    int n_traces;             /* ... and a timeline; the last one's number */
    int64_t trace_number;
    Wire__Heartbeat beat;                   /* the last one sent */
    struct incident *incident;              /* the last one */
    struct buf log;                         /* all lines */
    struct session_event event[RIG_EVENTS]; /* all but progress */
    int n_events;
    int n_refused; /* events of peers that came to nothing */
    int is_finished, status, retry, is_engine_stuck, is_leader, is_deposed;
    char *text;
};

struct driver_options rig_options(int n_ranks);
void rig_driver(struct rig *r, const struct driver_options *o); /* started */
void rig_follower(struct rig *r);
void rig_seeker(struct rig *r, const char *launch); /* it looks for that job of a launcher */
void rig_keeper(struct rig *r); /* a follower that keeps its state without a driver */
/* A standby, whose id is "s1"; it is connected with its driver. */
void rig_standby(struct rig *r, int checks_job);
void rig_reconnect(struct rig *r); /* after ACTION_SEEK, with a driver at 10.0.0.2:7000 */
void rig_free(struct rig *r);
void rig_drain(struct rig *r);

/* Let time pass, and call the session's tick when it is due. */
void rig_wait(struct rig *r, int64_t ms);

void rig_connect(struct rig *r, int conn, const char *peer);
void rig_hello(struct rig *r, int conn, int rank); /* connects from 10.0.0.CONN, host "hCONN" */
void rig_hello_from(struct rig *r, int conn, int rank, const char *host);

struct rig_caller { /* the fields of a Hello; a field that is NULL or 0 is as a healthy follower's
                     */
    int rank, protocol;
    const char *version, *host, *host_id, *device, *backend;
    int64_t pid, pid_space;
    Wire__Gpu **gpus;
    size_t n_gpus;
    const char *no_gpu, *advertise;
    const char *launch;                 /* the launcher's job that it looks for, or NULL */
    const char *run, *run_job, *leader; /* what it kept, or NULL */
    int64_t term, formed, step;
    int in_step;
    const char *standby; /* its id, or NULL: this is a follower */
    struct voters form;  /* the newest formation whose Form it has */
    int form_rank;
    int64_t entered;
    int wrong;
};
void rig_say_hello(struct rig *r, int conn, const struct rig_caller *c); /* on an open conn */

void rig_message(struct rig *r, int conn, Wire__Control *m);
void rig_say_goodbye(struct rig *r, int conn); /* as a follower stopped by SIGTERM does */
void rig_close(struct rig *r, int conn);

/* A report of rank 0's engine (conn 0) or of a follower's (its connection); takes rep. */
void rig_report(struct rig *r, int conn, struct report *rep);
struct report *rig_opened(void); /* 3 tensors, 100 + 10 samples, 4 steps an epoch */

/* Gather n ranks, with connections 1..n-1.  Each has opened its job, and the session is in
 * prepare. */
void rig_gather(struct rig *r, int n);
/* All n ranks answer the last command, as healthy engines do. */
void rig_answer_all(struct rig *r, int n);
/* All ranks answer until this command comes.  rig_go_to begins with the gathering. */
void rig_go_on_to(struct rig *r, int n, enum cmd_kind kind);
void rig_go_to(struct rig *r, int n, enum cmd_kind kind);
void rig_end(struct rig *r, int n); /* all connections close, the engine stops, and the job ends */
struct report *rig_answer(const struct cmd *c);

/* A job whose ranks may come and go. */
struct driver_options rig_elastic(int n_ranks);
void rig_train(struct rig *r, const struct driver_options *o); /* gather all, up to training */
/* The same with a standby, of which the followers vote; its connection is RIG_STANDBY. */
enum { RIG_STANDBY = 0 };
struct driver_options rig_with_votes(int n_ranks);
void rig_train_with_standby(struct rig *r, const struct driver_options *o);
void rig_come(struct rig *r, int conn, int rank); /* a follower comes, and is ready */
void rig_assert_prepare(const struct rig *r, int conn, int rank, int n_ranks);
/* All ranks on these connections (-1 ends the list) answer, holding this step; one that was in no
 * formation yet holds step 0.  Train is answered
 * by EPOCH_REGROUP. */
void rig_all(struct rig *r, const int *conns, enum cmd_kind kind, int64_t step);
#define RIG_ALL(r, kind, step, ...) rig_all(r, (const int[]){__VA_ARGS__, -1}, kind, step)

int rig_count(const struct rig *r, enum event_kind k);
/* The last event of that kind; the test fails if there is none. */
const struct session_event *rig_event(const struct rig *r, enum event_kind k);

/* Fail the test unless the text, or the log, contains this part. */
void assert_has(const char *text, const char *part);
void assert_logged(struct rig *r, const char *part);

#endif
