/* gateway - the connections of a relay: it connects with a driver in place of other processes, and
 * all of their connections to one address are channels of one connection (net/mux.h).
 *
 * A gateway passes bytes on and looks at none of them.  With a secret they are TLS's, between a
 * rank and its driver.  A process that does not read what has come for it holds up no other one:
 * its channel grants the driver nothing then.
 *
 * A connection is made when a process asks for the first channel, and closed when the last channel
 * has ended.  A process that is killed ends its channels at once.
 *
 * Life:    gateway_new -> gateway_add ... -> gateway_close, and the loop runs on until all handles
 *          are closed.  Bytes that processes have sent before still leave, for GATEWAY_END_MS.
 * Threads: the loop's. */
#ifndef NET_GATEWAY_H
#define NET_GATEWAY_H

#include <uv.h>

#include "base/err.h"

struct gateway; /* opaque */

enum {
    GATEWAY_LINGER_MS = 30000, /* for a driver to end a channel that its process has ended */
    GATEWAY_END_MS = 2000,
};

struct gateway *gateway_new(uv_loop_t *loop);

/* One more process, which inherits *lane (net/lane.h); the caller closes that descriptor once the
 * process has started, and gets 0 on failure.  The process is forgotten when it has ended.  ERR_IO,
 * ERR_NOMEM. */
int gateway_add(struct gateway *g, int *lane, struct err *err);

void gateway_close(struct gateway *g); /* NULL is fine */

#endif
