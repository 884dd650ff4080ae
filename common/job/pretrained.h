/* pretrained - transformers' config.json: the one beside the weights that a job begins from, and
 * the one beside those that it writes, for networks that transformers has, too (struct
 * model_config).
 *
 * Threads: any.
 * Errors:  ERR_CONFIG: what the file says, and what the job says. */
#ifndef JOB_PRETRAINED_H
#define JOB_PRETRAINED_H

#include "config/read.h"
#include "job/job.h"

/* Before read_finish: give the keys of the model that the job leaves out the values of the
 * config.json beside model.init.path.  An architecture with takes_config is filled in so, and is
 * chosen where the job has none.  The log tells what was taken.  No effect where there is no such
 * file, or where nothing is left out;
 * but a job without architecture must find it there. */
int pretrained_fill(struct reader *r, struct err *err);

/* Refuse weights that would be another function in the job's network than they are in transformers,
 * by the config.json beside them.  warn is called with what only training depends on. */
int pretrained_check(const struct job *job, void (*warn)(void *arg, const char *text), void *arg,
                     struct err *err);

/* Append the keys for sizes that the config.json beside the weights lacks, and in whose place the
 * job has transformers' defaults; nothing if there are none.  For messages about shapes. */
void pretrained_defaults(const struct job *job, struct buf *out);

/* Append the config.json with which transformers' from_pretrained loads the job's
 * model.safetensors; nothing if transformers has no such network.  n_classes: of the data. */
void pretrained_write(const struct job *job, int64_t n_classes, struct buf *out);

#endif
