/* gateway - the connections of a relay: it connects with a driver in place of other processes, and
 * all of their connections to one address are channels of one connection (net/mux.h).
 *
 * A gateway passes bytes on and looks at none of them.  With a secret its connection is TLS's
 * (net/mux.h), and the processes' own streams are not: nobody but the two processes has an end of
 * one.  A process that does not read what has come for it holds up no other one: its channel grants
 * the driver nothing then.
 *
 * A driver that refuses the secret is asked with the next one.  Once all were refused, or this side
 * refuses the driver, the processes get the text.
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
struct tls_context;

enum {
    GATEWAY_LINGER_MS = 30000, /* for a driver to end a channel that its process has ended */
    GATEWAY_END_MS = 2000,
};

/* `tls` is a follower's context, or NULL: no encryption; it is borrowed for the gateway's life. */
struct gateway *gateway_new(uv_loop_t *loop, struct tls_context *tls);

/* One more process, which inherits *lane (net/lane.h); the caller closes that descriptor once the
 * process has started, and gets 0 on failure.  The process is forgotten when it has ended.  ERR_IO,
 * ERR_NOMEM. */
int gateway_add(struct gateway *g, int *lane, struct err *err);

void gateway_close(struct gateway *g); /* NULL is fine */

#endif
