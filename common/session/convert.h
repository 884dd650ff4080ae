/* convert - commands and reports as messages, and back.
 *
 * The driver treats its own engine and those of its followers alike: what for rank 0 is a struct
 * cmd or report, is a message for the others. */
#ifndef SESSION_CONVERT_H
#define SESSION_CONVERT_H

#include "base/err.h"
#include "session/command.h"
#include "wire/msg.h"

/* CMD_PREPARE, FORM, TRAIN, VALIDATE or CHECKPOINT as a frame; the others are no messages of their
 * own.  NULL and *err when it is too large to send. */
struct frame *convert_command(const struct cmd *c, struct err *err);
struct cmd *convert_to_command(const Wire__Control *m); /* NULL: m is none of those */

/* REPORT_OPENED, PREPARED, FORMED, EPOCH, VALIDATED, CHECKPOINT, FAULT or INJECT. */
struct frame *convert_report(const struct report *r, struct err *err);
struct report *convert_to_report(const Wire__Control *m); /* NULL: m is none of those */

/* A heartbeat's collectives (none, unless they are of `generation`) and pace, both ways. */
void convert_pace(const struct progress *p, int64_t generation, Wire__Heartbeat *h);
void convert_from_pace(const Wire__Heartbeat *h, int64_t generation, struct progress *p);

/* A ring with rebased times; the answer to `incident`. */
struct frame *convert_ring(const struct collective *c, int n, int64_t incident, int64_t generation,
                           struct err *err);
int convert_to_ring(const Wire__Ring *m, struct collective **out); /* how many; *out for free() */

#endif
