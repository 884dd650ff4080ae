/* coll/samehost - connections between ranks of one machine, by Unix sockets with abstract names.
 *
 * A rank's name is a hash of its endpoint's random bytes, which only the ranks of its formation
 * know: no stranger can take the name first.  Ranks are on one machine, for dptrain, if one can
 * connect to the other's name; that is so if they share a network namespace.
 *
 * Threads: pure, but for the system calls. */
#ifndef COLL_SAMEHOST_H
#define COLL_SAMEHOST_H

#include "coll/endpoint.h"

enum { SAMEHOST_NAME = 16 }; /* random bytes: it is sent as hexadecimal text */

struct samehost_name {
    uint8_t bytes[SAMEHOST_NAME];
};

void samehost_name_of(const uint8_t random[ENDPOINT_RANDOM], struct samehost_name *out);

/* A listening socket that does not block.  Fails with ERR_IO, ERR_NOMEM. */
int samehost_listen(const struct samehost_name *name, int *fd, struct err *err);

/* A connected socket that does not block; -1: there is no such rank here. */
int samehost_dial(const struct samehost_name *name);

/* Send a descriptor with one byte; fd -1: the byte alone.  The caller keeps fd. */
int samehost_give(int socket, int fd, struct err *err);

/* Receive what samehost_give sent: *fd is the caller's; -1: none was sent.
 * 1: nothing has come yet.  Fails with ERR_PEER, ERR_NOMEM (no more open files). */
int samehost_take(int socket, int *fd, struct err *err);

#endif
