/* timeline - trace.json: what all ranks did in some steps, on the driver's clock, in the format of
 * Chrome's trace events, which Perfetto reads, too.
 *
 * A process of the picture is a rank, a thread of it is a track (base/spans.h).  Each collective
 * has the rank that came last to it, args.last_rank, if the clocks can tell: those of the two last
 * ranks are known to better than the time between them.
 *
 * Life:    timeline_new -> timeline_add, timeline_lost ... -> timeline_json -> timeline_free.
 * Threads: one at a time. */
#ifndef SEE_TIMELINE_H
#define SEE_TIMELINE_H

#include "base/buf.h"
#include "session/action.h"

enum {
    TIMELINE_RANKS = 1024,   /* so many ranks are shown, the lowest ones */
    TIMELINE_LOSSES = 64,    /* the first ones of a record */
    TIMELINE_MOST = 4 << 20, /* spans of all ranks; more are left out, which the file says */
};

struct timeline; /* opaque */

struct timeline *timeline_new(int64_t number); /* of the record */
void timeline_free(struct timeline *t);        /* NULL is fine */

/* A rank's next piece.  host: the rank's; NULL: not known. */
void timeline_add(struct timeline *t, int rank, const char *host, const struct session_spans *s);

struct timeline_loss { /* texts are borrowed */
    int rank;
    const char *host, *why; /* NULL: not known */
    int64_t at_ns;          /* by the driver's clock */
};

/* A rank was lost, perhaps before the record began: its part is missing, or another rank's part
 * stands in its place. */
void timeline_lost(struct timeline *t, struct timeline_loss loss);

int64_t timeline_number(const struct timeline *t);

/* Append the file.  run: its name; n_ranks: of the formation. */
void timeline_json(const struct timeline *t, const char *run, int n_ranks, struct buf *out);

#endif
