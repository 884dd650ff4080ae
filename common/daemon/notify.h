/* notify - tells the service manager that started this daemon how it is doing.
 *
 * systemd's sd_notify protocol (Type=notify, WatchdogSec=).  Where no service manager asked
 * ($NOTIFY_SOCKET is not set), and in a build without libsystemd (notify_none.c), nothing happens.
 *
 * Threads: the loop's. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdint.h>

/* Whether anybody listens. */
int notify_is_wanted(void);

/* How often notify_alive is expected, in ms; 0: never. */
int64_t notify_watchdog_ms(void);

void notify_ready(void);              /* started: what waits for this unit may start */
void notify_status(const char *text); /* one line, as `systemctl status` shows it */
void notify_alive(void);              /* feeds the watchdog */
void notify_stopping(void);

#endif
