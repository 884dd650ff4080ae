/* coll/samehost - connections between ranks of one machine, by Unix sockets with abstract names.
 *
 * A rank's name is a hash of its endpoint's random bytes.  Only the ranks of its formation know
 * these, so no stranger can take the name first.  dptrain takes two ranks to be on one machine if
 * one can connect to the other's name, which means that they share a network namespace.
 *
 * Threads: any; the functions have no state of their own. */
#ifndef COLL_SAMEHOST_H
#define COLL_SAMEHOST_H

#include "coll/endpoint.h"

enum { SAMEHOST_NAME = 16 }; /* random bytes: it is sent as hexadecimal text */

struct samehost_name {
    uint8_t bytes[SAMEHOST_NAME];
};

void samehost_name_of(const uint8_t random[ENDPOINT_RANDOM], struct samehost_name *out);

/* *fd: a listening socket that does not block.  Fails with ERR_IO, ERR_NOMEM. */
int samehost_listen(const struct samehost_name *name, int *fd, struct err *err);

/* Returns a connected socket that does not block, or -1 if there is no such rank here. */
int samehost_dial(const struct samehost_name *name);

/* Send a descriptor with one byte; fd -1: the byte alone.  The caller keeps fd. */
int samehost_give(int socket, int fd, struct err *err);

/* Receive what samehost_give sent.  *fd: the descriptor, which is the caller's, or -1 if none was
 * sent.  Returns 1 if nothing has come yet.  Fails with ERR_PEER, ERR_NOMEM (no more open files).
 */
int samehost_take(int socket, int *fd, struct err *err);

#endif
