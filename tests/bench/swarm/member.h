/* member - one follower of the swarm: the product's connection and session, without an engine.
 *
 * Life:    member_start -> `heard` ... -> (member_leave) -> the loop runs on -> member_fini.
 * Threads: the loop's. */
#ifndef TESTS_BENCH_SWARM_MEMBER_H
#define TESTS_BENCH_SWARM_MEMBER_H

#include "net/conn.h"
#include "net/mux.h"
#include "session/follower.h"

struct member;

enum heard {
    HEARD_OPEN,     /* the handshake is done */
    HEARD_WELCOME,  /* the driver has accepted the member as a rank or a spare */
    HEARD_FORM,     /* the command to form; `generation` has its generation */
    HEARD_TRAIN,    /* every rank has formed, and the driver knows it */
    HEARD_PAUSE,    /* a rank was lost: leave the collective, keep the state */
    HEARD_FINISHED, /* the job, or this member's part in it, is over: `status`, `text` */
    HEARD_COUNT
};

struct relay {       /* one connection for several members, as the agent of their machine has it */
    struct mux *mux; /* NULL: not connected yet, or no longer */
    int is_ready;    /* with TLS: each side has proven that it knows the secret */
    struct member *first; /* of those that wait for that */
};

struct crowd { /* all members share it */
    uv_loop_t loop;
    const struct tls_context *tls; /* NULL: connections without TLS */
    struct sockaddr_storage driver;
    int n_relayed;       /* members of one relay; 0: each has a connection of its own */
    struct relay *relay; /* [members / n_relayed] */
    void (*heard)(struct crowd *c, struct member *m, enum heard what);
};

struct member {
    struct crowd *crowd;
    struct member *next; /* that waits for the same relay */
    int number;          /* from 1; not its rank */
    struct conn *conn;   /* NULL: not connected yet, or no longer */
    uv_connect_t connecting;
    struct follower *follower;
    char host[32];
    int64_t training_since_ns; /* 0: the member does not train */

    int64_t generation;      /* of the newest command */
    int has_left;            /* by member_leave */
    int is_finished, status; /* status: dpfollower's exit status */
    char *text;              /* after the end: the first cause, or another reason */
};

void member_start(struct member *m, struct crowd *c, int number);
void member_tick(struct member *m, int64_t now_ns); /* to be called a few times a second */
void member_leave(struct member *m);                /* as if the follower were killed */
void member_fini(struct member *m);
void relay_fini(struct relay *r); /* after its members */

#endif
