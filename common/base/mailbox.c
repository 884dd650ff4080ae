/* A mailbox is a linked list under one mutex.
 * The wake function is called after the mutex is released. */
#include "base/mailbox.h"

#include <stddef.h>

void mailbox_init(struct mailbox *m, void (*wake)(void *arg), void *arg)
{
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->filled, NULL);
    m->first = NULL;
    m->last = &m->first;
    m->wake = wake;
    m->arg = arg;
}

void mailbox_fini(struct mailbox *m, void (*free_mail)(struct mail *))
{
    struct mail *mail;

    while ((mail = mailbox_take(m)))
        free_mail(mail);
    pthread_cond_destroy(&m->filled);
    pthread_mutex_destroy(&m->lock);
}

static void put_locked(struct mailbox *m, struct mail *mail)
{
    mail->next = NULL;
    *m->last = mail;
    m->last = &mail->next;
}

void mailbox_leave(struct mailbox *m, struct mail *mail)
{
    pthread_mutex_lock(&m->lock);
    put_locked(m, mail);
    pthread_mutex_unlock(&m->lock);
}

void mailbox_put(struct mailbox *m, struct mail *mail)
{
    pthread_mutex_lock(&m->lock);
    put_locked(m, mail);
    pthread_cond_signal(&m->filled);
    pthread_mutex_unlock(&m->lock);
    if (m->wake)
        m->wake(m->arg);
}

static struct mail *take_locked(struct mailbox *m)
{
    struct mail *mail = m->first;

    if (!mail)
        return NULL;
    m->first = mail->next;
    if (!m->first)
        m->last = &m->first;
    return mail;
}

struct mail *mailbox_take(struct mailbox *m)
{
    struct mail *mail;

    pthread_mutex_lock(&m->lock);
    mail = take_locked(m);
    pthread_mutex_unlock(&m->lock);
    return mail;
}

struct mail *mailbox_wait(struct mailbox *m)
{
    struct mail *mail;

    pthread_mutex_lock(&m->lock);
    while (!m->first)
        pthread_cond_wait(&m->filled, &m->lock);
    mail = take_locked(m);
    pthread_mutex_unlock(&m->lock);
    return mail;
}
