/* This file takes the place of notify.c in a build without libsystemd.
 * No service manager is ever told anything. */
#include "daemon/notify.h"

int notify_is_wanted(void) { return 0; }

int64_t notify_watchdog_ms(void) { return 0; }

void notify_ready(void) {}

void notify_status(const char *text) { (void)text; }

void notify_alive(void) {}

void notify_stopping(void) {}
