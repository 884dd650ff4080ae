/* peers - the connections of a driver, by the numbers that its session (session/driver.h) uses for
 * them.
 *
 * Numbers grow and are never used twice (base/numbered.h).
 *
 * Life:    zeroed -> peers_add ... -> peers_fini.  Conns are borrowed.
 * Threads: the loop's. */
#ifndef DRIVER_PEERS_H
#define DRIVER_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/numbered.h"
#include "wire/msg.h"

struct conn;

struct peer {
    int64_t number;
    struct conn *conn;
    void *owner;
    Wire__Control *hello; /* of a follower that waits for a standby to lead; else NULL */
};

struct peers {
    struct numbered peers; /* struct peer; one does not move while it is here */
    int64_t last;          /* the number that was given last */
};

struct peer *peers_add(struct peers *p, struct conn *c, void *owner); /* gives it the next number */
struct peer *peers_get(const struct peers *p, int64_t number);        /* NULL: not here */
struct peer *peers_first(const struct peers *p);                      /* NULL: none is here */
struct conn *peers_find(const struct peers *p, int64_t number);       /* NULL: not here */
struct conn *peers_remove(struct peers *p, int64_t number);           /* the same */
void peers_fini(struct peers *p);

#endif
