/* reports - `dpdriver report RUN...`: writes the report of a run (see/report.h), or compares
 * several (see/compare.h).
 *
 * Threads: main's. */
#ifndef DRIVER_REPORTS_H
#define DRIVER_REPORTS_H

#include "driver/options.h"

/* Write RUN/report.html, or report.html for several runs, or --out, and print its path.  Returns
 * the exit status. */
int reports_run(const struct options *o);

#endif
