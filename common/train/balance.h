/* balance - cluster.rebalance: each rank's share of the global batch follows its measured speed.
 *
 * Every BALANCE_STEPS steps all ranks exchange their speeds, in samples per second without the time
 * that they wait for others.  All ranks then plan the same shares by these speeds.  A rank's speed
 * is the median of its last BALANCE_STEPS steps, so that a short pause does not count.
 *
 * New shares need new programs, and measurements are noisy.  So ranks follow a plan only if it
 * makes a step faster by a tenth, and they go at most half way.  A plan assumes that a rank's time
 * is proportional to its share.  That is wrong if much of a step takes the same time for any share.
 * So new shares are on trial until the next measurement.  If the gain is less than half of the
 * planned gain, the ranks take equal shares again, and measure again after a pause.  The pause
 * doubles with each failed trial; after a successful trial it is short again.
 *
 * Shares change only the rounding of sums, because the loss is divided by the number of targets in
 * the global batch, whichever rank computes them.
 *
 * Each formation begins with equal shares.  Shares are not part of the state.
 *
 * Threads: the engine's. */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include <stdint.h>

#include "base/err.h"

enum { BALANCE_STEPS = 16, BALANCE_MOST_PAUSE = 64 * BALANCE_STEPS };

struct trainer;

/* The results of earlier decisions that later ones need.  They are the same on all ranks. */
struct balance_course {
    double most_seconds; /* shares on trial are kept if a step takes at most this; 0: no trial */
    int64_t pause;       /* steps of the last pause; 0: no pause since a trial succeeded */
    int64_t wait;        /* steps until the next measurement */
};

struct balance {
    int64_t *bound;                 /* [n_ranks + 1]: the sampler's bounds of shares, or NULL */
    int64_t due;                    /* the next measurement is before this step */
    int64_t busy_ns[BALANCE_STEPS]; /* this rank's work in step s, at s % BALANCE_STEPS */
    struct balance_course course;
};

/* A formation begins with the trainer's next step. */
void balance_begin(struct trainer *t);

/* Note that this rank worked busy_ns in this step, waiting for other ranks left out. */
void balance_note(struct balance *b, int64_t step, int64_t busy_ns);

/* 1: a measurement is due before this step.  On a device nothing may be under way then. */
int balance_is_due(const struct trainer *t, int64_t step);

/* If a measurement is due, measure and decide on the shares.  All ranks call this before every
 * step.  `last` is the step before which training is to stop.  Blocks while the ranks exchange
 * their speeds. */
int balance_if_due(struct trainer *t, int64_t last, struct err *err);

/* Equal shares again. */
void balance_reset(struct trainer *t);

/* Plan the shares of n ranks, of which rank r computes rate[r] samples per second.  The shares add
 * up to `batch`.  A share is at most `most`, where n * most >= batch, and at least 1 if batch >= n.
 *
 * share  [n]: the present shares; replaced by the plan if the plan makes a step faster by a tenth.
 *
 * Returns 1 if it changed share[].  Pure. */
int balance_plan(const double *rate, int n, int64_t batch, int64_t most, int64_t *share);

/* The median over n steps of samples per second; 0 if no step had samples.  Pure. */
double balance_rate(const int64_t *n_samples, const int64_t *busy_ns, int n);

/* Decide on the shares of n ranks.  Rank r was measured with its present share, and computes
 * rate[r] > 0 samples per second.
 *
 * share  [n], adds up to `batch`: the present shares, replaced by the new ones.
 *
 * Sets c->wait.  Returns 1 if it changed share[].  Pure. */
int balance_follow(struct balance_course *c, const double *rate, int n, int64_t batch,
                   int64_t *share);

#endif
