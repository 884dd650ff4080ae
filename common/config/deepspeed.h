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
#ifndef CONFIG_DEEPSPEED_H
#define CONFIG_DEEPSPEED_H

#include "config/read.h"

/* 1: `text` is a mapping in JSON's syntax with train_batch_size, train_micro_batch_size_per_gpu or
 * zero_optimization. */
int deepspeed_is(const char *text, size_t len);

/* Give the reader what the file says.  n_ranks: of the job, for the identity of batch sizes.  Each
 * note is a line of *notes, with file, line and column in front.  ERR_CONFIG with the place. */
int deepspeed_read(struct reader *r, const char *text, size_t len, int64_t n_ranks,
                   struct buf *notes, struct err *err);

#endif
