/* link_impl - the forms of a link: what moves its bytes.  link.c chooses the form and passes the
 * calls on.  A form's struct begins with struct link.
 *
 * Every link has the socket on which the two ranks have proven the formation's key.  A form that
 * moves its bytes by other means keeps the socket to see when the peer is gone: the kernel closes
 * it, however the peer ends.
 *
 * Threads: as coll/link.h. */
#ifndef COLL_LINK_IMPL_H
#define COLL_LINK_IMPL_H

#include "coll/link.h"

struct link_ops {
    /* Both move all bytes, and block until they have: see link_send and link_recv. */
    int (*send)(struct link *k, const void *data, size_t n_bytes, struct err *err);
    int (*recv)(struct link *k, void *to, size_t n_bytes, struct err *err);
    int (*has_room)(const struct link *k, size_t n_bytes); /* see link_has_room; NULL: always 0 */
    int (*flush)(struct link *k,
                 struct err *err); /* see link_flush; NULL: there is nothing to do */
    void (*shut)(struct link *k); /* end waits that the socket does not end; NULL: there are none */
    void (*fini)(struct link *k); /* NULL: the form has nothing but the struct */
};

struct link {
    const struct link_ops *ops;
    int fd;
    int64_t timeout_ns; /* 0: none */
    size_t n_buffer;    /* bytes of the socket's send buffer */
};

/* A new link of each form, without its socket and timeout.  They take what they are given. */
struct link *link_over_socket(void);
struct link *link_over_tls(SSL *ssl);
struct link *link_over_shm(struct shm *shm, struct patience *patience);

extern const struct link_ops link_shm_ops;

/* Errors that several forms share. */
int link_failed(int number, struct err *err); /* of a socket call: errno */
int link_closed(struct err *err);             /* the peer has closed its side */
int link_stalled(struct err *err);            /* the timeout is over */

/* The time in ns until which a call that starts to wait now may wait. */
int64_t link_limit_ns(const struct link *k);

#endif
