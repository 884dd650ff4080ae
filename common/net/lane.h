/* lane - the way by which a process asks its relay (net/gateway.h) for connections.
 *
 * A lane is a pair of sockets: the relay has one end, the process inherits the other one.  For each
 * connection the process makes one more pair, of streams, and sends one end of it through the lane
 * with the address that it wants.  The relay writes an answer into that stream.  If the connection
 * is there, the connection's own bytes follow, both ways.
 *
 * No lane has a name in a file system or a network, so no other process can reach one, and nothing
 * stays behind.
 *
 * Threads: any.
 * Errors:  numbers as libuv has them (UV_EPIPE), where a function's comment says so. */
#ifndef NET_LANE_H
#define NET_LANE_H

#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/err.h"

/* The relay's first bytes in a stream, before those of the connection. */
struct lane_answer {
    int32_t status;                /* 0, or why there is no connection: libuv's number */
    int32_t code;                  /* 0, or an err_code: the connection was refused by one side */
    struct sockaddr_storage local; /* the relay's end of the connection */
    char why[sizeof((struct err *)NULL)->msg]; /* text of `code` */
};

/* The answer about a driver that takes no relays. */
enum { LANE_NO_RELAYS = UV_EPROTONOSUPPORT };

/* Make a lane.  Both ends close at exec.  ERR_IO, ERR_NOMEM. */
int lane_make(int *relay_end, int *process_end, struct err *err);

/* Ask for a connection to `to`, IPv4 or IPv6.  *stream is the socket in which the answer comes.
 * Returns 0, or libuv's number of the error: UV_EPIPE, the relay is gone. */
int lane_ask(int lane, const struct sockaddr *to, int *stream);

/* The relay's side: take a request.  Returns 1 with *to and *stream; 0: there is none now; -1: the
 * process has ended.  A packet that is no request is dropped. */
int lane_take(int lane, struct sockaddr_storage *to, int *stream);

#endif
