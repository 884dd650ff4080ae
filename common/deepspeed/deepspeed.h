/* deepspeed - a DeepSpeed configuration (ds_config.json), read as a job file.
 *
 * Such a file says how to train, and nothing of model and data: those come by --set.  It may have
 * comments (// and # to the end of the line, and C's) and commas before a closing bracket, as
 * DeepSpeed's own reader takes them.
 *
 * Every key of the file does one of four things.  It sets keys of the job.  Or it has no effect on
 * the numbers, such as a bucket's size: a note says so.  Or it asks for what dptrain has not, and
 * the numbers would differ: ERR_CONFIG says what to do.  Or it is unknown: a note says so and names
 * the closest known key.  A key whose value is "auto" counts as left out, and a note says so.
 *
 * Threads: any; nothing is kept. */
#ifndef DEEPSPEED_DEEPSPEED_H
#define DEEPSPEED_DEEPSPEED_H

#include "job/job.h"

/* job_load (job/job.h) for a job of n_ranks ranks.  A DeepSpeed configuration whose name ends in
 * .json is read as one: a mapping in JSON's syntax with train_batch_size,
 * train_micro_batch_size_per_gpu or zero_optimization.  Each wish that has no effect is a
 * line of *notes, with file, line and column in front.  ERR_CONFIG with the place. */
int deepspeed_load(int64_t n_ranks, const char *path, const char *const *sets, size_t n_sets,
                   struct job **out, struct buf *notes, struct err *err);

#endif
