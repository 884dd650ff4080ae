/* Connections: the list of them, by the caller's numbers.  A connection is a stranger's until its
 * Hello was accepted; then it belongs to a seat, or to the standby. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

struct conn *conn_find(const struct driver *d, int64_t id)
{
    return numbered_find(&d->membership.conns, id);
}

struct conn *conn_first(const struct driver *d) { return numbered_first(&d->membership.conns); }

struct conn *conn_up(const struct driver *d, size_t *at)
{
    return numbered_up(&d->membership.conns, at);
}

struct conn *conn_down(const struct driver *d, size_t *at)
{
    return numbered_down(&d->membership.conns, at);
}

void conn_drop(struct membership *m, struct conn *c)
{
    ASSERT(numbered_take(&m->conns, c->id) == c);
    free(c->peer);
    free(c->local);
    free(c->from);
    free(c);
}

void conn_leave(struct membership *m, struct conn *c, int64_t ms)
{
    ASSERT(ms > 0);
    c->state = CONN_LEAVING;
    c->until_ms = m->d->now_ms + ms;
}

void conn_gone(struct membership *m, struct conn *c)
{
    (void)m;
    c->state = CONN_LEAVING;
}

void conn_unseat(struct membership *m, struct conn *c)
{
    ASSERT(c->rank != 0); /* rank 0 has no connection */
    (void)m;
    c->rank = -1;
}

/* A socket for both families shows 10.0.0.1 as "::ffff:10.0.0.1". */
static char *plain_address(const char *s)
{
    return xstrdup(!strncmp(s, "::ffff:", 7) && strchr(s, '.') ? s + 7 : s);
}

struct conn *conn_add(struct membership *m, int64_t id, const char *peer, const char *local,
                      const char *from)
{
    struct conn *c = xcalloc(1, sizeof *c);
    *c = (struct conn){.id = id,
                       .rank = -1,
                       .until_ms = m->d->now_ms + HELLO_MS,
                       .peer = plain_address(peer),
                       .local = plain_address(local),
                       .from = xstrdup(from)};
    numbered_add(&m->conns, id, c);
    return c;
}
