/* Connections: the list of them, by the caller's numbers.  A connection is a stranger's until its
 * Hello was accepted; then it belongs to a seat, or to the standby. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/util.h"
#include "session/driver_impl.h"

/* The index of the first connection whose id is not below `id`. */
static int lower_bound(const struct membership *m, int64_t id)
{
    int lo = 0, hi = m->n_conns;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (m->conns[mid]->id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct conn *conn_find(const struct driver *d, int64_t id)
{
    const struct membership *m = &d->membership;
    int i = lower_bound(m, id);
    return i < m->n_conns && m->conns[i]->id == id ? m->conns[i] : NULL;
}

void conn_drop(struct membership *m, struct conn *c)
{
    int i = lower_bound(m, c->id);
    ASSERT(i < m->n_conns && m->conns[i] == c);
    m->n_conns--;
    memmove(&m->conns[i], &m->conns[i + 1], (size_t)(m->n_conns - i) * sizeof(struct conn *));
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
    ASSERT(m->n_conns == 0 || m->conns[m->n_conns - 1]->id < id);
    if (m->n_conns == m->cap_conns) {
        m->cap_conns = m->cap_conns ? 2 * m->cap_conns : 16;
        m->conns = xrealloc(m->conns, (size_t)m->cap_conns * sizeof(struct conn *));
    }
    struct conn *c = xcalloc(1, sizeof *c);
    *c = (struct conn){.id = id,
                       .rank = -1,
                       .until_ms = m->d->now_ms + HELLO_MS,
                       .peer = plain_address(peer),
                       .local = plain_address(local),
                       .from = xstrdup(from)};
    return m->conns[m->n_conns++] = c;
}
