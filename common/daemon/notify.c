/* The service manager is told through libsystemd.
 * notify_none.c takes the place of this file in a build without it. */
#include "daemon/notify.h"

#include <stdlib.h>
#include <systemd/sd-daemon.h>

int notify_is_wanted(void)
{
    const char *socket = getenv("NOTIFY_SOCKET");

    return socket && *socket;
}

int64_t notify_watchdog_ms(void)
{
    uint64_t us = 0;

    return sd_watchdog_enabled(0, &us) > 0 ? (int64_t)(us / 1000) : 0;
}

void notify_ready(void) { sd_notify(0, "READY=1"); }

void notify_status(const char *text) { sd_notifyf(0, "STATUS=%s", text); }

void notify_alive(void) { sd_notify(0, "WATCHDOG=1"); }

void notify_stopping(void) { sd_notify(0, "STOPPING=1"); }
