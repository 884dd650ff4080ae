/* coll/shake - one connection between two ranks before it is a link: connecting, the proof, and for
 * an encrypted link the handshake of TLS.  Ranks of one machine share memory instead of encrypting.
 * coll/links_thread.c calls this.
 *
 * Nothing here blocks: the sockets do not block, and shake_step goes on as far as it can.  From a
 * peer that has not proven the key, at most the bytes of one message are read (coll/proof.h).
 *
 * Life:    shake_dial or shake_accept -> shake_step whenever the socket is ready -> shake_free.
 * Threads: any one at a time. */
#ifndef COLL_SHAKE_H
#define COLL_SHAKE_H

#include "coll/cipher.h"
#include "coll/endpoint.h"
#include "coll/link.h"
#include "coll/proof.h"
#include "coll/samehost.h"

/* The formation, as far as this rank knows it. */
struct shake_terms {
    int rank, size;
    int has_key; /* 0: the members below are not known yet */
    enum proof_mode mode;
    const struct cipher *cipher; /* of PROOF_TLS */
    uint8_t key[PROOF_KEY];
};

enum shake_stage {
    SHAKE_CONNECTING,
    SHAKE_READ_ANSWER, /* of a dialer */
    SHAKE_READ_HELLO,  /* of an acceptor */
    SHAKE_READ_FRESH,  /* of an acceptor; the hello was right */
    SHAKE_PROVEN,      /* only the rest of the last message is to be sent */
    SHAKE_TLS,
    SHAKE_SHARE, /* on one machine: the dialer hands over the shared memory */
};

struct shake {
    int fd;
    enum shake_stage stage;
    struct endpoint_addr addr; /* the peer's */
    int64_t born_ns;
    struct proof proof;
    size_t want, n_in;    /* bytes of the message to read, and how many have come */
    size_t n_out, n_sent; /* bytes of the message to send, and how many have left */
    uint8_t in[PROOF_HELLO], out[PROOF_HELLO];
    int is_same_host; /* the socket is one of coll/samehost.h */
    SSL *ssl;         /* from SHAKE_TLS on */
    struct shm *shm;  /* from SHAKE_SHARE on; NULL: there is none */
    uint8_t link_key[PROOF_KEY];
};

enum shake_outcome {
    SHAKE_PENDING,
    SHAKE_DONE,     /* complete: shake_take has the connection */
    SHAKE_STRANGER, /* the peer does not prove the key */
    SHAKE_CLOSED,   /* the peer closed before the proof was complete */
};

/* Connect to a rank and prove to be link.from: by its name on this machine (NULL: do not try), or
 * else by its address `to`.  Fails with ERR_PEER, ERR_IO. */
int shake_dial(const struct shake_terms *t, struct proof_link link, const struct endpoint_addr *to,
               const struct samehost_name *name, struct shake **out, struct err *err);

/* Takes a connection that was accepted, on a socket that does not block.  from: the peer's address;
 * NULL: the connection came to this rank's name on this machine. */
struct shake *shake_accept(int fd, const struct endpoint_addr *from);

/* Go on: an outcome, or an error.  ERR_PEER: connecting failed; ERR_PROTO: the peer is a rank of
 * this formation and wants another mode; ERR_IO. */
int shake_step(struct shake *s, const struct shake_terms *t, struct err *err);

/* The events for which to poll the socket; 0: none, because the key must come first. */
short shake_events(const struct shake *s);

/* After SHAKE_DONE: the socket and what belongs to it are now the caller's. */
struct link_parts shake_take(struct shake *s);

void shake_free(struct shake *s); /* closes the socket; NULL is fine */

#endif
