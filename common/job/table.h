/* table - the options of a job file, all of them, in their order.
 *
 * Private to job/, and to deploy/manual and dpdriver --init, which print them.  The rows of the
 * sections that no registry has stand in job/rows.c.
 *
 * Threads: constant. */
#ifndef JOB_TABLE_H
#define JOB_TABLE_H

#include "config/table.h"
#include "job/job.h"

extern const struct option_table job_table;

/* The entries of model.arch: those of model/, and import.  NULL at the end. */
extern const struct option_group *const job_archs[];

/* Check the options against each other.  The message begins with the key to blame. */
int job_check(const struct job *job, struct err *err);

#endif
