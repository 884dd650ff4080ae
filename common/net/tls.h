/* tls - bytes in and out of one stream, only with peers that hold the secret.
 *
 * A layer over stream.h with its calls and callbacks: TLS 1.3 with a key known to both sides
 * (RFC 8446 section 2.2, psk_dhe_ke: recorded traffic stays unreadable even when the key is stolen
 * later), and nothing else: no certificates, older versions, tickets or early data.  Then the
 * driver proves that it holds what only a driver makes of the secret (net/tls_key.h).  Without a
 * context this layer only hands bytes through.
 *
 * A stranger costs little: an SSL object is made only when a whole ClientHello of a likely size is
 * there.  At most 64 KiB may come before the peer has proven the key, and no higher layer sees
 * those bytes.  Data to send waits until the peer has proven the key, and is encrypted as the
 * socket takes it.
 *
 * Life:    tls_context_new once, kept until the last connection is gone.  Each connection as in
 *          stream.h; `open` when the peer has proven the key (`bytes` never comes before).
 * Ends:    `ended` without why: the peer said that it ends (close_notify).  A stream that ends
 * without it is ERR_PEER: the peer was killed, or somebody cut the connection.  ERR_REFUSED: the
 *          peer has another secret or none, and the text says which.  ERR_PROTO: bad bytes.
 * Threads: the loop's; a context is used by one loop. */
#ifndef NET_TLS_H
#define NET_TLS_H

#include "base/buf.h"
#include "net/secret.h"
#include "net/stream.h"

struct tls_context; /* opaque */

enum tls_role { TLS_DRIVER, TLS_FOLLOWER }; /* accepts, connects */

/* The remedy for each failure, for messages; each is the end of a sentence. */
struct tls_texts {
    const char *differ; /* the secrets differ: ... */
    const char *plain;  /* the other side speaks without TLS: ... */
};

enum { TLS_MAX_SECRETS = 4 };

/* A driver accepts each of these `n` secrets; a follower offers one of them, at first the first.
 * `s` may be wiped afterwards; `texts` is kept.  ERR_DEVICE: the library lacks something that is
 * needed. */
int tls_context_new(const struct secret *s, int n, enum tls_role role,
                    const struct tls_texts *texts, struct tls_context **out, struct err *err);
void tls_context_free(struct tls_context *c); /* NULL is fine */

/* A follower's secret was refused: the next connection offers the next one.  0: by now all of them
 * were refused since one was accepted. */
int tls_context_next(struct tls_context *c);

struct tls_events {
    struct stream_events stream;
    void (*open)(void *arg);
    void (*sent)(void *arg); /* with a context: encrypted bytes have left; may be NULL */
};

enum {
    TLS_MAX_STRANGER = 64 << 10, /* bytes from a peer that has not proven the key */
    TLS_NAME = 42,               /* of a key: net/tls_key.h */
    TLS_PROOF = 32,              /* of a driver */
};

enum tls_state { TLS_SHAKING, TLS_OPEN, TLS_OVER };

struct tls {
    struct stream stream;
    const struct tls_context *context; /* NULL: hand through */
    const struct tls_events *events;
    void *arg;
    enum tls_state state;
    struct ssl_st *ssl; /* NULL: no likely ClientHello has come yet */
    struct buf head;    /* bytes that came before ssl was made */
    const uint8_t *in;  /* bytes that have come and are being worked on */
    size_t n_in;
    struct buf out;                 /* encrypted, not yet given to the stream */
    struct tls_item *first, **last; /* to be sent, oldest first */
    size_t n_waiting, queue_limit;  /* bytes of these items; the limit of them and the stream's */
    size_t n_unproven;              /* bytes that came before the peer had proven the key */
    int n_late;                     /* handshake messages after the handshake */
    int key;                        /* the secret of this connection */
    int is_of_other_version;        /* the follower offers a key as another version names it */
    uint8_t name[TLS_NAME];         /* a follower's for it */
    uint8_t proof[TLS_PROOF];       /* a driver's; n_proof bytes of it have come */
    size_t n_proof;
    /* It takes what comes before TLS begins (tls_start_after); NULL: TLS has begun. */
    void (*before)(void *arg, const void *data, size_t len);
    int is_pumping;
    int is_judged; /* the first bytes were fine */
    int is_broken; /* nothing more can be said to the peer */
};

int tls_init(struct tls *t, uv_loop_t *loop, const struct tls_context *context, size_t queue_limit,
             const struct tls_events *events, void *arg, struct err *err);
int tls_start(struct tls *t, struct err *err);

/* The same where other bytes come first, in the clear: `head` leaves, and what comes goes to
 * before(arg, ...), with the arg of the events, until tls_enter.  There TLS begins; `data` has come
 * for it already, and len may be 0. */
int tls_start_after(struct tls *t, const void *head, size_t len,
                    void (*before)(void *arg, const void *data, size_t len), struct err *err);
int tls_enter(struct tls *t, const void *data, size_t len, struct err *err);

/* Bytes came from the peer by another way than the stream. */
void tls_bytes_came(struct tls *t, const void *data, size_t len);

int tls_send(struct tls *t, const void *data, size_t len, void (*done)(void *owner), void *owner,
             struct err *err);
/* Not over a channel: send what leaves at once; *n_taken bytes are.  With a context it is all: what
 * the socket does not take waits in the stream, encrypted.  Fails if OpenSSL does; the caller has
 * to close then.  No callback is called. */
int tls_try(struct tls *t, const void *data, size_t len, size_t *n_taken, struct err *err);
void tls_close(struct tls *t, int linger_ms);

/* 1: the peer has proven the key.  Always 1 without a context. */
int tls_is_open(const struct tls *t);

#endif
