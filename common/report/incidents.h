/* incidents - a JSON file in the run directory for each time that something kept all ranks waiting,
 * with the last collectives of every rank.
 *
 * RUN_DIR/incidents/incident-1.json ...: {time, message, generation, stage, nranks, ranks: [{rank,
 * host, pid, behind, phase, step, bucket, phase_seconds, heard_seconds, collectives: [{generation,
 * number, step, bucket, bytes, phase, state, handed, began, ended}]}]}.  The last three are seconds
 * before the moment at which that rank was asked, by its own clock; null: not yet.  `collectives`
 * is null for a rank that did not answer; `bucket` also "statistics" or "state".
 *
 * Threads: one at a time writes; it waits for the disk. */
#ifndef REPORT_INCIDENTS_H
#define REPORT_INCIDENTS_H

#include "base/err.h"
#include "session/incident.h"

enum {
    INCIDENTS_MOST = 64, /* files in a run directory, over all the runs that resumed it */
    INCIDENTS_FULL = 1,
};

char *incidents_text(const struct incident *i); /* the file's content, for free() */

/* Write `text` into a new file, whose *path is for free().  INCIDENTS_FULL: not written; ERR_IO;
 * ERR_REFUSED: another driver owns run_dir (ckpt/owner.h). */
int incidents_write(const char *run_dir, const char *text, char **path, struct err *err);

#endif
