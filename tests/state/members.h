/* members - ranks of a divided state, as threads of one process.  They train by writing numbers
 * that tell their step and place, so each number that a rank holds shows where it comes from.
 *
 * Threads: the test's.  run_members runs a function on a thread of each rank; there it must not use
 *          cmocka's assertions. */
#ifndef TESTS_STATE_MEMBERS_H
#define TESTS_STATE_MEMBERS_H

#include "../coll/local.h"
#include "state/shards.h"

enum { MOST_RANKS = 4, TRAINED = 80, TOTAL = 96 };

/* Behind the parameters and the running statistics. */
enum { MOMENT_SLOT = 2 };

/* Three parameters, the second of which lies in both buckets, and the last of which is frozen. */
extern const struct layout members_layout;
extern const struct slot_def members_moment; /* the divided row */

/* A rank of several formations; in the present one it is rank `at`. */
struct member {
    struct backend *b;
    struct state *state;
    int at, rc, n_rolls; /* rc: what run_members' function returned */
    struct coll_group *group;
    int (*run)(struct member *m, struct coll *c, struct err *err);
    struct err err;
};

/* A rank that holds the whole state, zeroed, or nothing of the divided row. */
void begin_member(struct member *m, int n_holders, int is_whole);
void end_member(struct member *m);
/* all [n]: n ranks that have made `step` together.  Rank 0 had the whole state before. */
void begin_members(struct member *m, struct member **all, int n, int n_holders, int64_t step);
void end_members(struct member *m, int n);

/* The rank has made the step: its shards and all parameters say so. */
void train_member(struct member *m, int64_t step);
/* The rank holds the state of this step, as one of `size` ranks. */
void assert_member_holds(const struct member *m, int64_t step, int size);

/* All n members do this at once, as ranks 0 to n - 1.  The last one may have a fault. */
void run_members(struct member *const *m, int n,
                 int (*what)(struct member *m, struct coll *c, struct err *err),
                 const struct coll_fault *fault);
/* For run_members: take part in a new formation. */
int form_member(struct member *m, struct coll *c, struct err *err);
/* All do so, and then hold the state of this step. */
void form_members(struct member *const *m, int n, int64_t step);

#endif
