/* A sorted array of peers.  Numbers only grow, so a new peer is appended, and a peer is found by a
 * binary search.  The session knows connections only by these numbers. */
#include "driver/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct peer *peers_add(struct peers *p, struct conn *c, void *owner)
{
    struct peer *one = xcalloc(1, sizeof *one);

    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->peer = xrealloc(p->peer, p->cap * sizeof *p->peer);
    }
    *one = (struct peer){.number = ++p->last, .conn = c, .owner = owner};
    p->peer[p->n++] = one;
    return one;
}

static int peers_by_number(const void *key, const void *element)
{
    int64_t number = *(const int64_t *)key, other = (*(struct peer *const *)element)->number;

    return (number > other) - (number < other);
}

static struct peer **peers_find_row(const struct peers *p, int64_t number)
{
    return p->n ? bsearch(&number, p->peer, p->n, sizeof *p->peer, peers_by_number) : NULL;
}

struct peer *peers_get(const struct peers *p, int64_t number)
{
    struct peer **at = peers_find_row(p, number);

    return at ? *at : NULL;
}

struct conn *peers_find(const struct peers *p, int64_t number)
{
    struct peer *peer = peers_get(p, number);

    return peer ? peer->conn : NULL;
}

struct conn *peers_remove(struct peers *p, int64_t number)
{
    struct peer **at = peers_find_row(p, number);
    struct conn *c;

    if (!at)
        return NULL;
    c = (*at)->conn;
    if ((*at)->hello)
        msg_free((*at)->hello);
    free(*at);
    p->n--;
    memmove(at, at + 1, (size_t)(p->peer + p->n - at) * sizeof(struct peer *));
    return c;
}

void peers_fini(struct peers *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->peer[i]->hello)
            msg_free(p->peer[i]->hello);
        free(p->peer[i]);
    }
    free(p->peer);
    *p = (struct peers){0};
}
