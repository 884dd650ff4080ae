/* answer - what a driver says to those who talk to it through its status_socket.
 *
 *   status       {"text": the table, "status": {...}}: report/status.h
 *   drain WHO    {"text": a line for each that leaves, "leaving": [{rank, spare, host, pid,
 * when}]}, null for the one of rank and spare that it is not: driver_drain of session/driver.h
 *
 * and {"error": why not} where nothing comes of it. */
#ifndef DRIVER_ANSWER_H
#define DRIVER_ANSWER_H

#include "base/buf.h"
#include "session/driver.h"

/* `request`: NULL when what came was no line of text. */
void answer_request(struct driver *d, int64_t now_ns, const char *request, struct buf *out);

#endif
