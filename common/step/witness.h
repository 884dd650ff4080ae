/* witness - audited steps: each rank also computes another rank's share of the gradient, so that
 * wrong bits are found before an update reads them.
 *
 * In an audited step a rank computes two shares from the same parameters: that of the next rank of
 * its kind, and its own.  It hashes the samples and the gradients of both.  All ranks gather the
 * hashes; two hashes of one share have to be equal.  Only then are the gradients handed to the
 * strategy.  So an audited step takes twice as long, its sums do not overlap the backward pass, and
 * what the strategy and the update get is what they get in any other step.
 *
 * Where programs sum numbers over the ranks (batch norm, a contrastive loss), each rank needs all
 * of them for that.  So the own share comes first, and its sums are kept.  The other share is
 * computed from these, and what it would add to each of them is hashed, too: so a rank that adds
 * something wrong is found, although all get the same wrong sum.
 *
 * Where gradients are divided (strategy.zero 2 and 3), each bucket is summed once it is hashed, as
 * its memory is needed.  The sums stay apart until the hashes are equal, and are else computed
 * again before anything reads them.
 *
 * audit/jury.h has the protocol: who looks at whom, what follows a difference, and which rank is at
 * fault.  This module computes, and carries the answers.  If the ranks do not agree in the end, the
 * step fails: on a rank that is proven to be at fault with ERR_DEVICE, so that it is replaced, and
 * on the others with ERR_CANCELED.  No update was made then.
 *
 * Not on devices: the owner does not begin a witness then.
 *
 * Life:    witness_begin -> witness_step ... -> witness_fini, for each formation.
 * Threads: the engine's.
 * Errors:  those of a step. */
#ifndef STEP_WITNESS_H
#define STEP_WITNESS_H

#include "audit/jury.h"
#include "base/err.h"
#include "base/hash.h"

struct stepper;

/* Zeroed: no step is audited. */
struct witness {
    struct jury jury;
    int is_looking, share; /* 1: the share of this rank is being computed */
    /* The sums over all ranks that programs have made for the own share, one after another.
     * n_taken: of these numbers, so many have been taken for another share. */
    double *sums;
    int64_t n_sums, cap_sums, n_taken;
    struct opinion *all; /* [n_ranks] */
    struct answer *vote; /* [n_ranks] */
    /* [n]: hashes of each parameter's gradient, then of the sums of losses: of the own share, of
     * the other one, and of one that is voted on. */
    struct hash128 *own, *other, *voted;
    int n;
};

/* A formation begins.  kind[n_ranks]: as jury_begin. */
void witness_begin(struct stepper *t, const int *kind, int n_ranks);
void witness_fini(struct witness *w);

/* 1: the step is an audited one.  The same on all ranks. */
int witness_is_due(const struct stepper *t, int64_t step);

/* Queue the audited step that has begun: all that follows step_begin_first.  Allocates memory for
 * the other rank's samples. */
int witness_step(struct stepper *t, struct err *err);

#endif
