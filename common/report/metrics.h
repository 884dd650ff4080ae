/* metrics - metrics.csv, the numbers of a run along its steps, for plots.
 *
 * A row for every report.every_steps steps (report/series.h).  A number that is not known or not
 * finite is "nan".  Columns are a contract with users' scripts: new ones come at the end.
 *
 * Threads: a constant. */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H

#include "report/series.h"

/* Its rows are struct metrics_row (session/command.h). */
extern const struct series_kind metrics_series;

#endif
