/* status - the live table of ranks (session/status.h), for people and for programs.
 *
 *   train for 12.1 s, generation 1, epoch 2, step 118, 4 of 4 ranks
 *   rank  host   pid   device  state    phase     step  bucket  step ms  heard s  slowness  gen
 *      0  node0  4240  cpu     member   reduce     118       3     20.1      0.0      1.00    1
 *      2  node7  4242  cpu     member   backward   118       3     20.1      0.4      2.31*   1
 *
 *   standby at 10.0.0.9:7001
 *
 * "slowness" is the time that a rank is busy in a step, divided by the median of the ranks.  '*'
 * marks a straggler, '-' a value that is not known.  Two columns are there if any rank knows them:
 * "MiB", resident memory, and "cpus", how many CPUs its process keeps busy.
 *
 * Threads: any; pure. */
#ifndef REPORT_STATUS_H
#define REPORT_STATUS_H

#include "base/buf.h"
#include "session/status.h"

void status_put_text(const struct status *s, struct buf *out); /* lines, each with its '\n' */
void status_put_line(const struct status *s, struct buf *out); /* the first of them */

/* For a log: at most `most` ranks, first of all those that are no members or are stragglers.  A
 * last line says how many more there are. */
void status_put_brief(const struct status *s, int most, struct buf *out);

/* One line of JSON, {"text": the table, "status": an object as docs/operating/status.schema.json
 * has it}.  The table has at most `most` ranks; 0: all. */
void status_put_both(const struct status *s, int most, struct buf *out);
void status_put_json(const struct status *s, struct buf *out); /* that status alone, one line */

#endif
