/* course - the steps of a job, and what another number of them changes in its learning rate.
 *
 * cosine, linear, onecycle and wsd are laid out over all steps of the job, so a run that goes on
 * with other limits has another rate from then on: that of a run which had these limits from the
 * beginning.  train/resume.c tells so when a run goes on, and driver/record_end.c beside the
 * command that it proposes.
 *
 * Threads: any; pure. */
#ifndef JOB_COURSE_H
#define JOB_COURSE_H

#include "base/buf.h"
#include "job/job.h"

/* The number of steps that the job trains. */
int64_t job_steps(const struct job *job, int64_t steps_per_epoch);

/* Where a run stands. */
struct course {
    int64_t step; /* done so far */
    int64_t steps_per_epoch;
    int n_ranks;
};

/* If the steps after `at` have other rates in the job `now` than in `then`, which differ in their
 * limits, append both rates, and how to keep the former ones.  Returns 1 then, else 0. */
int course_compare(const struct job *then, const struct job *now, const struct course *at,
                   struct buf *text);

#endif
