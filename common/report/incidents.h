/* incidents - a JSON file in the run directory for each time that something kept all ranks waiting,
 * with the last collectives of every rank.
 *
 * RUN_DIR/incidents/incident-1.json ...: {time, message, generation, stage, step, nranks, ranks:
 * [{rank, host, pid, behind, phase, step, bucket, phase_seconds, heard_seconds, collectives:
 * [{generation, number, step, bucket, bytes, phase, state, handed, began, ended}]}]}.  The last
 * three are seconds before the moment at which that rank was asked, by its own clock; null: not
 * yet.  `collectives` is null for a rank that did not answer; `bucket` also "statistics" or
 * "state".  The first `step` is that of the rank that is furthest.
 *
 * Threads: one at a time writes, any read; all wait for the disk. */
#ifndef REPORT_INCIDENTS_H
#define REPORT_INCIDENTS_H

#include "base/buf.h"
#include "session/incident.h"

enum {
    INCIDENTS_MOST = 64,        /* files in a run directory, over all the runs that resumed it */
    INCIDENTS_BYTES = 16 << 20, /* of a file that is read */
    INCIDENTS_FULL = 1,
    INCIDENTS_NONE = 1,
};

char *incidents_text(const struct incident *i); /* the file's content, for free() */

/* Write `text` into a new file, whose *path is for free().  INCIDENTS_FULL: not written; ERR_IO;
 * ERR_REFUSED: another driver owns run_dir (ckpt/owner.h). */
int incidents_write(const char *run_dir, const char *text, char **path, struct err *err);

/* Append a JSON array of the incidents that run_dir has, oldest first: {name, time, message, stage,
 * generation, step, nranks, bytes}; null for what a file does not tell.  ERR_IO. */
int incidents_list(const char *run_dir, struct buf *out, struct err *err);

/* Append the file called `name`, which is one of the list.  INCIDENTS_NONE: there is no such file,
 * whatever else the name may lead to.  ERR_IO, also if it is too large. */
int incidents_read(const char *run_dir, const char *name, struct buf *out, struct err *err);

#endif
