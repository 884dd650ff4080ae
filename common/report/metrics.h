/* metrics - metrics.csv, the numbers of a run along its steps, for plots.
 *
 * The file has a header, then one row for every report.every_steps steps.  Those that are added
 * together are written by one write(2).  Steps only rise: a run that goes on from an older step
 * loses the rows beyond that step, and a row that the file has already is not written again.  A
 * number that is not known or not finite is "nan".  Columns are a contract with users' scripts: new
 * ones come at the end.
 *
 * The file is opened, cut and written by the writer's tasks, so that a disk that hangs holds up no
 * other thread.
 *
 * Life:    metrics_new -> metrics_go_on -> metrics_add ... -> metrics_free, when the writer has
 *          done all.
 * Threads: one at a time.
 * Errors:  rows that cannot be written are left out, and the log says so once.  Nothing is written
 *          while another driver owns the run directory (ckpt/owner.h). */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H

#include <stdint.h>

#include "base/writer.h"
#include "session/command.h"

struct metrics; /* opaque */

/* Of the run in `run_dir`; nothing is opened yet.  writer: NULL: each call writes itself. */
struct metrics *metrics_new(const char *run_dir, struct writer *writer);
void metrics_free(struct metrics *m); /* NULL is fine */

/* The run goes on from `step`: a torn last line and all rows beyond `step` are cut. */
void metrics_go_on(struct metrics *m, int64_t step);

void metrics_add(struct metrics *m, const struct metrics_row *row, int n);

#endif
