/* dialer - a follower's way to its driver: tries until it is there, and says what it tries.
 *
 * Each attempt resolves the name and tries every address it has, IPv6 and IPv4; between attempts it
 * waits from 50 ms, doubling, to 2 s, each time half to all of that (jitter, so that thousands of
 * followers do not come at once).  The log has the first failure, then one line every 5 s: address,
 * reason, attempts, time.
 *
 * Life:    dialer_new -> dialer_start -> connected -> (dialer_start again, when that one ended) ...
 *          -> dialer_close, and the loop runs on until its handles are closed.
 * Threads: the loop's. */
#ifndef NET_DIALER_H
#define NET_DIALER_H

#include "net/conn.h"

struct dialer; /* opaque */

struct dialer_options {
    const char *host; /* name or number; copied */
    int port;
    int64_t wait_ms;               /* from dialer_start; then `gave_up`.  < 0: never */
    const struct tls_context *tls; /* NULL: none; kept until the last connection is gone */
    uint64_t seed;                 /* of the jitter: different on every follower */
    /* Conn is connected; conn_listen it in this call. */
    void (*connected)(void *arg, struct conn *c);
    void (*gave_up)(void *arg, const struct err *why); /* ERR_TIMEOUT: what was tried, how often */
    void *arg;
};

int dialer_new(uv_loop_t *loop, const struct dialer_options *o, struct dialer **out,
               struct err *err);

/* Look for a driver.  is_again: the last connection came to nothing, so the pauses go on growing;
 * else they start afresh, and so do the counts. */
void dialer_start(struct dialer *d, int is_again);

void dialer_close(struct dialer *d); /* NULL is fine; no more callbacks */

#endif
