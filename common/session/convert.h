/* convert - commands and reports as messages, and back.
 *
 * The driver treats its own engine and those of its followers alike: what goes to rank 0's engine
 * as a struct cmd goes to the others as a message, and so for reports.  Which member lands in which
 * field: wire/fields.h. */
#ifndef SESSION_CONVERT_H
#define SESSION_CONVERT_H

#include "base/arena.h"
#include "base/err.h"
#include "session/command.h"
#include "wire/msg.h"

/* A command of MESSAGE_COMMANDS as a frame.  NULL and *err when it is too large to send. */
struct frame *convert_command(const struct cmd *c, struct err *err);
struct cmd *convert_to_command(const Wire__Control *m); /* NULL: m is no command */

/* A report of MESSAGE_REPORTS, likewise. */
struct frame *convert_report(const struct report *r, struct err *err);
struct report *convert_to_report(const Wire__Control *m); /* NULL: m is no report */

/* Free what the members that travel own; nothing for kinds that do not travel. */
void convert_free_command(struct cmd *c);
void convert_free_report(struct report *r);

/* A heartbeat in `a`, which tells of collectives only if they are of `generation`; the fields that
 * land nowhere are the caller's to set.  And the progress that a heartbeat tells. */
Wire__Heartbeat *convert_beat(const struct progress *p, int64_t generation, struct arena *a);
void convert_from_beat(const Wire__Heartbeat *h, int64_t generation, struct progress *p);

struct ring_answer {
    int64_t incident;              /* that was asked about */
    struct collective *collective; /* [n], oldest first; times as ring_rebase leaves them */
    int n;
};

struct frame *convert_ring(const struct ring_answer *r, int64_t generation, struct err *err);
void convert_to_ring(const Wire__Ring *m,
                     struct ring_answer *out); /* out->collective: for free() */

#endif
