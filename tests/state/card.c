/* card - the calls of a backend whose pieces of memory are known, so that each address can be
 * checked. */
#include "card.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"

static struct card *card_of(struct backend *b) { return container_of(b, struct card, base); }

int card_holds(const struct card *c, const void *p, size_t n_bytes)
{
    for (int i = 0; i < c->n_pieces; i++)
        if (c->piece[i].at <= (const char *)p &&
            (const char *)p + n_bytes <= c->piece[i].at + c->piece[i].n_bytes)
            return 1;
    return 0;
}

static int card_alloc(struct backend *b, size_t n_bytes, const char *what, void **out,
                      struct err *err)
{
    struct card *c = card_of(b);

    if (c->is_full)
        return err_set(err, ERR_NOMEM, "no room for %s", what);
    ASSERT(c->n_pieces < CARD_MOST_PIECES);
    c->piece[c->n_pieces].at = *out = xcalloc(n_bytes, 1);
    c->piece[c->n_pieces++].n_bytes = n_bytes;
    return 0;
}

static void card_free(struct backend *b, void *p)
{
    struct card *c = card_of(b);
    int i = 0;

    while (c->piece[i].at != p)
        ASSERT(++i < c->n_pieces);
    c->piece[i] = c->piece[--c->n_pieces];
    free(p);
}

static void count(struct card *c, size_t n_bytes)
{
    c->n_through_host++;
    c->largest_copy = n_bytes > c->largest_copy ? n_bytes : c->largest_copy;
}

static int card_in(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(card_holds(c, to, n_bytes) && !card_holds(c, from, 1));
    count(c, n_bytes);
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_out(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(card_holds(c, from, n_bytes) && !card_holds(c, to, 1));
    count(c, n_bytes);
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_copy(struct backend *b, void *to, const void *from, size_t n_bytes, struct err *err)
{
    struct card *c = card_of(b);

    (void)err;
    ASSERT(card_holds(c, to, n_bytes) && card_holds(c, from, n_bytes));
    c->n_copies++;
    memcpy(to, from, n_bytes);
    return 0;
}

static int card_sync(struct backend *b, struct err *err)
{
    (void)b, (void)err;
    return 0;
}

void card_open(struct card *c)
{
    /* No other call of a device comes here. */
    static const struct backend_device_ops device = {.copy = card_copy};
    static const struct backend_ops ops = {.name = "card",
                                           .alloc = card_alloc,
                                           .free = card_free,
                                           .copy_in = card_in,
                                           .copy_out = card_out,
                                           .sync = card_sync,
                                           .device = &device};

    c->base.ops = &ops;
}
