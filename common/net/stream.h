/* stream - bytes in and out of one TCP socket, or of one channel of such a socket (net/mux.h).
 *
 * This is the lowest layer of a connection; conn.h puts frames on top of it.  tls.h stands between
 * the two, with the same calls and callbacks.  No higher layer looks at the socket.
 *
 * Life:    stream_init -> (uv_accept on .tcp, or stream_connect) -> stream_start -> send, bytes ...
 *          -> stream_close -> the loop runs on -> `gone`.  From stream_init on, stream_close is
 *          needed, and the memory must stay until `gone`.  Over a channel stream_start_over comes
 *          in the place of the connecting and of stream_start.
 * Threads: the loop's.
 * Errors:  ERR_IO; ERR_PEER when the other side broke off. */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "net/addr.h"
#include "net/mux.h"

struct stream_events {
    void (*bytes)(void *arg, const void *data, size_t len); /* borrowed for the call */
    /* The other side closed (`why` is NULL), or the socket failed.  Called once, and never after
     * stream_close, which must follow, in this call or later. */
    void (*ended)(void *arg, const struct err *why);
    void (*gone)(void *arg); /* the last call: the memory may be freed */
};

enum { STREAM_PATIENCE = 15 }; /* times linger_ms, for a peer that goes on reading */

enum stream_state { STREAM_OPEN, STREAM_ENDED, STREAM_LINGERING, STREAM_CLOSED };

struct stream {
    uv_tcp_t tcp;
    uv_timer_t linger;
    uv_shutdown_t shutdown;
    struct mux_channel channel; /* in the place of tcp */
    int is_channel;
    /* Look for a relay's greeting in the first bytes: net/piece.h.  NULL: not, or not any more. */
    void (*greeted)(void *arg, const void *rest, size_t len);
    void *greeted_arg;
    size_t n_greeting; /* bytes of its magic that have come */
    const struct stream_events *events;
    void *arg;
    enum stream_state state;
    size_t queue_limit;   /* bytes that may wait to be sent */
    size_t n_unsent;      /* lingering: bytes that waited at the last look */
    int n_quiet, n_looks; /* ... looks since n_unsent became less, and in all */
    int n_handles;        /* of tcp and linger, not yet closed */
    int is_relayed;       /* the socket leads to a relay (net/lane.h), which told the addresses */
    struct stream_dial *dial; /* stream_connect is under way; or NULL */
    struct err *refusal;      /* the relay's answer: `ended` tells it after stream_start; or NULL */
    char peer[ADDR_TEXT], peer_number[ADDR_TEXT], local_number[ADDR_TEXT]; /* from stream_start */
};

int stream_init(struct stream *s, uv_loop_t *loop, size_t queue_limit,
                const struct stream_events *events, void *arg, struct err *err);

/* Connect to `to`: through the relay at the other end of `lane` (net/lane.h), or with lane 0 by
 * itself.  Returns 0, and then done(arg, status) comes once, from the loop; status is libuv's
 * number, and UV_ECANCELED after stream_close.  Or returns libuv's number of the error.
 * With status 0, stream_start may follow in that call. */
int stream_connect(struct stream *s, const struct sockaddr *to, int lane,
                   void (*done)(void *arg, int status), void *arg);

/* 1: the connected socket is both ends.  If no process listens at a port of the range that the
 * system gives to clients, the system may give this very port to the socket that connects. */
int stream_has_met_itself(const uv_tcp_t *tcp);

/* The socket is connected: set it up (no delay, keepalive) and begin to read. */
int stream_start(struct stream *s, struct err *err);

/* The same over a channel of `m`: a new one, or on the accepting side the one that has waited
 * longest.  ERR_PEER. */
int stream_start_over(struct stream *s, struct mux *m, struct err *err);

/* Before any bytes: if the first ones are a relay's, call greeted(arg, rest, len) once, with what
 * has come behind piece_magic.  No other callback but `gone` follows. */
void stream_await_greeting(struct stream *s,
                           void (*greeted)(void *arg, const void *rest, size_t len), void *arg);

/* Bytes that wait to be sent. */
size_t stream_n_unsent(const struct stream *s);

/* Not over a channel: send what the socket takes at once, and return how much that is. */
size_t stream_try(struct stream *s, const void *data, size_t len);

/* Queue `data`, borrowed until done(owner), which always comes once, also on failure.  Fails with
 * ERR_PEER when more than queue_limit bytes would wait: the other side does not read. */
int stream_send(struct stream *s, const void *data, size_t len, void (*done)(void *owner),
                void *owner, struct err *err);

/* Close; the only callback after this is `gone`.  With linger_ms 0 queued data is dropped, also
 * that of an earlier call.  Otherwise it is sent and the sending half is closed.  The rest is
 * closed in one of three cases: the other side has closed, too; it has taken nothing for linger_ms
 * (counted while this loop runs); or it has not taken all within STREAM_PATIENCE times that. */
void stream_close(struct stream *s, int linger_ms);

#endif
