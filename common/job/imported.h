/* imported - the network of model.import, which a job has beside its text.
 *
 * The driver reads it from the file, or from the run's folder, once.  It goes to engines, followers
 * and standbys behind the job's text: job_pack's bytes are the job as YAML, and with a network one
 * byte 0 and the network packed (import/pack.h).
 *
 * Threads: as job.h. */
#ifndef JOB_IMPORTED_H
#define JOB_IMPORTED_H

#include "config/read.h"
#include "job/job.h"

#define IMPORTED_FILE "network.bin" /* in a run's folder: the network packed */

/* Before read_finish: model.import chooses the architecture `import`, and the file's weights. */
int imported_fill(struct reader *r, struct err *err);

/* Read the network that model.import names.  No effect for other architectures.
 * run: the folder of a run that goes on, or NULL.  Its network is taken if it has one; if
 * model.import names a file that holds another one now, or none that can be read, `*doubt` tells
 * it, for free(); else it is NULL. */
int imported_read(struct job *job, const char *run, char **doubt, struct err *err);

/* A doubt about how the network was exported, its mode included, for free(); NULL: there is none.
 */
char *imported_mode(const struct job *job);

/* Append the packed network; nothing for other architectures. */
void imported_pack(const struct job *job, struct buf *out);

void job_pack(const struct job *job, struct buf *out);
/* As job_parse, from job_pack's bytes; they may be anything. */
int job_unpack(const void *data, size_t len, const char *origin, struct job **out, struct err *err);

#endif
