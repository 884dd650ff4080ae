/* local - ranks as threads of one process.  It is also the slow, plain twin with which the real
 * transports are compared.
 *
 * Sums are in rank order, ((x0 + x1) + x2) + ..., element by element.  If ranks hand over different
 * collectives, they fail with ERR_ARG; over the other transports they would hang.
 *
 * Life:    coll_group_new -> coll_new_local for each rank -> ... -> coll_free for each rank
 *          -> coll_group_free.
 * Threads: the group's functions from any. */
#ifndef TESTS_COLL_LOCAL_H
#define TESTS_COLL_LOCAL_H

#include "coll/coll.h"

struct coll_group; /* opaque: where the ranks meet */

struct coll_group *coll_group_new(int size);
void coll_group_free(struct coll_group *g); /* after the colls of all its ranks; NULL is fine */

/* The coll of one rank.  Each rank once.  Fails with ERR_ARG (rank out of range, taken). */
int coll_new_local(struct coll_group *g, int rank, struct coll **out, struct err *err);

/* A fault to inject on one rank, at its n-th collective of a channel (1 = its first). */
struct coll_fault {
    enum coll_channel channel;
    int64_t at_ticket; /* n; 0: never */
    int64_t delay_ms;  /* the rank arrives this much later; coll_abort ends the delay */
    int64_t lag_ms;    /* all have arrived, and the rank hears the others this much later, or not
                          at all if one of them leaves before that: it fails with ERR_PEER */
    int fail;          /* an err_code (ERR_PEER ...) to fail with, which the others see as ERR_PEER;
                          0: do not fail */
};

void coll_local_inject(struct coll_group *g, int rank, struct coll_fault fault);

#endif
