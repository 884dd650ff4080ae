/* reports - `dpdriver report RUN...`: writes the report of a run (see/report.h).
 *
 * Threads: main's. */
#ifndef DRIVER_REPORTS_H
#define DRIVER_REPORTS_H

#include "driver/options.h"

/* Write RUN/report.html, or --out, and print its path.  Returns the exit status. */
int reports_run(const struct options *o);

#endif
