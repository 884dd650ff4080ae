/* began - how many ranks a run was started with.
 *
 * Threads: any. */
#ifndef REPORT_BEGAN_H
#define REPORT_BEGAN_H

/* The number in the last start event of the run in `dir`, or if there is none, the number of ranks
 * that wrote the newest checkpoint.  0: neither is known. */
int began_n_ranks(const char *dir);

#endif
