/* answer - a driver's answers to the requests that come through its status_socket.
 *
 *   status       {"text": the table, "status": {...}}: report/status.h
 *   drain WHO    {"text": a line for each that leaves, "leaving": [LEAVER, ...]}, each LEAVER
 *                {rank, spare, host, pid, when}
 *                where rank or spare is null, whichever it is not: struct leaver
 *
 * or {"error": why not} if the request is refused. */
#ifndef DRIVER_ANSWER_H
#define DRIVER_ANSWER_H

#include "base/buf.h"
#include "session/driver.h"

/* `request`: NULL if the client did not send a line of text. */
void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out);

/* The reason in an answer that refuses; for free().  NULL: the answer grants. */
char *answer_error(const struct buf *answer);

#endif
