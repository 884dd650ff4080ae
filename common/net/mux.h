/* mux - many channels of bytes over one TCP connection, between a relay and a driver.
 *
 * A relay passes the bytes of its machine's ranks through one connection.  With a secret TLS
 * protects that connection as it does a rank's own (net/tls.h): each side proves before the first
 * channel that it knows the secret, and the driver its role.  The channels' bytes are then those of
 * the relay's machine.
 *
 * Each side has a window for each channel: it takes so many bytes (MUX_WINDOW) before its user has
 * taken any.  A channel whose user does not read so holds up no other one, and memory is bounded.
 * All that users send in one turn of the loop, on any channels, leaves with few system calls.
 *
 * net/piece.h has the form of what goes over the connection.  Data for a channel that is over is
 * dropped.  Anything else that is not in order ends the connection, and says why.
 *
 * A channel that the accepting side has not taken waits: it costs 16 bytes, and none of its bytes
 * come.
 *
 * Life:    connecting side: mux_connect -> mux_open, mux_send ... -> mux_close.  Accepting side:
 *          mux_accept -> `offered` -> mux_open ... -> mux_close.  A mux frees itself when the loop
 *          has closed its handles; the pointer must not be used after mux_close or mux_abort, nor
 *          after `ended` has returned.  The memory of a channel is its user's.
 * Threads: the loop's.
 * Errors:  ERR_PEER, ERR_PROTO bad bytes, ERR_UNSUPPORTED the driver takes no relays, ERR_REFUSED
 *          the secrets differ or one side has none (net/tls.h), ERR_IO. */
#ifndef NET_MUX_H
#define NET_MUX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/err.h"
#include "net/addr.h"

struct mux; /* opaque */
struct tls_context;

enum {
    MUX_WINDOW = 256 << 10,  /* bytes of a channel that one side takes unread */
    MUX_MAX_CHANNELS = 1024, /* of one connection */
    MUX_READY_MS = 5000,     /* the driver must have answered, and with TLS proven, by then */
};

struct mux_events {
    /* Both sides have greeted, and with TLS each has proven that it knows the secret.  May be NULL.
     */
    void (*ready)(void *arg);
    /* Accepting side: one more channel waits, which mux_open takes, in this call or later.  NULL on
     * the connecting side. */
    void (*offered)(void *arg);
    /* The connection is over, or was not made.  Why is NULL if the other side has closed it in
     * order while there was no channel.  Called once, after all channels have heard of it, and
     * never after mux_close or mux_abort, which need not follow.  `status` is libuv's number:
     * UV_EOF the other side closed it, UV_EPROTONOSUPPORT the driver takes no relays, UV_EPROTO bad
     * bytes, UV_ECONNRESET anything else. */
    void (*ended)(void *arg, const struct err *why, int status);
};

struct mux_user {
    const struct mux_events *events;
    void *arg;
};

struct mux_channel_events {
    /* Borrowed for the call.  mux_took must follow, in this call or later. */
    void (*bytes)(void *arg, const void *data, size_t len);
    /* Why is NULL: the other side sends no more, and this side may go on.  Otherwise the channel is
     * over and its memory free: ERR_PEER, with the relay's name. */
    void (*ended)(void *arg, const struct err *why);
    /* Both sides have ended in order, and all was sent: the channel is over and its memory free.
     * Not after mux_drop. */
    void (*over)(void *arg);
};

/* Its user's memory, zeroed at first; only the functions below look into it. */
struct mux_channel {
    struct mux *mux; /* NULL: none, or it is over */
    const struct mux_channel_events *events;
    void *arg;
    struct mux_channel *next, **link; /* of those with something to send; link NULL: not there */
    struct mux_item *first, **last;   /* to be sent, oldest first */
    size_t n_unsent;                  /* bytes of these items */
    uint32_t number;
    uint32_t n_may_send, n_may_come; /* bytes that the other side takes now, and this one */
    uint32_t n_took;                 /* taken by the user, and not told yet */
    uint8_t must_open, must_end;     /* this is to be sent */
    uint8_t has_ended, peer_has_ended;
};

/* Connect to a driver.  Returns before that is done: channels can be opened at once, and wait.  A
 * connect that fails is told by `ended`, from the loop.  `tls` is a follower's context, or NULL: no
 * encryption; it is borrowed for the mux's life. */
int mux_connect(uv_loop_t *loop, const struct sockaddr *to, const struct tls_context *tls,
                const struct mux_user *user, struct mux **out, struct err *err);

/* Take over a connected socket, `fd`, whose first bytes were piece_magic; mux_feed brings what has
 * come behind them.  `tls` is a driver's context, or NULL.  On failure fd is closed. */
int mux_accept(uv_loop_t *loop, int fd, const struct tls_context *tls, const struct mux_user *user,
               struct mux **out, struct err *err);
void mux_feed(struct mux *m, const void *data, size_t len);

/* No channel is opened or offered any more.  Once the last one is over and all has left, the
 * connection is closed politely, or at once if the peer stops taking what is left.  A connection
 * that the driver has not answered is closed at once.  There are no more callbacks of the mux, only
 * of channels. */
void mux_close(struct mux *m);

/* Close at once: each channel hears `ended`, the mux's user nothing more. */
void mux_abort(struct mux *m);

int mux_n_waiting(const struct mux *m); /* channels offered and not taken */
int mux_n_taken(const struct mux *m);   /* the other ones */
uv_tcp_t *mux_socket(struct mux *m);    /* to ask it for its addresses */

const char *mux_peer(const struct mux *m);         /* "10.0.0.2:41234" */
const char *mux_peer_number(const struct mux *m);  /* "10.0.0.2" */
const char *mux_local_number(const struct mux *m); /* this end's address */

/* Connecting side: open a channel.  Accepting side: take the channel that has waited longest.
 * ERR_PEER: there are MUX_MAX_CHANNELS, none waits, or the connection is over. */
int mux_open(struct mux *m, struct mux_channel *ch, const struct mux_channel_events *events,
             void *arg, struct err *err);

/* Queue `data`, borrowed until done(owner), which always comes once, from within a call or from the
 * loop.  Done may call mux_send, and nothing else of this mux. */
void mux_send(struct mux_channel *ch, const void *data, size_t len, void (*done)(void *owner),
              void *owner);

/* The other end, for messages: "10.0.0.1:7000" of a driver, "10.0.0.2:41234 (relayed 3)" of a rank
 * behind a relay. */
void mux_name(const struct mux_channel *ch, char out[ADDR_TEXT]);

/* Bytes that wait in this channel. */
size_t mux_n_unsent(const struct mux_channel *ch);

/* So many bytes that `bytes` brought are taken: as many more may come.  Fine when it is over. */
void mux_took(struct mux_channel *ch, size_t n);

/* This side sends no more; what waits is sent first. */
void mux_end(struct mux_channel *ch);

/* The channel is over at once: what waits is dropped, and no callback follows.  The mux does not
 * end within this call, so a list of channels' users can be walked.  Fine when it is over. */
void mux_drop(struct mux_channel *ch);

#endif
