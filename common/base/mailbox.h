/* mailbox - a queue of messages to one reader, by which threads talk to each other.
 *
 * A message is a heap object that starts with `struct mail`; ownership passes with it.  The reader
 * either sleeps in mailbox_wait (engine, data, comm threads), or gives a wake function (the loop:
 * uv_async_send, which merges wake-ups, so drain with mailbox_take until NULL).
 *
 * Life:    mailbox_init -> put, take ... -> mailbox_fini (no thread may be waiting; messages that
 *          are left are freed with the given function).
 * Threads: any number of writers, one reader.
 * Lock:    one mutex, which guards the list; the condition says that the list is not empty. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <pthread.h>

struct mail {
    struct mail *next; /* the mailbox's while it is queued */
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct mail *first, **last;
    void (*wake)(void *arg); /* may be NULL */
    void *arg;
};

void mailbox_init(struct mailbox *m, void (*wake)(void *arg), void *arg);
void mailbox_fini(struct mailbox *m, void (*free_mail)(struct mail *));

void mailbox_put(struct mailbox *m, struct mail *mail); /* takes mail */

/* The same, but the reader is not woken: it finds the mail with the next one that wakes it, or when
 * it looks. */
void mailbox_leave(struct mailbox *m, struct mail *mail);

struct mail *mailbox_take(struct mailbox *m); /* the oldest, or NULL */
struct mail *mailbox_wait(struct mailbox *m); /* the oldest; sleeps while there is none */

#endif
