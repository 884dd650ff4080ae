/* answer - a driver's answers to the requests that come through its status_socket.
 *
 *   status       {"text": the table, "status": {...}} (report/status.h)
 *   drain WHO    {"text": a line for each process that leaves, "leaving": [LEAVER, ...]}, where
 * each LEAVER is {rank, spare, host, pid, when} (struct leaver).  Either rank or spare is null.
 *
 * A request that is refused is answered with {"error": the reason}.
 *
 * Threads: the loop's. */
#ifndef DRIVER_ANSWER_H
#define DRIVER_ANSWER_H

#include "base/buf.h"
#include "session/driver.h"

/* Append the answer to `request`, which is NULL if the client did not send a line of text. */
void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out);

/* The reason in an answer that refuses, for free(); NULL if the answer does not refuse. */
char *answer_error(const struct buf *answer);

#endif
