/* listener_impl - a listener as listener.c and listener_relay.c share it.  No other file includes
 * this.
 *
 * Threads: the loop's. */
#ifndef NET_LISTENER_IMPL_H
#define NET_LISTENER_IMPL_H

#include "net/listener.h"
#include "net/mux.h"

/* A connection that was accepted takes both, a relay's connection a socket, and a rank behind it a
 * conn. */
enum { PLACE_SOCKET = 1, PLACE_CONN = 2 };
enum { N_PLACES = 2 };

struct stranger {
    struct stranger *next, **link; /* oldest first */
    struct listener *listener;
    struct conn *conn;       /* NULL: it is a relay's connection */
    struct carrier *carrier; /* that, or the one by which conn came; NULL: none */
    int holds;
    uint64_t source;
    int64_t since_ns;
    int is_going; /* it makes room for another; the loop has yet to close its socket */
};

/* A relay's connection.  It is a stranger while none of its ranks is welcomed. */
struct carrier {
    struct carrier *next, **link;              /* all of them */
    struct carrier *next_offering, **offering; /* those with channels that wait; NULL: not there */
    struct listener *listener;
    struct mux *mux;        /* NULL: it is over */
    struct stranger *place; /* NULL: it is no stranger */
    uint64_t source;
    int n_conns, n_members; /* of its channels, until they are gone; those that are welcomed */
    int has_had_members;
};

struct listener {
    uv_tcp_t tcp;
    uv_timer_t sweep; /* runs while there are strangers */
    struct listener_options options;
    struct stranger *oldest, **newest;
    int n_strangers;
    int n_held[N_PLACES]; /* by them */
    struct carrier *first_carrier;
    struct carrier *first_offering, **last_offering;
    int is_waiting;    /* a connection waits to be accepted */
    int is_relay_next; /* channels and connections take turns */
    int is_closing;
    int n_handles;
    char text[ADDR_TEXT], number[ADDR_TEXT];
    int64_t said_ns;      /* when the present window of log lines began */
    int n_said, n_unsaid; /* lines of this window: logged, and only counted */
};

/* listener.c */
void listener_go_on(struct listener *l);                 /* there may be room for one that waits */
void listener_say(struct listener *l, const char *text); /* why one is not let in */
int listener_second_file(struct conn *c);                /* of its socket; -1: errno says why */
void listener_admit(struct listener *l, struct conn *c, struct carrier *from);
struct stranger *listener_add(struct listener *l, struct stranger *s);
void listener_remove(struct stranger *s); /* and free it */

/* listener_relay.c */
/* The connection of s is a relay's, and `rest` has come behind its magic. */
void carrier_new(struct stranger *s, const void *rest, size_t len);
void carrier_turn_out(struct carrier *c, const char *why);
/* A conn of its ranks was welcomed, or is gone. */
void carrier_settled(struct carrier *c, struct conn *conn);
void carrier_take_one(struct listener *l); /* a channel that waits; there is room for it */
void carrier_close_all(struct listener *l);

#endif
