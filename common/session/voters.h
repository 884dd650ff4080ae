/* voters - who decides which driver leads a run that has a standby.
 *
 * The voters of a formation are its ranks, the driver (rank 0) included, and the standby that was
 * connected with the driver when the formation began.  A run that has no standby has no votes: any
 * driver that is started again goes on with it.
 *
 * The standby leads with half of the voters of the newest formation, itself included; of the
 * others at least one must be a follower, since the standby itself holds no state.  A driver that
 * forms again without the standby must leave it fewer: of the formation before, as many followers
 * take part that the others could not make the standby the leader.  So at any time at most one of
 * the two finds its followers, and every rule below is a use of voters_let_standby_lead.
 * docs/design.md has the argument. */
#ifndef SESSION_VOTERS_H
#define SESSION_VOTERS_H

#include <stdint.h>

enum { VOTERS_ID = 65 };

struct voters {
    int64_t term, generation; /* of the formation; generation 0: there is none */
    int n_ranks;
    char standby[VOTERS_ID]; /* random id of the standby; "": it has none */
};

/* standby: NULL is "". */
struct voters voters_of(int64_t term, int64_t generation, int n_ranks, const char *standby);

/* Both are of the same formation. */
int voters_are_equal(const struct voters *a, const struct voters *b);

/* a's formation began after b's. */
int voters_are_newer(const struct voters *a, const struct voters *b);

/* 1: these followers of the formation, which obey no other driver, make its standby the leader. */
int voters_let_standby_lead(const struct voters *v, int n_followers);

#endif
