/* queue - the parts that all session machines share: the queue of actions, and a clock that leaves
 * out stalls.
 *
 * Internal to session/.
 *
 * Threads: as the session machine that has the queue. */
#ifndef SESSION_QUEUE_H
#define SESSION_QUEUE_H

#include <stdarg.h>
#include <stdint.h>

#include "session/action.h"

struct action_node;

struct action_queue {
    struct action_node *first, **last;
    struct action_node **last_trust; /* these stand before all others */
};

void queue_init(struct action_queue *q);
void queue_fini(struct action_queue *q); /* frees what was not taken */

void queue_put(struct action_queue *q, const struct action *a); /* takes what *a owns */
int queue_take(struct action_queue *q, struct action *out);     /* 1: *out is the next; 0: none */

void queue_send(struct action_queue *q, int64_t conn, struct frame *f); /* takes f */
void queue_close(struct action_queue *q, int64_t conn, const char *text);
void queue_trust(struct action_queue *q, int64_t conn);
void queue_command(struct action_queue *q, struct cmd *c); /* takes c */
void queue_abort(struct action_queue *q);
void queue_inject(struct action_queue *q, const struct injection *f);
void queue_log(struct action_queue *q, enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Log why the driver that was found at this address is of no use yet.  *said is the reason that was
 * logged last, or NULL: it is not logged again. */
void queue_log_useless(struct action_queue *q, const char *address, const char *why, char **said);

/* The time of a session, which stands still while the caller's loop stalls.
 *
 * A session asks to be called at least a few times a second.  If it is called later than it asked
 * for, the loop was stuck or the process was stopped.  In that time no peer could be heard, so it
 * must not count against a peer. */
enum { STALL_SLACK_MS = 200 };

struct session_clock {
    int64_t stalled_ns; /* sum of all stalls */
    int64_t due_ns;     /* the caller's time at which we asked to be called */
    int64_t now_ms;     /* session time of the last call; it never goes back */
};

/* The reason why a connection ended, for a message that names the peer itself: without the "from
 * ADDRESS: " that the connection puts in front.  why NULL: the peer closed it. */
const char *session_reason(const struct err *why);

int64_t session_enter_ms(struct session_clock *c, int64_t now_ns); /* session time in ms */

/* Ask to be called at this session time.  One that is past already means now: the time until then
 * was no stall. */
void session_leave(struct session_clock *c, int64_t due_ms);

#endif
