/* notify - tells the service manager that started this daemon how it is doing.
 *
 * This is systemd's sd_notify protocol (Type=notify, WatchdogSec=).  Nothing happens if no service
 * manager asked ($NOTIFY_SOCKET is not set), or in a build without libsystemd (notify_none.c).
 *
 * Threads: the loop's. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdint.h>

/* 1: a service manager listens. */
int notify_is_wanted(void);

/* The interval at which notify_alive is expected, in ms; 0: it is not expected. */
int64_t notify_watchdog_ms(void);

void notify_ready(void);              /* started: units that wait for this one may start */
void notify_status(const char *text); /* one line, as `systemctl status` shows it */
void notify_alive(void);              /* feeds the watchdog */
void notify_stopping(void);

#endif
