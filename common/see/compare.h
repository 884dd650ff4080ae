/* compare - several runs side by side as one HTML file: their curves over one another, how they
 * went, and where their jobs differ.
 *
 * Each run has a colour and a dash of its own, which the table of runs shows.  A job that cannot be
 * read is left out of the differences, and the page says so.  The runs are also in the file as
 * <script type="application/json" id="dptrain-runs">: a list of {run_dir, status, job}.
 *
 * Threads: any.
 * Errors:  ERR_CONFIG: a folder holds no run; ERR_IO. */
#ifndef SEE_COMPARE_H
#define SEE_COMPARE_H

#include "see/report.h"

enum { COMPARE_MOST = 8 }; /* as many lines as can be told apart */

/* Append the page of 2 to COMPARE_MOST runs; now_s: Unix seconds. */
int compare_put(const struct report_run *run, int n, double now_s, struct buf *out,
                struct err *err);

#endif
