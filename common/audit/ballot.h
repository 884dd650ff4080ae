/* ballot - the verdict on ranks whose states differ: which of them are wrong, and what went wrong.
 *
 * After a step all ranks hold the same state.  They compare hashes of a part of it (struct
 * compared).  If these differ, each rank tells a hash of each of its tensors, too.  The state of
 * more than half of the ranks is right, and all other ranks are named.  Without such a majority
 * nobody knows which state is right: all ranks are named, and nothing is proven.
 *
 * All ranks hear the same hashes, so they reach the same verdict without a message of their own. A
 * ballot neither hashes nor communicates: its owner does.  train/inspect.h is that owner; the
 * simulator of tests/session is another one.
 *
 * Life:    ballot_begin -> fill `told` -> ballot_count -> ballot_report ... -> ballot_fini.
 *          Zeroed: a ballot of no ranks.
 * Threads: one at a time. */
#ifndef AUDIT_BALLOT_H
#define AUDIT_BALLOT_H

#include "base/hash.h"
#include "session/command.h"

/* The hashes that a rank tells of a step. */
struct compared {
    struct hash128 before; /* of the part of the state that is compared, before the step */
    struct hash128 summed; /* of the combined gradients */
    /* Of the control vector, by which the rank counts the step; zeros: it tells none. */
    struct hash128 control;
    struct hash128 after; /* of the part of the state, after the step */
};

/* The hash of what has to be equal on all ranks after the step: state and control vector. */
struct hash128 ballot_compared(const struct compared *c);

/* all [n_ranks].  1: the ranks differ after the step. */
int ballot_differs(const struct compared *all, int n_ranks);

/* The ranks differ after a step.  knows_before 1: `before`, `summed` and `control` are hashes of
 * that step.  If all of them are equal on all ranks, the update is what went wrong. */
enum corruption ballot_what(const struct compared *all, int n_ranks, int knows_before);

struct ballot {
    int n_ranks, n_tensors;
    struct hash128 *told;   /* [n_ranks][n_tensors], the owner's to fill */
    struct hash128 *digest; /* [n_ranks] of what the ranks compared and of all tensors */
    int good, n_votes;      /* good: a rank whose state most ranks have, n_votes of them */
};

void ballot_begin(struct ballot *b, int n_ranks, int n_tensors);
void ballot_fini(struct ballot *b);

/* compared [n_ranks]: the hashes that were found to differ (ballot_compared). */
void ballot_count(struct ballot *b, const struct hash128 *compared);

/* 1: more than half of the ranks hold the state of rank `good`. */
int ballot_has_majority(const struct ballot *b);

/* 1: the state of rank k is wrong, or may be, if there is no majority. */
int ballot_names(const struct ballot *b, int k);

/* The first tensor in which rank k differs from rank `good`, or from any rank if it has that rank's
 * state; -1: none does. */
int ballot_tensor(const struct ballot *b, int k);

/* The report about rank k, which is named, for report_free().  step: the number of steps that were
 * done.  heals: the others take the state of rank `good`; if not, the last report ends training. */
struct report *ballot_report(const struct ballot *b, int k, enum corruption what, int64_t step,
                             int heals, const char *tensor);

/* Divided state.  differs [n_ranks]: rank k's copy of the shard of the rank before it differs from
 * the original.  1: rank k holds one of two that differ, and which of them is wrong is not known.
 */
int ballot_names_holder(const int *differs, int n_ranks, int k);

/* The report about a rank that ballot_names_holder names, for report_free(). */
struct report *ballot_report_holder(const int *differs, int n_ranks, int k, int64_t step);

#endif
