/* buckets - train.bucket_bytes: auto: the size of buckets follows from the first steps.
 *
 * The model.  Backward fills the buckets in their order.  Bucket b, of x_b bytes, is ready r_b
 * seconds after backward began.  The sum of a bucket takes a + x_b / c seconds: a is the latency of
 * a collective, c the rate of the links.  It begins when the bucket is ready and the sum of the
 * bucket before has ended, so it ends at
 *
 *     e_b = max(r_b, e_(b-1)) + a + x_b / c
 *
 * The best of the sizes from 1 to 25 MiB is that whose last e_b is the smallest.  Small buckets are
 * ready early, and the last one, which nothing hides, is short.  Large buckets cost a less often.
 *
 * The figures.  A formation makes BUCKETS_STEPS steps with the buckets that it has.  Of each
 * bucket a rank keeps the shortest r_b and the shortest time of a sum (step/watch.h).  Of all ranks
 * the largest r_b counts, and the shortest time of a sum: the rank that comes last to a sum waits
 * for no other.  a and c are fitted to these times by least squares of relative errors, and are at
 * least 0.  Between the ends of the measured buckets r grows linearly.
 *
 * Rank 0 decides.  A size is taken only if the model says that the sums end earlier by 2 % than
 * with the present one.  The decision is a part of the state (ckpt_state.bucket_bytes): a resumed
 * run and a rank that joins have it from the state, and nothing is measured again.
 *
 * Only where the strategy promises that buckets may change.  So on CPUs the bits of training do not
 * depend on the decision.  On GPUs NCCL chooses the order of sums.
 *
 * Threads: the engine's. */
#ifndef TRAIN_BUCKETS_H
#define TRAIN_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "program/layout.h"

enum { BUCKETS_STEPS = 8 };

struct trainer;

struct buckets {
    int64_t from, due; /* measured are the steps [from, due); the decision is before step `due` */
};

/* The size for layout_new: the job's, or the default until auto has decided. */
size_t buckets_at_first(const struct trainer *t);

/* A formation begins with the trainer's next step, and all ranks have one state.  The gradients are
 * cut as it says. */
int buckets_form(struct trainer *t, struct err *err);

/* Decide, and cut the gradients anew, if that is due.  All ranks call it before every step; `last`:
 * the step before which training is to stop.  Blocks while ranks talk. */
int buckets_if_due(struct trainer *t, int64_t last, struct err *err);

/* The best size by the model, where bucket b of l was ready after ready_s[b], and its sum took
 * sum_s[b]; INFINITY: not measured.  l->bucket_bytes if no size is better by 2 %, or if the times
 * do not tell latency and rate.  Pure. */
size_t buckets_choose(const struct layout *l, const double *ready_s, const double *sum_s);

#endif
