/* began - what the events of a run tell a driver that is to go on with it: with how many ranks it
 * was started and on which data, and which checkpoint was written last.
 *
 * Threads: any. */
#ifndef REPORT_BEGAN_H
#define REPORT_BEGAN_H

#include "base/err.h"
#include "base/hash.h"

/* The number in the last start event of the run in `dir`, or if there is none, the number of ranks
 * that wrote the newest checkpoint.  0: neither is known. */
int began_n_ranks(const char *dir);

/* The fingerprint of the data in the last start event, as it stands there: "" if there is none. */
void began_data(const char *dir, char out[HASH_TEXT_LEN]);

/* Fails with ERR_CONFIG if the events tell of a checkpoint, and the folder of checkpoints has none:
 * its disk is not mounted, or it was removed. */
int began_check_checkpoints(const char *dir, struct err *err);

#endif
