/* pulse - the daemon's sign of life to the service manager (daemon/notify.h): a timer on the loop
 * feeds the watchdog and renews the status line.
 *
 * The watchdog is fed only while both threads that matter live: the loop, or else the timer would
 * not run, and the engine, which counts as dead when one phase of its work lasts longer than
 * `engine_patience_ns`.  That is a backstop: the session's own deadlines are shorter, and tell the
 * other ranks.
 *
 * Life:    pulse_init -> pulse_start -> pulse_close.
 * Threads: the loop's. */
#ifndef DAEMON_PULSE_H
#define DAEMON_PULSE_H

#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "session/command.h"

struct pulse_events {
    /* Fill *out with what the engine does; 0: there is no engine now. */
    int (*progress)(void *arg, struct progress *out);
    /* Append how the daemon is doing; the first line is shown. */
    void (*summary)(void *arg, struct buf *out);
};

struct pulse {
    uv_timer_t timer;
    const struct pulse_events *events;
    void *arg;
    int64_t engine_patience_ns;
    int is_dead; /* the log has said so already */
};

/* If no service manager asked, the pulse does nothing from here on. */
void pulse_init(struct pulse *p, uv_loop_t *loop, const struct pulse_events *events, void *arg);

/* 1: the engine counts as alive at now_ns. */
int pulse_is_alive(const struct pulse *p, int64_t now_ns);

/* Tell the service manager that the daemon is ready; the first beat comes at once. */
void pulse_start(struct pulse *p);
void pulse_close(struct pulse *p);

#endif
