/* jury - the protocol of an audited step: which rank computes whose share, what comes next, and
 * which rank is at fault.
 *
 * Each rank has a jury, and all juries of a formation hear the same answers in the same order.  So
 * they take the same turns and reach the same verdict without a message of their own.  A jury
 * neither computes nor communicates: its owner does what the turn says, gathers what the ranks got,
 * and tells the jury.  step/witness.h is that owner; the simulator of tests/session is another one.
 *
 * JURY_LOOK: each rank computes the share of the next rank of its kind, and its own (struct
 * opinion).  If all pairs of answers are equal, the ranks have agreed.
 *
 * JURY_VOTE: two answers about the share of `owner` differ, so all ranks of its kind compute it
 * (struct answer).  The answer of more than half of them is right, and a rank that had another one,
 * first or now, is at fault.  Without a majority a rank that contradicts itself is at fault, if the
 * other one of the pair does not, too.  Otherwise both are named, and nothing is proven.  After the
 * votes on all such shares the step begins again with JURY_LOOK, JURY_ROUNDS times at most.
 *
 * Kinds: ranks whose processors and threads are alike compute the same bits.  A rank that is the
 * only one of its kind is not audited, and audits nobody.
 *
 * Life:    jury_begin -> (jury_open -> jury_hear_opinions, jury_hear_votes ... until JURY_AGREED or
 *          JURY_FAILED) ... -> jury_fini, for each formation.  Zeroed: a jury of no ranks.
 * Threads: one at a time. */
#ifndef AUDIT_JURY_H
#define AUDIT_JURY_H

#include "base/hash.h"
#include "session/command.h"

enum { JURY_ROUNDS = 3 };

enum jury_turn {
    JURY_LOOK,
    JURY_VOTE,
    JURY_AGREED, /* the own shares that were computed last are right */
    JURY_FAILED, /* the ranks do not agree, however often they compute */
};

struct answer { /* the hashes of one share */
    struct hash128 batch, gradient;
};

struct opinion { /* what a rank tells the others */
    struct answer own, other;
};

struct jury_finding {
    int64_t step;
    int rank;             /* at fault, or one of those of which one is */
    int is_proven;        /* 1: it is at fault */
    enum corruption what; /* CORRUPTION_GRADIENT or CORRUPTION_BATCH */
    int share;            /* the rank whose share of the batch the wrong answer was about */
    int is_healed;        /* 1: it computed again, and the ranks agreed on that */
    int ends;             /* 1: training cannot go on, and no rank is to blame alone */
    const char *tensor;   /* the first one of that share that differs, or NULL; borrowed from
                           * jury_hear_votes */
    int round;            /* the newest one in which it was found */
};

struct jury {
    int *kind; /* [n_ranks]; NULL: none */
    int n_ranks;
    int64_t step;
    enum jury_turn turn;
    int round;
    int owner;           /* JURY_VOTE: whose share is computed again */
    int differs;         /* 1: two answers of this round differ */
    struct opinion *all; /* [n_ranks] of this round */
    /* [n_found], of n_ranks at most: each rank is named once in a step, and what is proven counts,
     * then what has a tensor, then the newest.  is_healed and ends are set when the ranks have
     * agreed or failed. */
    struct jury_finding *found;
    int n_found;
};

/* A formation begins.  kind[n_ranks]: equal numbers for ranks that compute the same bits, the same
 * on all ranks; copied. */
void jury_begin(struct jury *j, const int *kind, int n_ranks);
void jury_fini(struct jury *j);

/* The rank of k's kind whose share k computes, too; and the one that computes k's.  -1: there is
 * none. */
int jury_next(const struct jury *j, int k);
int jury_before(const struct jury *j, int k);

/* An audited step begins, with JURY_LOOK. */
void jury_open(struct jury *j, int64_t step);

/* After JURY_LOOK: all [n_ranks], each rank's opinion.  Returns the next turn. */
enum jury_turn jury_hear_opinions(struct jury *j, const struct opinion *all);

/* After JURY_VOTE: vote [n_ranks], the new answers about the owner's share of those of its kind;
 * the others are not read.  tensor: the first one in which the first two answers differ, or NULL;
 * borrowed until the step's end.  Returns the next turn. */
enum jury_turn jury_hear_votes(struct jury *j, const struct answer *vote, const char *tensor);

/* The report of a finding, for report_free(). */
struct report *jury_report(const struct jury_finding *f, int64_t generation);

/* 1: the ranks have failed, and this rank is proven to be at fault. */
int jury_condemns(const struct jury *j, int rank);

#endif
