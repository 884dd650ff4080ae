/* table - the options of a job file, all of them, in their order.
 *
 * Private to job/.  The rows of the sections that no registry has stand in job/rows.c.
 *
 * Threads: constant. */
#ifndef JOB_TABLE_H
#define JOB_TABLE_H

#include "config/table.h"
#include "job/job.h"

extern const struct option_table job_table;

/* What no row can say: options that do not go together.  The message begins with a key. */
int job_check(const struct job *job, struct err *err);

#endif
