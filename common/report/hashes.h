/* hashes - hashes.csv, by which a step that is computed again is compared with the run's.
 *
 * A row for every checkpoint.hashes steps (report/series.h): the step; the hash of the state after
 * it; the loss of this step alone; the hash of the numbers of its samples.  Hashes are 16 hex
 * digits. `state` is empty where the ranks hold different weights after the step.
 *
 * Threads: a constant. */
#ifndef REPORT_HASHES_H
#define REPORT_HASHES_H

#include "report/series.h"

/* Its rows are struct hashes_row (session/command.h). */
extern const struct series_kind hashes_series;

#endif
