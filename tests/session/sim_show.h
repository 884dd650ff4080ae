/* sim_show - a schedule as one line an event, for people: session_sim --show.
 *
 * Both simulated worlds print by it: the time, who, and what.  A process has its own words: what it
 * would log, and what the driver tells the run directory. */
#ifndef TESTS_SESSION_SIM_SHOW_H
#define TESTS_SESSION_SIM_SHOW_H

#include <stdarg.h>
#include <stdint.h>

#include "session/action.h"
#include "sim.h"

/* In place of the number of a follower. */
enum { SHOW_FAULT = -1, SHOW_DRIVER = 0, SHOW_STANDBY = 1000 };

void show_legend(uint64_t seed, enum sim_mode mode);
void show_line(int64_t since_start_ns, int who, const char *fmt, va_list ap);

/* The event in words.  0: it is not shown, as its log line says the same. */
int show_event(const struct session_event *e, char *to, int len);

#endif
