/* Peers by the numbers of their connections.  The session knows connections only by these
 * numbers. */
#include "driver/peers.h"

#include <stdlib.h>

#include "base/alloc.h"

struct peer *peers_add(struct peers *p, struct conn *c, void *owner)
{
    struct peer *one = xcalloc(1, sizeof *one);

    *one = (struct peer){.number = ++p->last, .conn = c, .owner = owner};
    numbered_add(&p->peers, one->number, one);
    return one;
}

struct peer *peers_get(const struct peers *p, int64_t number)
{
    return numbered_find(&p->peers, number);
}

struct peer *peers_first(const struct peers *p) { return numbered_first(&p->peers); }

struct conn *peers_find(const struct peers *p, int64_t number)
{
    struct peer *peer = peers_get(p, number);

    return peer ? peer->conn : NULL;
}

struct conn *peers_remove(struct peers *p, int64_t number)
{
    struct peer *peer = numbered_take(&p->peers, number);
    struct conn *c = peer ? peer->conn : NULL;

    if (peer && peer->hello)
        msg_free(peer->hello);
    free(peer);
    return c;
}

void peers_fini(struct peers *p)
{
    for (struct peer *peer; (peer = peers_first(p));)
        peers_remove(p, peer->number);
    numbered_fini(&p->peers);
    *p = (struct peers){.last = 0};
}
