/* voters - the votes that decide which driver leads a run that has a standby.
 *
 * The voters of a formation are its ranks, the driver (rank 0) included, and the standby that was
 * connected with the driver when the formation began.  Without a standby there are no votes: any
 * driver that is started again goes on with the run.
 *
 * The standby may lead with half of the voters of the newest formation, itself included.  At least
 * one of the others must be a follower, because the standby itself holds no state.  A driver may
 * form again without the standby only if so many followers of the formation before take part that
 * the rest could not make the standby the leader.  So at any time at most one of the two finds
 * enough followers.  Both rules use voters_let_standby_lead.  docs/design.md, section 6, has the
 * argument.
 *
 * Threads: any; pure. */
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

/* 1: both are of the same formation. */
int voters_are_equal(const struct voters *a, const struct voters *b);

/* 1: a's formation began after b's. */
int voters_are_newer(const struct voters *a, const struct voters *b);

/* 1: n_followers of the formation, which obey no other driver, are enough to make its standby the
 * leader. */
int voters_let_standby_lead(const struct voters *v, int n_followers);

#endif
