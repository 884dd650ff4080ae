/* convert - turns commands and reports into messages, and messages into commands and reports.
 *
 * The driver treats its own engine and those of its followers alike: a struct cmd goes to rank 0's
 * engine directly, and to the others as a message.  Reports come in the same way.  wire/fields.h
 * says which member travels in which field.
 *
 * Threads: any; nothing is kept. */
#ifndef SESSION_CONVERT_H
#define SESSION_CONVERT_H

#include "base/arena.h"
#include "base/err.h"
#include "session/command.h"
#include "wire/msg.h"

/* A command of MESSAGE_COMMANDS as a frame; NULL, with *err set, if it is too large to send. */
struct frame *convert_command(const struct cmd *c, struct err *err);
struct cmd *convert_to_command(const Wire__Control *m); /* NULL: m is no command */

/* A report of MESSAGE_REPORTS, likewise. */
struct frame *convert_report(const struct report *r, struct err *err);
struct report *convert_to_report(const Wire__Control *m); /* NULL: m is no report */

/* Free what the members that travel own; nothing for kinds that do not travel. */
void convert_free_command(struct cmd *c);
void convert_free_report(struct report *r);

/* convert_beat makes a heartbeat in `a`.  It contains the progress with collectives only if these
 * are of `generation`.  The caller sets the fields that have no member in struct progress.
 * convert_from_beat reads the progress from a heartbeat. */
Wire__Heartbeat *convert_beat(const struct progress *p, int64_t generation, struct arena *a);
void convert_from_beat(const Wire__Heartbeat *h, int64_t generation, struct progress *p);

struct ring_answer {
    int64_t incident;              /* the incident about which the driver asked */
    struct collective *collective; /* [n], oldest first; times as ring_rebase leaves them */
    int n;
};

struct frame *convert_ring(const struct ring_answer *r, int64_t generation, struct err *err);
void convert_to_ring(const Wire__Ring *m,
                     struct ring_answer *out); /* out->collective: for free() */

#endif
