/* An inbox is a mailbox whose wake function is uv_async_send.
 * One wake-up drains the whole mailbox, since libuv merges them. */
#include "net/inbox.h"

#include "base/util.h"

static void inbox_wake(void *arg)
{
    struct inbox *b = arg;

    uv_async_send(&b->async);
}

void inbox_look(struct inbox *b)
{
    struct mail *m;

    while (!uv_is_closing((uv_handle_t *)&b->async) && (m = mailbox_take(&b->box)))
        b->mail(b->arg, m);
}

static void on_async(uv_async_t *async) { inbox_look(async->data); }

void inbox_init(struct inbox *b, uv_loop_t *loop, void (*mail)(void *arg, struct mail *m),
                void (*free_mail)(struct mail *m), void *arg)
{
    b->mail = mail;
    b->free_mail = free_mail;
    b->arg = arg;
    mailbox_init(&b->box, inbox_wake, b);
    ASSERT(uv_async_init(loop, &b->async, on_async) == 0);
    b->async.data = b;
}

void inbox_drop(struct inbox *b)
{
    struct mail *m;

    while ((m = mailbox_take(&b->box)))
        b->free_mail(m);
}

static void inbox_on_closed(uv_handle_t *h)
{
    struct inbox *b = h->data;

    mailbox_fini(&b->box, b->free_mail);
}

void inbox_close(struct inbox *b) { uv_close((uv_handle_t *)&b->async, inbox_on_closed); }
