/* witness - audited steps: each rank also computes another rank's share of the gradient, so that
 * wrong bits are found before they are summed.
 *
 * In an audited step a rank computes two shares from the same parameters: that of the next rank of
 * its kind, and its own.  It hashes the samples and the gradients of both.  All ranks gather the
 * hashes; two hashes of one share have to be equal.  Only then are the gradients handed to the
 * strategy.  So an audited step takes twice as long, its sums do not overlap the backward pass, and
 * what the strategy and the update get is what they get in any other step.
 *
 * A difference: all ranks of that kind compute the share in question, and vote.  The hash of more
 * than half of them is right; a rank that first had another one is at fault.  With two ranks of a
 * kind the rank whose repetition differs from its own first answer is at fault; if that is none or
 * both, nobody knows.  Then the step begins again, with both shares.  After MOST_ROUNDS rounds the
 * step fails: on a rank that is proven to be at fault with ERR_DEVICE, so that it is replaced, and
 * on the others with ERR_CANCELED.  No update was made then.
 *
 * Kinds: ranks whose processors and threads are alike compute the same bits.  A rank that is the
 * only one of its kind is not audited, and audits nobody.
 *
 * Not on devices, not where gradients are divided, and not where programs sum numbers over the
 * ranks: there no rank can compute another one's share alone, or keep its own meanwhile.  The owner
 * does not begin a witness then.
 *
 * Life:    witness_begin -> witness_step ... -> witness_fini, for each formation.
 * Threads: the engine's.
 * Errors:  those of a step. */
#ifndef STEP_WITNESS_H
#define STEP_WITNESS_H

#include "base/err.h"
#include "base/hash.h"
#include "session/command.h"

struct stepper;
struct opinion; /* a rank's hashes of one share, or of both */

enum { WITNESS_MOST_FOUND = 8 };

struct witness_finding {
    int64_t step;
    int rank;             /* at fault, or one of those of which one is */
    int is_proven;        /* 1: it is at fault */
    enum corruption what; /* CORRUPTION_GRADIENT or CORRUPTION_BATCH */
    int is_healed;        /* 1: the step was computed again, with equal hashes */
    int ends;             /* 1: training cannot go on, and no rank is to blame alone */
    const char *tensor;   /* the first one that differs, or NULL; valid during the call */
};

/* Zeroed: no step is audited. */
struct witness {
    int *kind;   /* [n_ranks]: equal numbers for ranks that compute the same bits; NULL: none */
    int n_ranks; /* of the formation */
    int is_looking, share; /* 1: the share of this rank is being computed */
    struct opinion *all;   /* [n_ranks] */
    /* [n]: hashes of each parameter's gradient, then of the sums of losses: of the own share, of
     * the other one, and of one that is voted on. */
    struct hash128 *own, *other, *voted;
    int n;
    struct witness_finding found[WITNESS_MOST_FOUND]; /* told when the step has ended */
    int n_found;
};

/* A formation begins.  kind[n_ranks]: as above, the same on all ranks; copied. */
void witness_begin(struct stepper *t, const int *kind, int n_ranks);
void witness_fini(struct witness *w);

/* The rank of k's kind whose share k computes, too; and the one that computes k's.  -1: there is
 * none. */
int witness_next(const struct witness *w, int k);
int witness_before(const struct witness *w, int k);

/* 1: the step is an audited one.  The same on all ranks. */
int witness_is_due(const struct stepper *t, int64_t step);

/* Queue the audited step that has begun: all that follows step_begin_first.  Allocates memory for
 * the other rank's samples. */
int witness_step(struct stepper *t, struct err *err);

#endif
