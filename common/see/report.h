/* report - a run as one HTML file that needs nothing but itself: for a mail or a lab book.
 *
 * The file is the page of --http (see/page.h) with the documents of driver/web.h inside.  Document
 * /api/NAME is the content of <script type="application/json" id="dptrain-NAME">, a text as a JSON
 * string: status, recent (the newest REPORT_EVENTS events), job, curves.svg, incidents, and
 * incidents-NAME for the newest ones, as far as they have REPORT_INCIDENT_BYTES together; and
 * report, which says when it was made.  A policy in the file forbids it to ask any host.
 *
 * Threads: any.
 * Errors:  ERR_CONFIG: the folder holds no run; ERR_IO. */
#ifndef SEE_REPORT_H
#define SEE_REPORT_H

#include "base/buf.h"
#include "base/err.h"

enum { REPORT_EVENTS = 1000, REPORT_INCIDENT_BYTES = 8 << 20 };

struct report_run {
    const char *dir;    /* the run directory */
    const char *status; /* the status as JSON, from the run's driver; NULL: none is at work */
};

/* Append the report; now_s: Unix seconds. */
int report_put(const struct report_run *run, double now_s, struct buf *out, struct err *err);

#endif
