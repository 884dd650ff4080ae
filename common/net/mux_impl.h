/* mux_impl - a mux as its three files share it: mux_begin.c connects and greets, mux.c reads,
 * mux_out.c sends.  No other file includes this.
 *
 * Threads: the loop's. */
#ifndef NET_MUX_IMPL_H
#define NET_MUX_IMPL_H

#include "net/mux.h"
#include "net/piece.h"
#include "net/tls.h"

enum mux_state {
    MUX_CONNECTING, /* or with TLS: the peer has yet to prove that it knows the secret */
    MUX_OPEN,
    MUX_CLOSING, /* mux_close: until the last channel is over and all has left */
    MUX_OVER,
};

struct mux_seat {
    uint32_t number;
    struct mux_channel *channel; /* NULL: it waits to be taken */
};

/* The last piece of a channel whose memory is its user's again. */
struct mux_farewell {
    uint32_t number;
    enum piece_kind kind; /* PIECE_END or PIECE_BREAK */
};

struct mux {
    struct tls tls;
    uv_connect_t connect;
    uv_idle_t flush;                 /* runs once, when there is something to send */
    uv_timer_t patience;             /* until the driver has answered; after mux_close: looks */
    const struct mux_events *events; /* NULL: no function is called */
    void *arg;
    enum piece_side side;
    enum mux_state state;
    int status;            /* of a connect that failed at once, or of `failure` */
    struct err *failure;   /* found within a user's call: the next flush ends the mux; or NULL */
    int n_handles;         /* flush and patience, not yet closed */
    struct mux_seat *seat; /* [n_seats], by number; those that wait are the last ones */
    int n_seats, cap_seats, n_waiting;
    uint32_t last; /* the number of the newest channel */

    struct mux_channel *first_ready, **last_ready; /* with something to send */
    struct mux_farewell *farewell;
    int n_farewells, cap_farewells;
    size_t n_fresh;       /* bytes queued since the last flush */
    int is_gathering;     /* a block is being made, which calls users */
    size_t n_left_here;   /* closing: bytes that waited at the last look */
    int n_quiet, n_looks; /* ... looks since they became less, and without a channel */
    int was_greeted;      /* the other side has greeted */

    uint8_t head[PIECE_HEADER + PIECE_CREDIT_LEN]; /* what has come of it, or of the greeting */
    size_t n_head;
    struct piece piece; /* the one that is being read */
    uint32_t n_left;    /* bytes of its data that have not come */
};

/* mux.c */
void mux_on_bytes(void *mux, const void *data, size_t len); /* the events of its tls */
void mux_on_ended(void *mux, const struct err *why);
void mux_on_gone(void *mux);
int mux_status_of(const struct err *why); /* libuv's number of what came */
void mux_fail(struct mux *m, const struct err *why, int status);
void mux_settle(struct mux_channel *ch); /* both sides have ended: it is over */
void mux_finish(struct mux *m); /* all has left: after mux_close, close if no channel is left */

/* mux_out.c */
void mux_wake(struct mux *m);           /* there is something to send, or to close */
void mux_queue(struct mux_channel *ch); /* ch has something to send */
/* Send the data that users sent while they were told what came. */
void mux_answer(struct mux *m);
void mux_unqueue(struct mux_channel *ch); /* drop what it has to send */
int mux_say_last(struct mux *m, uint32_t number, enum piece_kind kind, struct err *err);
/* The same for a call of the user's: if it fails, the mux ends in the loop's next turn. */
void mux_say_last_or_fail(struct mux *m, uint32_t number, enum piece_kind kind);
size_t mux_n_left(const struct mux *m); /* bytes of the ends, and of what the socket has to take */

#endif
