/* web - what --http shows of a running job: the documents of net/http.h, made from the session.
 *
 *   /              the page (see/page.h)
 *   /metrics       for Prometheus (see/scrape.h)
 *   /health        200, or 503 with the reason
 *   /api/status    the table of ranks and the newest numbers, as JSON (report/status.h)
 *   /api/job       job.yaml
 *   /api/curves.svg  the curves so far (see/curves.h)
 *   /api/recent    a JSON array of the last RECENT_MOST lines of events.jsonl
 *   /api/incidents       a JSON array of the run's incidents (report/incidents.h)
 *   /api/incidents/NAME  one of them, as its file has it
 *   /api/events    server-sent events: `status` each second, `event` with a line of events.jsonl,
 *                  `row` with a row of metrics.csv.  It begins with the lines of /api/recent, and
 *                  each has an id: a reader who comes again (Last-Event-ID) gets those that it
 *                  lacks
 *
 * Life:    web_open -> web_listen -> web_close, when no event comes any more.
 * Threads: the loop's.
 * Errors:  ERR_ARG, with the remedy. */
#ifndef DRIVER_WEB_H
#define DRIVER_WEB_H

#include "driver/options.h"
#include "job/job.h"
#include "report/events.h"
#include "session/driver.h"

struct web; /* opaque */

struct web_sources {
    const struct options *options; /* with --http */
    const struct job *job;
    struct driver *const *driver; /* NULL in there: the session has not begun */
    int patience_ms;              /* of http.h */
};

/* Listen, and log the link. */
int web_open(uv_loop_t *loop, const struct web_sources *from, struct web **out, struct err *err);
void web_close(struct web *w); /* NULL is fine */

/* The readers get each event and row from here on, as long as `events` lives, and the curves begin
 * with what `run_dir` has, which `disk` reads: 503 until then.  w may be NULL. */
void web_listen(struct web *w, struct events *events, const char *run_dir, struct writer *disk);

#endif
