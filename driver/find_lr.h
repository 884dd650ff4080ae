/* find_lr - `dpdriver find-lr`: a learning-rate range test of a job (see/rates.h).
 *
 * The job is trained by the schedule `range` for some hundred steps, in a run directory of its own,
 * runs/NAME-find-lr.  Nothing is validated or saved.  Numbers that are not finite end the test in
 * order, because the largest rates make training diverge.
 *
 * Threads: main's. */
#ifndef DRIVER_FIND_LR_H
#define DRIVER_FIND_LR_H

#include "driver/options.h"
#include "see/rates.h"

enum { FIND_LR_MOST_SETS = ARG_MAX_LIST + 32 };

/* The settings of --set, but for those of a schedule and of averaged weights, and those that make a
 * range test of the job.  Of the latter --set may change schedule.first_lr, schedule.last_lr and
 * train.max_steps alone.  Fills set[FIND_LR_MOST_SETS], borrowed, and returns their number. */
size_t find_lr_sets(const struct options *o, const char **set);

/* The test has ended: print the table and the suggestion, with --log-format json a line of JSON. */
void find_lr_show(struct rates *r, const struct options *o);

/* Write find_lr.csv and find_lr.svg to the run directory.  May wait for the disk. */
void find_lr_write(const struct rates *r, const char *run_dir, const char *name);

#endif
