/* inhibitor - hears from systemd's logind that this machine is about to be shut down, and holds the
 * shutdown up for the few seconds that logind grants (InhibitDelayMaxSec=, 5 s by default).
 *
 * It is the lock of mode "delay" of https://systemd.io/INHIBITOR_LOCKS: logind tells of the
 * shutdown, and goes on once all locks are closed or its time is over.  The kernel closes the lock
 * of a process that ends.
 *
 * Life:    inhibitor_new -> inhibitor_wait ... -> inhibitor_free.
 * Threads: one, but inhibitor_free, which any thread may call once that one has ended.
 * Errors:  ERR_IO: the bus is lost, a new inhibitor may do better.  ERR_UNSUPPORTED: logind is not
 *          there or refuses, so that nothing will be heard. */
#ifndef DAEMON_INHIBITOR_H
#define DAEMON_INHIBITOR_H

#include "base/err.h"
#include "session/notice.h"

struct inhibitor; /* opaque */

/* It waits for nothing: what it asks for is done in inhibitor_wait.  *out is NULL where systemd
 * does not run, or dptrain was built without libsystemd. */
int inhibitor_new(struct inhibitor **out, struct err *err);

/* Wait for ms, and no longer than until stop_fd is readable.  1: *out is the notice, of source
 * "systemd".  0: none came. */
int inhibitor_wait(struct inhibitor *h, int stop_fd, int ms, struct notice *out, struct err *err);

/* How long the shutdown is held up, once that is known; else -1. */
int64_t inhibitor_seconds(const struct inhibitor *h);

/* Ends the delay.  NULL is fine. */
void inhibitor_free(struct inhibitor *h);

#endif
