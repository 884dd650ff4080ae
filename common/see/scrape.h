/* scrape - a run's numbers for Prometheus, in its text format 0.0.4, and whether the run is well.
 *
 * A number that is not known has no line, except that a loss which is not finite is NaN: it stays
 * visible.  There are no timestamps: series that have them do not end when they vanish.
 *
 * Threads: any; pure. */
#ifndef SEE_SCRAPE_H
#define SEE_SCRAPE_H

#include "base/buf.h"
#include "session/status.h"

#define SCRAPE_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* wall_s: the present time, in Unix seconds. */
void scrape_put(const struct status *s, double wall_s, struct buf *out);

/* Append {"status": "ok" | "stuck" | "failed", "reason", "stage", "step", "step_age_seconds"}, one
 * line of JSON; returns 1 if the run is well, else 0.  It is stuck if it trains and no step has
 * ended for `patience_s`. */
int scrape_health(const struct status *s, double patience_s, struct buf *out);

#endif
