/* coll/link - an established connection with one rank, on one channel: bytes in order, both ways.
 *
 * There are no message headers: both sides know how many bytes come next, because all ranks run the
 * same collectives.  A send puts its bytes into the socket and returns.  It blocks only if more
 * than the window is unread.  A receive writes straight into the caller's memory.
 *
 * An encrypted link is the same, with the bytes in records of TLS.  A record that was changed on
 * its way breaks the link.
 *
 * Between ranks of one machine the bytes go through shared memory (coll/shm.h), and between
 * machines they may go over a fabric (coll/fabric/fabric.h).
 *
 * Life:    link_new -> link_send, link_recv ... -> link_free.
 * Threads: one at a time; but link_shut and link_is_gone from any, except during link_free.
 * Errors:  ERR_PEER: the connection broke; ERR_TIMEOUT: no progress for the link's timeout. */
#ifndef COLL_LINK_H
#define COLL_LINK_H

#include <openssl/types.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "coll/shm.h"

struct link; /* opaque */

/* The send buffer to ask the kernel for; it may give less (net.core.wmem_max). */
enum { LINK_SNDBUF = 1 << 20 };

/* An encrypted link changes its sending key after this many bytes. */
enum { LINK_KEY_BYTES = 1 << 30 };

/* *out: the number of bytes that a link holds before the receiver reads.  Fails with ERR_IO. */
int link_window(uint32_t *out, struct err *err);

struct fabric;
struct patience;

/* The parts that a link is made of. */
struct link_parts {
    int fd;          /* a connected socket */
    SSL *ssl;        /* on fd; NULL: the link is not encrypted */
    struct shm *shm; /* shared memory that carries all bytes, while fd only shows when the peer is
                        gone; NULL: fd carries the bytes */
    struct patience *patience; /* borrowed; not NULL if there is a shm */
    struct fabric *fabric; /* borrowed; carries all bytes if there is no shm, as shm does; NULL: no
                              fabric does */
    int channel, rank;     /* on the fabric: the link's, the peer's */
};

/* Takes the parts.  timeout_ms: a call without progress for this time fails; 0: it never fails so.
 */
struct link *link_new(struct link_parts parts, int64_t timeout_ms);
void link_free(struct link *k); /* what was sent still arrives; NULL is fine */

int link_send(struct link *k, const void *data, size_t n_bytes, struct err *err);
int link_recv(struct link *k, void *to, size_t n_bytes, struct err *err);

/* Wait until what was sent is on its way without further help of this process.  To be called before
 * the caller stops to send and receive on this channel. */
int link_flush(struct link *k, struct err *err);

void link_shut(struct link *k);           /* make all calls fail, here and at the peer */
int link_is_shared(const struct link *k); /* its bytes go through shared memory */
/* 1: a send of so many bytes does not block; 0: it may. */
int link_has_room(const struct link *k, size_t n_bytes);
int link_is_gone(const struct link *k); /* the peer has closed its side, or link_shut was called */

#endif
