/* schedule - the learning rate as a pure function of the global step.
 *
 *   warm-up   step g < W:  rate = peak * (f + (1 - f) * (g + 1) / W), f = warmup_start
 *   constant  peak
 *   step      peak * gamma^floor(g / every)
 *   cosine    min + (peak - min) * (1 + cos(pi * t)) / 2     (Loshchilov, Hutter 2017, equation 5)
 *   linear    peak + (min - peak) * t
 *
 * with t = (g - W) / (total - W), 0 at the end of the warm-up and 1 after the last step, and
 * peak = optimizer.lr, times the ranks that train this step where optimizer.scale_lr_by_ranks asks
 * for Horovod's rule; min_lr stays what it is.
 * Every rank computes it for itself, in double, so all hold the same rate at the same step.
 *
 * Threads: pure. */
#ifndef OPTIM_SCHEDULE_H
#define OPTIM_SCHEDULE_H

#include <stdint.h>

#include "config/job.h"

/* How long the job is: what "the end" means for cosine and linear. */
struct schedule_span {
    int64_t steps_per_epoch;
    int64_t total_steps; /* epochs * steps_per_epoch, or train.max_steps if that comes first */
    int n_ranks;         /* of the formation that trains the step */
};

double schedule_rate(const struct job *job, const struct schedule_span *span, int64_t step);

#endif
