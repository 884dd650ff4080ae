/* answer - what a driver says to those who talk to it through its status_socket.
 *
 *   status       {"text": the table, "status": {...}}: report/status.h
 *   drain WHO    {"text": a line for each that leaves, "leaving": [LEAVER, ...]}, each LEAVER
 *                {rank, spare, host, pid, when}
 *                with null for that of rank and spare which it is not: struct leaver
 *
 * and {"error": why not} where nothing comes of it. */
#ifndef DRIVER_ANSWER_H
#define DRIVER_ANSWER_H

#include "base/buf.h"
#include "session/driver.h"

/* `request`: NULL when what came was no line of text. */
void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out);

#endif
