/* live_impl - the insides of live.h, shared by its two files: live_world.c carries out the
 * sessions' actions, live.c lets the bytes decide what happens to the sessions. */
#ifndef TESTS_SESSION_LIVE_IMPL_H
#define TESTS_SESSION_LIVE_IMPL_H

#include "live.h"
#include "live_engine.h"
#include "session/driver.h"
#include "session/follower.h"

enum { MS = 1000000, MOST_FOLLOWERS = 6, MOST_FRAMES = 64 };

struct pipe { /* one way of a connection */
    struct frame *frame[MOST_FRAMES];
    int n;
};

struct process { /* 0 the driver, else a follower with its connection to it */
    struct driver *d;
    struct follower *f;
    struct live_engine e;
    int is_alive, is_connected, is_finished;
    int is_closing, is_leaving; /* the driver has closed its end; the follower has closed its own */
    int64_t conn;               /* the driver's number for it */
    struct pipe up, down;
};

struct live {
    const uint8_t *at, *end;
    int64_t now, n_conns;
    struct process p[1 + MOST_FOLLOWERS];
    struct live_result *r;
};

/* live_world.c.  All that a call leads to is done when the call returns. */
void live_start_follower(struct live *l, int k, int rank);
void live_restart(struct live *l, int k, int rank); /* unless the driver has ended */
void live_kill(struct live *l, struct process *p);
void live_end_process(struct process *p); /* no other process notices */

void live_drain(struct live *l, struct process *p);                    /* its actions */
void live_report(struct live *l, struct process *p, struct report *r); /* takes r */
struct frame *live_take_frame(struct pipe *p); /* the oldest one; there is one */
void live_hand_over(struct live *l, struct process *p, int is_up, const Wire__Control *m);
/* why_d, why_f: the error that the driver's end and the follower's end see; NULL: a plain close. */
void live_break(struct live *l, struct process *p, const struct err *why_d,
                const struct err *why_f);
/* Close both ends of a connection that one of them wants closed, once all messages are
 * delivered. */
void live_finish_closing(struct live *l, struct process *p);

void live_tick(struct live *l, struct process *p); /* if its deadline has passed */
void live_wait(struct live *l, int64_t ms);        /* every session ticks when due */

void live_check_text(const char *s); /* NULL, or fit for a terminal */

#endif
