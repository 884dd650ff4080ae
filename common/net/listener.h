/* listener - accepts connections, and bounds the resources that strangers may take.
 *
 * A stranger is a connection not yet welcomed (conn_welcome), until its socket is gone.  At most
 * `max_strangers` of them exist, and `max_each` of one source: an IPv4 address, or an IPv6 network
 * of 64 bits.  Each may stay for `stranger_ms`.
 *
 * A stranger makes room for another one when it is `room_after_ms` old: first the oldest that is
 * closed and only lingers, then the oldest (a follower speaks at once).  While there is no room,
 * further connections wait in the kernel's queue.  For one more of a source that has max_each,
 * another of the same source goes at once, chosen alike.
 *
 * With takes_relays a connection may be a relay's (net/mux.h), which its first bytes tell.  Each of
 * its channels is then a stranger like a connection, by the relay's address; those for which there
 * is no room wait.  The relay's connection is a stranger, too, while none of its channels is
 * welcomed: it takes a socket, and goes with its channels when its time is over.  Sockets have a
 * bound of their own, `max_sockets`, and of one source `max_sockets_each`.
 *
 * With TLS the caller does not hear of a stranger before it has proven to know the secret; a relay
 * does so for all of its channels, and opens none before.  The
 * listener logs why a stranger failed, at most LISTENER_SAYS lines in `say_window_ms`, and counts
 * the others.  It also logs when a connection has taken the last file that this process may have
 * open: those that come after it are closed at once, without a line.
 *
 * Life:    listener_new -> accepted ... -> listener_close, and the loop runs on until its handle is
 *          closed.  Connections outlive the listener, except those that have not proven
 *          to know the secret: they are closed.
 * Threads: the loop's.
 * Errors:  ERR_ARG address, ERR_IO, with the remedy. */
#ifndef NET_LISTENER_H
#define NET_LISTENER_H

#include "net/conn.h"

struct listener; /* opaque */

enum { LISTENER_SAYS = 10, LISTENER_ROOM_AFTER_MS = 200, LISTENER_SAY_WINDOW_MS = 10000 };

struct listener_options {
    const char *host;            /* name or number to bind to; "0.0.0.0", "::" for all */
    int port;                    /* 0: a free one */
    int max_strangers, max_each; /* max_each 0: the same */
    /* Of strangers: connections, relays' too; and those of one source.  0: as the two above. */
    int max_sockets, max_sockets_each;
    int takes_relays;
    int stranger_ms;
    int room_after_ms;             /* 0: LISTENER_ROOM_AFTER_MS */
    int say_window_ms;             /* 0: LISTENER_SAY_WINDOW_MS */
    const struct tls_context *tls; /* NULL: none; kept until the last connection is gone */
    /* A connection is there, and with TLS has proven to know the secret; conn_listen it in this
     * call. */
    void (*accepted)(void *arg, struct conn *c);
    /* A stranger failed to prove that it knows the secret: each one, also those that the log only
     * counts.  May be NULL. */
    void (*refused)(void *arg, const char *why);
    void *arg;
    int *is_in_use; /* listener_new failed: 1 if another program has the port; may be NULL */
};

int listener_new(uv_loop_t *loop, const struct listener_options *o, struct listener **out,
                 struct err *err);

/* From here on so many strangers may be there: o's four numbers of them count, and nothing else of
 * it.  Those that are there stay. */
void listener_limit(struct listener *l, const struct listener_options *o);

void listener_close(struct listener *l); /* NULL is fine */

int listener_port(const struct listener *l);
const char *listener_text(const struct listener *l);   /* "127.0.0.1:7000" */
const char *listener_number(const struct listener *l); /* "127.0.0.1" */

#endif
