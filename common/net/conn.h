/* conn - one connection between a driver and a follower: whole frames in and out.
 *
 * Reads are bounded before they are kept: 64 KiB a frame until conn_welcome, 64 MiB after.  Writes
 * that wait are bounded, too (CONN_QUEUE_LIMIT).  A conn never looks into a frame.
 *
 * Life:    from a listener or a dialer, which make it -> conn_listen -> frame ... ->
 *          (closed | conn_close).  A conn frees itself when the loop has closed its handles.
 *          The pointer must not be used after conn_close, nor after `closed` has returned.
 * Threads: the loop's.
 * Errors:  ERR_PEER broken off, ERR_PROTO bad frame, ERR_TIMEOUT no welcome in time, ERR_IO. */
#ifndef NET_CONN_H
#define NET_CONN_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/tls.h"
#include "wire/msg.h"

struct conn; /* opaque */
struct mux;  /* net/mux.h */

enum {
    CONN_QUEUE_LIMIT = FRAME_MAX + (16 << 20), /* bytes that may wait to be sent */
    CONN_LINGER_MS = 2000, /* how long a polite close waits for a peer that takes nothing more */
};

struct conn_events {
    /* A frame's body, borrowed for the call, in which conn_close is fine. */
    void (*frame)(void *arg, struct conn *c, const uint8_t *body, size_t len);
    /* The connection is lost.  Called once, and never after conn_close.  `why` is NULL when the
     * peer closed the connection; ERR_REFUSED means that it has not our secret (net/tls.h).  With
     * ERR_PROTO or ERR_TIMEOUT, one more conn_send within this call still leaves. */
    void (*closed)(void *arg, struct conn *c, const struct err *why);
};

/* From now on `events` are called for this connection, with `arg`. */
void conn_listen(struct conn *c, const struct conn_events *events, void *arg);

/* A frame's body as a checked message, which the caller frees by msg_free.  NULL: the body was no
 * legal message, the connection has failed for it, and `closed` was called. */
Wire__Control *conn_unpack(struct conn *c, const uint8_t *body, size_t len);

/* Takes `f`.  A peer that does not read (queue full) or is gone is reported by `closed`, from the
 * loop, never from within this call. */
void conn_send(struct conn *c, struct frame *f);

/* The peer belongs to the job now: it may send larger frames, and its time limit is gone. */
void conn_welcome(struct conn *c);

/* Close when all that was sent has left.  There are no more callbacks.  A peer that takes nothing
 * is given CONN_LINGER_MS; one that reads slowly is given STREAM_PATIENCE times as long
 * (net/stream.h). */
void conn_close(struct conn *c);

/* Close at once; data that waits to be sent is dropped. */
void conn_abort(struct conn *c);

/* Declare the connection lost: call `closed` with `why` at once, then close politely. */
void conn_fail(struct conn *c, const struct err *why);

const char *conn_peer(const struct conn *c);        /* "10.0.0.2:41234" */
const char *conn_peer_number(const struct conn *c); /* "10.0.0.2" */
const char *conn_local_number(
    const struct conn *c); /* this end's address, by which it reached the peer */

/* For listener and dialer: a conn whose socket is not connected yet.  `tls` is borrowed for the
 * conn's life; NULL: no encryption. */
int conn_new(uv_loop_t *loop, size_t frame_limit, const struct tls_context *tls, struct conn **out,
             struct err *err);
uv_tcp_t *conn_socket(struct conn *c);
int conn_connect(struct conn *c, const struct sockaddr *to, int lane,
                 void (*done)(void *arg, int status), void *arg); /* as stream_connect */
int conn_start(struct conn *c, struct err *err);                  /* the socket is connected */

/* The same without a socket: over a channel of `m` (net/mux.h), which has TLS in the conn's place.
 * On the side that connected `m` it is a new channel, on the accepting side the one that has waited
 * longest.  ERR_PEER. */
int conn_start_over(struct conn *c, struct mux *m, struct err *err);

/* An accepted conn, before its first bytes: it may be a relay's (stream_await_greeting).  Without
 * TLS such a conn is open once bytes have come that are not a relay's. */
void conn_await_greeting(struct conn *c, void (*greeted)(void *arg, const void *rest, size_t len),
                         void *arg);

/* 1: the peer has proven to know the secret.  Without TLS always 1, but for conn_await_greeting. */
int conn_is_open(const struct conn *c);

/* `opened(arg)` once, when a conn that is not open becomes so; not after conn_close. */
void conn_on_open(struct conn *c, void (*opened)(void *arg), void *arg);

/* 1: c was closed, by either side; its socket may be there for a while (CONN_LINGER_MS). */
int conn_is_over(const struct conn *c);

/* `left(arg)` once, when c is welcomed or its socket is gone, whichever comes first: for the
 * listener. */
void conn_on_settled(struct conn *c, void (*left)(void *arg), void *arg);

#endif
