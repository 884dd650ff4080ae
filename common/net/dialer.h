/* dialer - connects a follower with its driver: tries until the driver is there, and logs its
 * tries.
 *
 * Each attempt resolves the name and tries every address of it, IPv6 and IPv4.  The pause between
 * attempts doubles from 50 ms to 2 s.  A random part of up to half of it is left out, so that
 * thousands of followers do not come at once.  The log has the first failure, then one line every 5
 * s: address, reason, attempts, time.
 *
 * With several ports an attempt goes on to the next one where nothing listens.  The port of a
 * connection that came to nothing is tried last.
 *
 * With a lane the relay connects in the dialer's place, and a failure is one as any other.
 *
 * libuv ends the process if it cannot start its threads, which resolve names.  So an attempt tries
 * first whether the process may start as many.
 *
 * Life:    dialer_new -> dialer_start -> connected -> (dialer_start again, when that connection
 *          has ended) ... -> dialer_close, and the loop runs on until its handles are closed.
 * Threads: the loop's. */
#ifndef NET_DIALER_H
#define NET_DIALER_H

#include "net/conn.h"

struct dialer; /* opaque */

struct dialer_options {
    const char *host; /* name or number; copied */
    int port;
    int n_ports;                   /* the driver may be at one of so many from `port` on; 0 is 1 */
    const char *hint;              /* what to mend if no driver answers, or NULL; kept */
    int64_t wait_ms;               /* from dialer_start; then `gave_up`.  < 0: never */
    const struct tls_context *tls; /* NULL: none; kept until the last connection is gone */
    int lane;                      /* to the relay that connects (net/lane.h); 0: none */
    uint64_t seed;                 /* of the jitter: different on every follower */
    int is_quiet;                  /* tries are not logged */
    /* Conn is connected; conn_listen it in this call. */
    void (*connected)(void *arg, struct conn *c);
    void (*gave_up)(void *arg, const struct err *why); /* ERR_TIMEOUT: what was tried, how often */
    void *arg;
};

int dialer_new(uv_loop_t *loop, const struct dialer_options *o, struct dialer **out,
               struct err *err);

/* From the next pause on, no pause is longer than this; 0: 2 s, as at first. */
void dialer_limit_pause(struct dialer *d, int64_t ms);

/* Stop looking, until dialer_start.  `connected` is not called any more. */
void dialer_stop(struct dialer *d);

/* Look for a driver.  is_again: the last connection failed before it was of use, so the pauses go
 * on growing; otherwise pauses and counts start afresh. */
void dialer_start(struct dialer *d, int is_again);

/* The connection that `connected` was given came to nothing, for the reason `why`.  Look for a
 * driver as if that attempt had failed: pauses, attempts and the time to wait go on.  May call
 * `gave_up`. */
void dialer_go_on(struct dialer *d, const char *why);

void dialer_close(struct dialer *d); /* NULL is fine; no more callbacks */

#endif
