/* inbox - a mailbox whose reader is the loop: mail of other threads arrives as a callback.
 *
 * Wake-ups merge, so one may bring many messages.  They are handed on in the order of arrival.
 *
 * Life:    inbox_init -> mail ... -> inbox_close (no thread may put any more), and the loop runs on
 *          until its handle is closed; what is left in the box is freed then.
 * Threads: mailbox_put and mailbox_leave from any; the rest is the loop's. */
#ifndef NET_INBOX_H
#define NET_INBOX_H

#include <uv.h>

#include "base/mailbox.h"

struct inbox {
    struct mailbox box; /* give this to the writers */
    uv_async_t async;
    void (*mail)(void *arg, struct mail *m); /* takes m */
    void (*free_mail)(struct mail *m);
    void *arg;
};

void inbox_init(struct inbox *b, uv_loop_t *loop, void (*mail)(void *arg, struct mail *m),
                void (*free_mail)(struct mail *m), void *arg);
void inbox_look(struct inbox *b); /* hand on what waits, such as mail that was left */
void inbox_drop(struct inbox *b); /* free what waits, unread */
void inbox_close(struct inbox *b);

#endif
