/* balance - cluster.rebalance: each rank's share of the global batch follows its measured speed.
 *
 * Every BALANCE_STEPS steps all ranks tell each other how many samples a second they compute,
 * waiting for others left out, and all plan the same shares by these numbers.  A rank's speed is
 * the median of its last BALANCE_STEPS steps, so that a short pause does not count.
 *
 * New shares want new programs, and measurements are noisy.  So ranks follow a plan only if a step
 * gets faster by a tenth, and they go at most half way.  A plan assumes that a rank's time is
 * proportional to its share, which is wrong where much of a step is the same for any share.  So new
 * shares are on trial until the next measurement.  If a step has not become faster by at least half
 * of what they promised, the ranks take equal shares, and measure again after a pause.  The pause
 * doubles with each failed trial; a trial that succeeds makes it short again.
 *
 * Nothing depends on shares but the rounding of sums: the loss is divided by the targets of the
 * global batch, wherever they are computed.
 *
 * Shares belong to a formation, which begins with equal ones.  They are no part of the state.
 *
 * Threads: the engine's. */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include <stdint.h>

#include "base/err.h"

enum { BALANCE_STEPS = 16, BALANCE_MOST_PAUSE = 64 * BALANCE_STEPS };

struct trainer;

/* This is what earlier decisions leave for later ones; it is the same on all ranks. */
struct balance_course {
    double most_seconds; /* of a step, for shares on trial to be kept; 0: none are on trial */
    int64_t pause;       /* steps of the last pause; 0: none since a trial succeeded */
    int64_t wait;        /* steps until the next measurement */
};

struct balance {
    int64_t *bound;                 /* [n_ranks + 1]: the sampler's, or NULL */
    int64_t due;                    /* the next measurement is before this step */
    int64_t busy_ns[BALANCE_STEPS]; /* this rank's work in step s, at s % BALANCE_STEPS */
    struct balance_course course;
};

/* A formation begins with the trainer's next step. */
void balance_begin(struct trainer *t);

/* This rank has worked so long in this step. */
void balance_note(struct balance *b, int64_t step, int64_t busy_ns);

/* Measure, and let the shares follow, if that is due.  All ranks call it before every
 * step; `last`: the step before which training is to stop.  Blocks while ranks talk. */
int balance_if_due(struct trainer *t, int64_t last, struct err *err);

/* Equal shares again. */
void balance_reset(struct trainer *t);

/* Plan the shares of `n` ranks, of which rank r computes rate[r] samples a second.  Sums are
 * `batch`; a share is at most `most`, where n * most >= batch, and at least 1 if there are as many
 * samples.
 *
 * share  [n]: what the ranks have; if the plan makes a step faster by a tenth, what they get.
 *
 * Returns 1 if it changed share[].  Pure. */
int balance_plan(const double *rate, int n, int64_t batch, int64_t most, int64_t *share);

/* The median of n steps' samples a second; 0 if no step had samples.  Pure. */
double balance_rate(const int64_t *n_samples, const int64_t *busy_ns, int n);

/* Decide on the shares of `n` ranks, of which rank r, measured with the shares that it has,
 * computes rate[r] samples a second, above 0.
 *
 * share  [n], sums to `batch`: what the ranks have, and then what they get.
 *
 * Sets c->wait.  Returns 1 if it changed share[].  Pure. */
int balance_follow(struct balance_course *c, const double *rate, int n, int64_t batch,
                   int64_t *share);

#endif
